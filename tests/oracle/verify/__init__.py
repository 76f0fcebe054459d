"""An independent recount of a run's continuity: `python -m verify runs/<run id>`.

    evidence       the files of the run's folder
    sample_order   the samples at given positions, and their digest
    log            the training log, line by line
    recount        log and jobs -> the expected continuity.json
    comparison     one check, and the equality of two values
    checks         all checks

It uses no computed value: steps and positions come from the log, samples from the seed, and lifetimes of instances,
seconds and prices from the jobs in report.json. It imports nothing from `trainyard.runs.continuity` or from the
training
scripts, and uses another method: it assigns each step to the last start that took it, instead of comparing the steps at
which starts resumed.
"""
