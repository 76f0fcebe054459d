"""Chaos test: one run of the whole DAG on the real stack under a seeded schedule of faults ("strikes").

    python -m chaos [--seed 7] [--conf file.json]      (make chaos SEED=7)

| Module | Content |
|---|---|
| `schedule` | faults and their moments in the run's progress, drawn from the seed alone |
| `fault_injector` | injection of the faults, and detection of restarted processes |
| `training_log`, `story` | report of the cost of each fault |
| `audit` | final checks: success, one completed job per logical job, no running paid resource, continuity |

The package may import what the launcher may import. The run is driven by REST and the AWS endpoint. Faults of training
and storage are injected by the engine (`PUT /_engine/faults`), and processes are killed by their pid.
"""
