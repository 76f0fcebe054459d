"""Operators, trigger, hook and pipeline parts that run SageMaker jobs from Airflow.

Floors, top down: `plugin` registers; `tasks` are the DAG families' own; `operators` run in a worker;
`triggers` wait in the triggerer; `hooks`, `links` and `retry_policy` speak to AWS and Airflow.
Everything below is plain Python in `trainyard`. Modules that a DAG file imports (`tasks`,
`operators`, `links`, `retry_policy`) load neither boto3 nor the Amazon provider: those are imported
when a task runs.

Airflow finds the provider, the plugin and the cluster policy by the wheel's entry points. Run from a checkout, it
needs the settings that `trainyard.stack.airflow_environment` makes. Either way it needs a connection, here as the JSON
of `AIRFLOW_CONN_AWS_DEFAULT` (`endpoint_url` is absent on AWS):

      {"conn_type": "aws", "login": "...", "password": "...",
       "extra": {"region_name": "...", "endpoint_url": "...",
                 "trainyard": {"bucket": "...", "execution_role_arn": "arn:aws:iam::..."}}}

Airflow's own `[triggerer] on_kill_timeout` of 30 s is enough: a trigger gives up stopping a job
shortly before.
"""
