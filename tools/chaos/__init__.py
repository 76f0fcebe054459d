"""Chaos: one run of the whole DAG on the real stack while a seeded schedule of faults strikes it.

    python -m chaos [--seed 7] [--conf file.json]      (make chaos SEED=7)

`schedule` draws what strikes and when, from the seed alone, in terms of the run's progress. `fault_injector` does it
and watches what comes back; `training_log`, `costs` and `story` report what each strike cost; `audit` decides whether
the run came through: succeeded, one job for each logical job, nothing paid still running, continuity verified.

It imports what the launcher imports: the run is driven over REST and the AWS endpoint, the faults of training and
storage are the engine's own (`PUT /_engine/faults`), processes are killed by their pid.
"""
