"""Rules that check a training. An issue has its cause, step, rank and numbers.

    records           observations of a run as frozen values; rules evaluate nothing else
    training_log      `trainyard ` lines -> records
    statistics_file   JSONL of each rank -> records
    run_folder        a run's folder -> records and facts
    rule              the interface of all rules, and their results
    series            windows over steps, which a restart rolls back
    catalogue         all built-in rules by name
    expression        a rule that a user writes as an expression
    custom_file       rules that a user writes in a Python file
    configuration     the user's list -> rules
    evaluation        records -> verdicts, incrementally
    table             verdicts as text

The built-in rules are in one module per family: loss, learning, validation, schedule, gradients, weights,
initialization, activations, pace, silence, ranks, hosts, bottlenecks, gpus, idleness, inputs, predictions,
comparison, trees.

Pure, except `run_folder`, `custom_file`, `watch` and `__main__`. Standard library only; may import errors,
units, training_line and specs. AWS's rules have AWS's names, parameters and documented defaults. Each also
has a robust profile: parameters with which healthy trainings have no issues. A rule that lacks its data is
reported as not evaluated, with the reason.
"""
