"""The same model under several strategies and numbers of ranks, each a training job, then a table and plots."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, chain

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.cell_job import CellJobOperator
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.retry_policy import RETRIES
from trainyard_airflow.tasks.comparison.jobs import cell_task_spec
from trainyard_airflow.tasks.comparison.params import comparison_params
from trainyard_airflow.tasks.comparison.preflight import (
    CELL_RETRIES,
    ComparisonPreflightOperator,
    ListCellsOperator,
)
from trainyard_airflow.tasks.comparison.report import ComparisonReportOperator
from trainyard_airflow.tasks.end_to_end import task_specs
from trainyard_airflow.tasks.shared import documentation
from trainyard_airflow.tasks.shared.assets import SHARDS_ASSET
from trainyard_airflow.tasks.shared.default_args import DEFAULT_ARGS
from trainyard_airflow.tasks.shared.form_schema import give_params

_LEDGER_URI = "{{ ti.xcom_pull(task_ids='preflight')['ledger_uri'] }}"

with DAG(
    dag_id="compare_strategies",
    dag_display_name="Compare strategies",
    schedule=None,
    catchup=False,
    max_active_runs=2,
    default_args=DEFAULT_ARGS,
    tags=["trainyard", "sagemaker", "distributed-training", "comparison"],
    doc_md=documentation.COMPARE,
) as compare_strategies:
    preflight = ComparisonPreflightOperator(task_id=TaskId.PREFLIGHT)
    shard = ShardDatasetOperator(
        task_id=TaskId.SHARD,
        spec=task_specs.shard_task_spec,
        asset=SHARDS_ASSET,
        ledger_uri=_LEDGER_URI,
    )
    plan = ListCellsOperator(task_id=TaskId.PLAN)
    # How many run at a time is the pool's to say: trainyard_airflow.cluster_policy.
    cells = CellJobOperator.partial(
        task_id=TaskId.CELLS,
        spec=cell_task_spec,
        ledger_uri=_LEDGER_URI,
        retries=CELL_RETRIES,
        **RETRIES,  # `partial` sets none over the operator's own
        map_index_template="{{ task.cell['name'] }}",
    ).expand(cell=plan.output)
    # A teardown runs whatever happened before it, also when somebody marked the run failed.
    report = ComparisonReportOperator(task_id=TaskId.REPORT).as_teardown(
        on_failure_fail_dagrun=True
    )
    # One training that can be shown makes the run a success; the page says what became of the others.
    outcome = EmptyOperator(
        task_id=TaskId.OUTCOME,
        trigger_rule="one_success",
        on_execute_callback=None,
        on_failure_callback=None,
    )
    chain(preflight, [shard, plan], cells, report)
    cells >> outcome

give_params(compare_strategies, comparison_params())
