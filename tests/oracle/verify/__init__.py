"""An independent recount of a run's continuity: `python -m verify runs/<run id>`.

    evidence       the files of the run's folder
    sample_order   which samples lie at which positions, and their digest
    log            the training log, line by line
    recount        log and jobs -> continuity.json as it should be
    comparison     one check, and when two values are the same
    checks         what is checked

It trusts nothing that was computed before: steps and positions come from the log, samples from the
seed, lives of instances, seconds and prices from the jobs in report.json. It imports nothing from
`trainyard.runs.continuity` or from the training scripts, and works another way where there is one:
each step is painted with the last start that took it, instead of comparing where starts resumed.
"""
