"""Job specs of a comparison's trainings, and the findings on them before the first one starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from trainyard.errors import SpecError
from trainyard.planning.linter.linter import lint
from trainyard.specs.comparison_conf import ComparisonConf
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.script_check import ScriptJob, script_findings
from trainyard_airflow.operators.source_check import entry_point_findings
from trainyard_airflow.tasks.end_to_end.jobs import training_hyperparameters, training_spec
from trainyard_airflow.tasks.end_to_end.lint import REPORTED_BY_PLAN, UNSET_PATHS, UNSET_ROLE
from trainyard_airflow.tasks.shared.run_state import RunState, result_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow.sdk import Context

    from trainyard.errors import Finding
    from trainyard.planning.comparison_plan import Cell
    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard_airflow.operators.cell_job import CellJobOperator
    from trainyard_airflow.tasks.shared.run_paths import RunPaths


def cell_task_spec(context: Context, jinja_env: object) -> TrainingJobSpec:  # noqa: ARG001  # Airflow hands it over
    """Return the training job of a mapped task: one cell (strategy and number of ranks) of a comparison."""
    from trainyard.planning.comparison_plan import Cell  # a DAG file imports this module

    state, task = RunState.of(context), cast("CellJobOperator", context["task"])
    return cell_spec(
        Cell.from_dict(task.cell),
        run=ComparisonConf.from_mapping(state.plan["comparison"]).run,
        paths=state.paths,
        dataset_uri=result_of(context, TaskId.SHARD)["dataset_uri"],
        role=state.role,
    )


def cell_spec(
    cell: Cell, *, run: RunConf, paths: RunPaths, dataset_uri: str, role: str
) -> TrainingJobSpec:
    """Return the training job of one cell. It stores checkpoints in S3 only on spot capacity.

    Args:
        cell: the strategy and its ranks.
        run: the conf of the training that all cells share.
        paths: S3 prefixes of the run.
        dataset_uri: S3 prefix of the sharded data set.
        role: ARN of the execution role.

    Raises:
        SpecError: the strategy's distribution or hyperparameters are invalid.
    """
    spec = training_spec(
        cell.conf_of(run), paths=paths, dataset_uri=dataset_uri, role=role, task_id="cells"
    )
    own = f"{paths.run}/checkpoints/{cell.slug}"
    return replace(
        spec,
        entry_point=cell.entry_point,
        distribution=cell.distribution,
        hyperparameters={**spec.hyperparameters, **cell.hyperparameters},
        checkpoint_s3_uri=own if run.use_spot_instances else None,
        tags={"trainyard:cell": cell.slug},
    )


def comparison_findings(params: Mapping[str, Any], *, scripts: Path) -> Iterator[Finding]:
    """Yield the findings on the trainings of a comparison: from their specs, the linter and their scripts.

    If the conf itself is invalid, nothing is yielded, because `plan_comparison` reports the errors of the conf.

    Args:
        params: the run's params.
        scripts: the folder of the entry points.
    """
    from trainyard.planning.comparison_plan import (
        cells_of,
        merged_findings,
    )  # a DAG file imports this module

    try:
        conf = ComparisonConf.from_mapping(params)
    except SpecError:  # `plan_comparison` reports it
        return
    cells, _ = cells_of(conf)
    refusals = script_findings(scripts, [_script_job(each, conf.run) for each in cells])
    by_cell = {
        cell.name: [*_of_cell(cell, conf.run), *refused]
        for cell, refused in zip(cells, refusals, strict=True)
    }
    yield from merged_findings(by_cell)
    for entry_point in dict.fromkeys(each.entry_point for each in cells):
        yield from entry_point_findings(scripts, entry_point)


def _of_cell(cell: Cell, run: RunConf) -> Iterator[Finding]:
    # With a batch that fits the ranks: the plan reports one that does not, and the other checks must still run.
    fitting = replace(run, global_batch_size=run.micro_batch_size * cell.ranks)
    try:
        spec = cell_spec(
            cell,
            run=fitting,
            paths=UNSET_PATHS,
            dataset_uri=f"{UNSET_PATHS.root}/dataset",
            role=UNSET_ROLE,
        )
    except SpecError as error:
        yield from error.findings
        return
    yield from (each for each in lint(spec) if each.where not in REPORTED_BY_PLAN)


def _script_job(cell: Cell, run: RunConf) -> ScriptJob:
    return ScriptJob(
        where=f"strategies[{cell.strategy}].hyperparameters",
        entry_point=cell.entry_point,
        hyperparameters={**training_hyperparameters(run), **cell.hyperparameters},
        ranks=cell.ranks,
    )
