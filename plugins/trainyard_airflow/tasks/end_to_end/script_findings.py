"""Findings of the training script itself on the hyperparameters of a run."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from trainyard.specs.run_conf import readable_conf
from trainyard_airflow.operators.script_check import ScriptJob, script_findings
from trainyard_airflow.tasks.end_to_end.jobs import TRAINING_ENTRY_POINTS, training_hyperparameters

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainyard.errors import Finding


def run_script_findings(params: Mapping[str, Any], *, scripts: Path) -> list[Finding]:
    """Return the script's findings for each number of ranks in `capacity_ladder`; none if the conf is invalid."""
    conf = readable_conf(params)  # `plan_run` reports what is not
    if conf is None:
        return []
    jobs = [
        ScriptJob(
            where="hyperparameters",
            entry_point=TRAINING_ENTRY_POINTS[conf.strategy],
            hyperparameters=training_hyperparameters(conf),
            ranks=ranks,
        )
        for ranks in dict.fromkeys(
            (rung.instance_count or 1) * conf.ranks_on(rung.instance_type) for rung in conf.rungs
        )
    ]
    return list(dict.fromkeys(chain.from_iterable(script_findings(scripts, jobs))))
