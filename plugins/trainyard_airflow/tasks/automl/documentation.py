"""Page of `autopilot_tabular` in the UI."""
# ruff: noqa: E501  # a row of a table is one line

from __future__ import annotations

AUTOPILOT = """
## Autopilot for a table

From a table to a registered model with a report, by one AutoML job (SageMaker Autopilot).

| Task | Does | Returns |
|---|---|---|
| `prepare` | a processing job that splits the table into training, test and maybe validation rows | the job's snapshot |
| `search` | one AutoML job over the training rows, followed while deferred: candidates, explanation, leaderboard | the best candidate, its metrics and artifact |
| `evaluate` | a processing job that measures the best candidate on the test rows, beside a baseline | the job's snapshot |
| `register` | a model package with metrics and lineage | its ARN |
| `report` | `report.html` and `report.json`: leaderboard, test metrics, what the model looks at; also when a task failed | their addresses |

**Start** it with the form, or by REST: `POST /api/v2/dags/autopilot_tabular/dagRuns` with `{"logical_date": null, "conf": {"dataset":
"wine", "max_candidates": 6}}`. An own table: `{"dataset": "own", "source": "s3://bucket/prefix", "target_column": "price"}`.

**Money.** `budget_usd` becomes the time limit of the search, so the service itself ends it; the best candidate so far is then taken.
`max_candidates` and `max_time_s` bound it likewise.

**Trying again.** A retry, a cleared task or a restarted worker looks at SageMaker first: a running job is re-attached, a
completed one is the result. A search that was stopped fails its task.
"""
