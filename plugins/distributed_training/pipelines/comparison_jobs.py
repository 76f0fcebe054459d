"""The trainings of a comparison as specs, and what is wrong with them before any of them is paid. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distributed_training.operators.source_check import entry_point_findings
from distributed_training.pipelines.run_jobs import SOURCE_DIR, training_spec
from distributed_training.pipelines.run_lint import SAID_BY_THE_PLAN, UNSET_PATHS, UNSET_ROLE
from include.errors import SpecError
from include.planning.comparison_plan import merged_findings, plan_comparison
from include.planning.linter.linter import lint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distributed_training.pipelines.run_paths import RunPaths
    from include.errors import Finding
    from include.planning.comparison_plan import Cell
    from include.specs.run_conf import RunConf
    from include.specs.training_job import TrainingJobSpec


def cell_spec(
    cell: Cell, *, run: RunConf, paths: RunPaths, dataset_uri: str, role: str
) -> TrainingJobSpec:
    """Return the training job of one cell. It keeps checkpoints in S3 only where spot capacity may be taken from it.

    Args:
        cell: the strategy and its ranks.
        run: the training that all cells share.
        paths: where the run keeps what.
        dataset_uri: the sharded data set.
        role: the execution role's ARN.

    Raises:
        SpecError: the strategy's distribution or hyperparameters make no training job.
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
    """Yield what the specs, the linter and the scripts say of the cells; nothing for a conf that is refused already.

    Args:
        params: of the run.
        scripts: the folder of the entry points.
    """
    try:
        plan = plan_comparison({**params, "budget_usd": None})
    except SpecError:
        return
    yield from merged_findings(
        {each.name: _of_cell(each, plan.conf.run) for each in plan.cells},
    )
    for entry_point in dict.fromkeys(each.entry_point for each in plan.cells):
        yield from entry_point_findings(scripts / SOURCE_DIR, entry_point)


def _of_cell(cell: Cell, run: RunConf) -> Iterator[Finding]:
    try:
        spec = cell_spec(
            cell,
            run=run,
            paths=UNSET_PATHS,
            dataset_uri=f"{UNSET_PATHS.root}/dataset",
            role=UNSET_ROLE,
        )
    except SpecError as error:
        yield from error.findings
        return
    yield from (each for each in lint(spec) if each.where not in SAID_BY_THE_PLAN)
