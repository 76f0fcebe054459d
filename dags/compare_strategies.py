"""DAG that compares strategies and numbers of ranks.

Each chosen combination of a strategy and a number of ranks trains the same model in its own training job.
Then a report is written.
"""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, chain

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.cell_job import CellJobOperator
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.retry_policy import RETRIES
from trainyard_airflow.tasks.comparison.jobs import cell_task_spec
from trainyard_airflow.tasks.comparison.params import FORM
from trainyard_airflow.tasks.comparison.preflight import (
    CELL_RETRIES,
    ComparisonPreflightOperator,
    ListCellsOperator,
)
from trainyard_airflow.tasks.comparison.report import ComparisonReportOperator
from trainyard_airflow.tasks.end_to_end import task_specs
from trainyard_airflow.tasks.end_to_end.run_tasks import LEDGER_URI
from trainyard_airflow.tasks.shared import documentation
from trainyard_airflow.tasks.shared.assets import SHARDS_ASSET
from trainyard_airflow.tasks.shared.default_args import DEFAULT_ARGS

AWS_CONN_ID = "aws_default"  # the connection of all tasks

with DAG(
    dag_id="compare_strategies",
    dag_display_name="Compare strategies",
    schedule=None,
    catchup=False,
    max_active_runs=2,
    default_args={**DEFAULT_ARGS, "aws_conn_id": AWS_CONN_ID},
    tags=["trainyard", "sagemaker", "distributed-training", "comparison"],
    doc_md=documentation.COMPARE,
) as compare_strategies:
    preflight = ComparisonPreflightOperator(task_id=TaskId.PREFLIGHT)
    shard = ShardDatasetOperator(
        task_id=TaskId.SHARD,
        spec=task_specs.shard_task_spec,
        asset=SHARDS_ASSET,
        ledger_uri=LEDGER_URI,
    )
    plan = ListCellsOperator(task_id=TaskId.PLAN)
    # The pool limits the number of concurrent cells: trainyard_airflow.cluster_policy.
    cells = CellJobOperator.partial(
        task_id=TaskId.CELLS,
        spec=cell_task_spec,
        ledger_uri=LEDGER_URI,
        retries=CELL_RETRIES,
        aws_conn_id=AWS_CONN_ID,  # `partial` takes no default arguments of operators
        **RETRIES,  # `partial` would override the operator's policy with None
        map_index_template="{{ task.cell['name'] }}",
    ).expand(cell=plan.output)
    # A teardown runs in every case, even if the run was marked failed.
    report = ComparisonReportOperator(task_id=TaskId.REPORT).as_teardown(
        on_failure_fail_dagrun=True
    )
    # The run succeeds if at least one cell was trained; the report has the others' failures.
    outcome = EmptyOperator(
        task_id=TaskId.OUTCOME,
        trigger_rule="one_success",
        on_execute_callback=None,
        on_failure_callback=None,
    )
    chain(preflight, [shard, plan], cells, report)
    cells >> outcome

FORM.add_to(compare_strategies)
