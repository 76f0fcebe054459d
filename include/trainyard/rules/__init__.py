"""Rules that check a training. An issue has its cause, step, rank and numbers.

    records         observations of a run as frozen values; rules evaluate nothing else
    training_log    `trainyard ` lines -> records        statistics_file   JSONL of each rank -> records
    rule            the interface of all rules, and their results
    series          windows over steps, which a restart rolls back
    loss, learning, validation, schedule, gradients, weights, initialization, activations, pace, silence, ranks, hosts,
    bottlenecks, gpus, inputs, predictions, comparison, trees
                    the rules, one module per family    catalogue         all of them by name
    expression, custom_file   rules that a user writes
    configuration   the user's list -> rules            evaluation        records -> verdicts, incrementally
    table           verdicts as text                    run_folder        a run's folder -> records and facts

Pure, except `run_folder`, `custom_file`, `watch` and `__main__`. Standard library only; may import errors, units,
training_line and specs.
AWS's rules have AWS's names, parameters and documented defaults. Each also has a robust profile: parameters with which
healthy trainings have no issues.
A rule that lacks its data is reported as not evaluated, with the reason.
"""
