"""Operators, triggers, hooks and DAG tasks that run SageMaker jobs from Airflow.

Layers from top to bottom; each may import those below:

| Layer | Content |
|---|---|
| `plugin`, `pages`, `run_notes`, `conf_refusal` | registration with Airflow, pages, listeners, middleware |
| `tasks` | tasks of the DAG families |
| `operators` | operators, which run in a worker |
| `jobs` | the SageMaker jobs of one task, without Airflow |
| `triggers` | triggers, which run in the triggerer |
| `hooks`, `links`, `retry_policy`, `cluster_policy` | access to AWS and Airflow |
| `trainyard` | plain Python without Airflow |

Modules that a DAG file imports (`tasks`, `operators`, `links`, `retry_policy`) import neither boto3 nor the
Amazon provider. Boto3 and the provider are imported when a task runs.

If Trainyard is installed, Airflow finds the provider, the plugin and the cluster policy by the wheel's
entry points. A checkout needs the settings of `trainyard.stack.airflow_environment` instead. In both cases,
a connection is needed. This is its JSON in `AIRFLOW_CONN_AWS_DEFAULT` (`endpoint_url` is absent on AWS):

      {"conn_type": "aws", "login": "...", "password": "...",
       "extra": {"region_name": "...", "endpoint_url": "...",
                 "trainyard": {"bucket": "...", "execution_role_arn": "arn:aws:iam::..."}}}

Airflow's default `[triggerer] on_kill_timeout` of 30 s is sufficient, because a trigger tries for at most
28 s to stop a job.
"""
