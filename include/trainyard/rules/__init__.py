"""Rules that watch a training: what went wrong, at which step, on which rank, and the numbers that say so.

    records         what can be observed of a run, as frozen values; nothing else is ever judged
    training_log    `trainyard ` lines -> records        statistics_file   the emitter's JSONL, rank by rank -> records
    rule            the one interface of all rules, and what a rule says
    series          windows over steps that a restart winds back
    loss, learning, validation, schedule, gradients, weights, initialization, activations, pace, silence, ranks, hosts,
    bottlenecks, gpus, inputs, predictions, comparison, trees
                    the rules, one module a family      catalogue         all of them by name
    expression, custom_file   rules of the run's author
    configuration   what the author asks for -> rules   evaluation        records -> verdicts, as they come
    table           verdicts as text                    run_folder        a run's folder -> records and facts

Pure but for `run_folder`, `custom_file` and `__main__`; standard library only. May import errors, units and specs.
AWS's rules carry AWS's names, parameters and documented defaults; each has a robust profile beside.
A rule without its data is not evaluated, and says why: it never guesses.
"""
