"""Documentation of the DAGs in Airflow's UI (`doc_md`)."""
# ruff: noqa: E501  # a row of a table is one line

from __future__ import annotations

_TASKS = """
| Task | Does | Returns |
|---|---|---|
| `preflight` | checks conf, code, bucket, role and data; reports all problems at once, before anything is paid | the run's state: conf, addresses, plan, cost ceiling |
| `shard` | writes the data as shards and an index to S3: in the worker, or in a processing job with `shard_instance_count` instances that read an `s3://` source; for the same data and settings, nothing is uploaded again | address and fingerprint of the data set |
| `smoke_test` | with `smoke_hyperparameters`: a short training on one instance, which must complete before search and training; otherwise skipped | the job's snapshot |
| `tune` | with `tune`: a search by a SageMaker tuning job over short trainings; otherwise skipped | the best trial, its hyperparameters, all trials, the cost |
| `train` | one SageMaker training job over all instances, with the best trial's hyperparameters if there was a search, followed while deferred | the job's snapshot: metrics, times, artifact |
| `watch_rules` | parallel to `train`: evaluates the conf's `rules` on the statistics of its ranks, and warns, stops it (checkpoint first) or fails it; a stop is a result of `train`, and downstream tasks are skipped | the findings, and the rule that stopped the training |
| `evaluate` | a processing job that measures the model on the test split, or the result of the training's last step | `metrics` and `evaluation_uri`, with the job's snapshot or `measured_by` |
| `register` | a model package with metrics and lineage, if the model meets `register_when`, and with `approval` if a person approves it | its ARN |
| `set_up_monitoring`, `tear_down_monitoring` | with `monitoring`: alarms and a dashboard in CloudWatch around the training; otherwise skipped | names of the created and removed resources |
| `report` | `report.html` and `report.json`; also if a task failed; the run then stays failed | their addresses |
"""

_REPEATING = """
**Retries.** A retry, a cleared task or a restarted worker first reads the job's state from SageMaker. It
re-attaches to a running job, returns a completed one, and starts the next attempt on the same checkpoints
after a failed or stopped one. Clearing or marking a deferred task stops its job. To train again from the
beginning, start a new run.

**Capacity.** `capacity_ladder` lists capacities in order. If a tier has no instances within its time, the
next one is tried at once, on the same checkpoints. If a quota is full, the task waits for it. A training
without a heartbeat for `heartbeat_timeout_s` is stopped and resumed.

**Connection.** The connection `aws_default` determines the endpoint: AWS, or another endpoint with its API.
Its extra has the bucket and the execution role: `{"trainyard": {"bucket": "...",
"execution_role_arn": "..."}}`.
"""

END_TO_END = f"""
## Train end to end

From data to a registered model with a report, on SageMaker.
{_TASKS}
**Start** it with the form, or by REST: `POST /api/v2/dags/train_end_to_end/dagRuns` with
`{{"logical_date": null, "conf": {{"max_steps": 100}}}}`. Form, REST and schedule share one schema.
{_REPEATING}
"""

OWN_SCRIPT = f"""
## Train your own script

Your training script, unchanged, from its data in S3 to a registered model with a report, on SageMaker.

| Task | Does | Returns |
|---|---|---|
| `preflight` | checks conf, scripts, data, bucket, role, quotas and the account's limits; reports all problems at once, before anything is paid | the run's state: conf, addresses, plan, cost ceiling |
| `train` | one SageMaker training job, followed while deferred; resumes from `/opt/ml/checkpoints` after a spot interruption | the job's snapshot: metrics, times, artifact |
| `watch_rules` | parallel to `train`: evaluates the metrics that the script writes at each step | the findings, and the rule that stopped the training |
| `evaluate` | with `evaluation_entry_point`: your script measures the model in a processing job; otherwise skipped | the job's snapshot, `metrics` |
| `register` | a model package, if the model meets `register_when`, and with `approval` if a person approves it | its ARN |
| `report` | `report.html` and `report.json`; also if a task failed; the run then stays failed | their addresses |

**Start** it with the form, or by REST: `POST /api/v2/dags/train_own_script/dagRuns` with
`{{"logical_date": null, "conf": {{"entry_point": "train.py", "source_dir": "dags/my_training"}}}}`.
{_REPEATING}
"""

FINE_TUNE = f"""
## Fine-tune a language model

From a base model and JSON lines in S3 to a fine-tuned model, on SageMaker: SFT or DPO, of all weights or with LoRA.

| Task | Does | Returns |
|---|---|---|
| `preflight` | checks conf, data, bucket, role, quotas and the account's limits; reports all problems at once, before anything is paid | the run's state: conf, addresses, plan, cost ceiling |
| `check_data` | reads the rows: format, order of roles, empty answers, duplicates, lengths; invalid rows are rejected by their numbers; nothing is paid | figures of each split, estimated tokens, hours and cost |
| `train` | one SageMaker training job of `train_sft.py`, followed while deferred; resumes from its checkpoint after a spot interruption | the job's snapshot: metrics, times, artifact |
| `watch_rules` | parallel to `train`: evaluates its metrics at each step | the findings, and the rule that stopped the training |
| `evaluate` | with `validation_data`: a processing job measures base and tuned model; otherwise skipped | the job's snapshot, `metrics`: `gain` and others |
| `register` | a model package, if the model meets `register_when`, and with `approval` if a person approves it | its ARN |
| `report` | `report.html` and `report.json`; also if a task failed; the run then stays failed | their addresses |

**Start** it with the form, or by REST: `POST /api/v2/dags/fine_tune/dagRuns` with
`{{"logical_date": null, "conf": {{"base_model": "s3://bucket/base/", "train_data": "s3://bucket/train/", "validation_data": "s3://bucket/test/"}}}}`.
{_REPEATING}
"""

ON_SCHEDULE = f"""
## Train on schedule or new data

The same pipeline as `train_end_to_end`, every Monday at 03:00 UTC and on each event of the asset
`x-trainyard://dataset`.

Announce new data with `POST /api/v2/assets/events` and
`{{"asset_id": ..., "extra": {{"source": "s3://bucket/prefix"}}}}`. Params in the extra apply to that
run. {_TASKS}{_REPEATING}
"""

TUNE_MAPPED = """
## Tune in rounds, then train

As `train_end_to_end` with `tune`, but the trials are training jobs that Airflow maps. Each of up to six rounds asks Optuna for
trials, `tuning_max_parallel_jobs` at a time, and returns their results to it. Each trial is first trained for `tuning_max_steps`; the best
third is trained three times as long, and the rest is pruned. Trials and results are stored in S3; a retry or a clear therefore gets the
same trials and finds their jobs. `tuning_strategy` is Bayesian or Random. `train` uses the best trial's hyperparameters.
"""

JANITOR = """
## Clean up orphans

Every 15 minutes: finds the training, processing, tuning and AutoML jobs, the endpoints and the warm pools that cost money now, and
stops those that this Airflow created for a DAG run that is no longer queued or running (it ended, or was deleted).

It stops only resources whose tag `trainyard:deployment` equals the connection's extra `trainyard.deployment`, which no other
Airflow in the account may use. Tag a resource `trainyard:keep` to keep it. `dry_run` only reports. The log of `stop_orphans` has
one line per resource, and its XCom has the same as data.
"""

PLAN = """
## Plan training

Ranks ways to train a model, without training: instances, mesh (replicas, shards, tensor and pipeline parallel), micro batch, recomputation, with bytes
of each accelerator by part, step time, MFU, communication, hours and money, and the reason for each rank or rejection. The log of `plan` has the table,
and its XCom the same as data. The figures are modeled: formulas, sources and their validation are in `docs/distribution.md`.
`make plan CONF=file.json` prints the same.
"""

COMPARE = """
## Compare strategies

The same model under several strategies and numbers of ranks, each a training job, then a table and plots: samples/s, scaling efficiency, peak memory of a
rank, communication, loss agreement with the fewest ranks, cost of an epoch, and the number of ranks beyond which more do not pay.

| Task | Does | Returns |
|---|---|---|
| `preflight` | checks conf, every cell, linter, code, account and data at once; prints what all of it can cost; nothing is paid before | the run's state |
| `shard` | writes the data as shards that every number of ranks can share | the data set |
| `plan` | lists the cells: each strategy on each number of ranks | the cells |
| `cells` | mapped: one training job for each strategy and number of ranks, `cells_at_once` at a time | the job's snapshot |
| `report` | `comparison.html`, `.json` and `.parquet`; a failed cell has its reason | their addresses |

The run succeeds if at least one cell was trained. The defaults take minutes on a laptop: 40 steps of a small decoder, one thread for each rank.
`POST /api/v2/dags/compare_strategies/dagRuns` with `{"logical_date": null, "conf": {"ranks": [1, 2, 4]}}` starts it, or `make compare`. See `docs/comparison.md`.
"""

AUTOPILOT = """
## Autopilot for a table

From a table to a registered model with a report, by one AutoML job (SageMaker Autopilot).

| Task | Does | Returns |
|---|---|---|
| `prepare` | a processing job that splits the table into training, test and maybe validation rows | the job's snapshot |
| `search` | one AutoML job over the training rows, followed while deferred: candidates, explanation, leaderboard | the best candidate, its metrics and artifact |
| `evaluate` | a processing job that measures the best candidate and a baseline on the test rows | the job's snapshot |
| `register` | a model package with metrics and lineage | its ARN |
| `report` | `report.html` and `report.json`: leaderboard, test metrics, feature importance; also if a task failed | their addresses |

**Start** it with the form, or by REST: `POST /api/v2/dags/autopilot_tabular/dagRuns` with `{"logical_date": null, "conf": {"dataset":
"digits", "max_candidates": 6}}`. Your own table: `{"dataset": "own", "source": "s3://bucket/prefix", "target_column": "price"}`.

**Cost.** `budget_usd` becomes a time limit of the search, which the service itself enforces; the result is then the best candidate so
far. `max_candidates` and `max_time_s` are further limits.

**Retries.** A retry, a cleared task or a restarted worker first reads the job's state from SageMaker. It re-attaches to a running job,
and returns a completed one. A search that was stopped fails its task.
"""
