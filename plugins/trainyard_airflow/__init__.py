"""Operators, trigger, hook and pipeline parts that run SageMaker jobs from Airflow.

Floors, top down: `plugin` registers; `tasks` are the DAG families' own; `operators` run in a worker;
`triggers` wait in the triggerer; `hooks`, `links` and `retry_policy` speak to AWS and Airflow.
Everything below is plain Python in `trainyard`. Modules that a DAG file imports (`tasks`,
`operators`, `links`, `retry_policy`) load neither boto3 nor the Amazon provider: those are imported
when a task runs.

Airflow needs, by environment (any deployment; `trainyard.stack` sets these):

- `PYTHONPATH`: the folder `include`, so that `trainyard` is importable in every process.
- `AIRFLOW__CORE__DAGS_FOLDER`: `<root>/dags`.
- `AIRFLOW__CORE__PLUGINS_FOLDER`: `<root>/plugins` (`plugins/.airflowignore` hides this package from
  the plugin loader).
- `AIRFLOW__CORE__LOAD_EXAMPLES`: `False`.
- `AIRFLOW_CONN_AWS_DEFAULT`: a connection as JSON; `endpoint_url` is absent on AWS:

      {"conn_type": "aws", "login": "...", "password": "...",
       "extra": {"region_name": "...", "endpoint_url": "...",
                 "trainyard": {"bucket": "...", "execution_role_arn": "arn:aws:iam::..."}}}

Airflow's own `[triggerer] on_kill_timeout` of 30 s is enough: a trigger gives up stopping a job
shortly before.
"""
