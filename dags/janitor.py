"""`clean_up_orphans`: DAG that every 15 minutes stops paid resources that no live run owns."""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable

from trainyard_airflow.operators.janitor import JanitorOperator
from trainyard_airflow.tasks.shared import documentation
from trainyard_airflow.tasks.shared.default_args import DEFAULT_ARGS
from trainyard_airflow.tasks.shared.form_schema import Form
from trainyard_airflow.tasks.shared.known_params import reject_unknown_params

AWS_CONN_ID = "aws_default"  # the connection of all tasks
FORM = Form(
    {
        "Clean-up": {
            "dry_run": (
                "Dry run",
                "Only report the resources that would be stopped.",
                {"type": "boolean"},
            ),
            "grace_minutes": (
                "Grace time (minutes)",
                "Younger resources are not stopped.",
                {"type": "number", "minimum": 0, "maximum": 10_000},
            ),
        }
    },
    {"dry_run": False, "grace_minutes": 5},
)

with DAG(
    dag_id="clean_up_orphans",
    dag_display_name="Clean up orphans",
    schedule=CronTriggerTimetable("*/15 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    params=FORM.params(),
    default_args={**DEFAULT_ARGS, "aws_conn_id": AWS_CONN_ID},
    tags=["trainyard", "sagemaker", "clean-up"],
    doc_md=documentation.JANITOR,
) as clean_up_orphans:
    JanitorOperator(
        task_id="stop_orphans",
        is_dry_run="{{ params.dry_run }}",
        grace_minutes="{{ params.grace_minutes }}",
        pre_execute=reject_unknown_params,  # a misspelt `dry_run` would stop jobs
    )
