"""Findings of the linter and of the script itself on the training job of a run's conf."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.planning.linter.linter import lint
from trainyard.specs.run_conf import readable_conf
from trainyard.specs.service_debugger import Debugger
from trainyard_airflow.operators.script_check import ScriptJob, script_findings
from trainyard_airflow.tasks.end_to_end.jobs import (
    TRAINING_ENTRY_POINTS,
    training_hyperparameters,
    training_spec,
    with_judge,
)
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from trainyard.errors import Finding
    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.training_job import TrainingJobSpec

C = TypeVar("C", bound="BaseRunConf")

# Placeholder addresses of the job, which the linter does not read.
UNSET_PATHS = RunPaths(bucket="bucket", prefix="prefix", dag_id="dag", run_id="run")
UNSET_ROLE = "arn:aws:iam::000000000000:role/role"
REPORTED_BY_PLAN = ("distribution.processes_per_host",)


def params_findings(
    params: Mapping[str, Any], *, scripts: Path | None = None
) -> tuple[Finding, ...]:
    """Return the findings on the settings and the rules of the run's training.

    A setting has a finding if AWS would reject, ignore or mishandle it. Fields that `RunConf`
    rejects are left out of the check.

    Args:
        params: the run's params.
        scripts: folder of the training scripts, which then check their hyperparameters too; None = no such check.
    """
    from trainyard.rules.rule_retry import retry_findings

    conf = readable_conf(params)  # `plan_run` reports what is not
    if conf is None:
        return ()
    return (
        *training_findings(conf, _unset_training),
        *retry_findings(conf.on_rule_stop),
        *(_script_findings(conf, scripts) if scripts else ()),
    )


def training_findings(
    conf: C,
    training: Callable[[C], TrainingJobSpec],
    *,
    reported_by_plan: Collection[str] = REPORTED_BY_PLAN,
) -> tuple[Finding, ...]:
    """Return the findings on a conf's `rules`, and on settings of its training that AWS would reject or mishandle.

    Settings that AWS would ignore have findings, too.

    Args:
        conf: the run's conf.
        training: returns the training job of the conf.
        reported_by_plan: fields whose findings are omitted, because the run's plan reports them.
    """
    from trainyard.rules.configuration import rules_findings
    from trainyard.rules.service_rules import service_findings, unwatched_findings
    from trainyard.rules.watch_plan import with_idle_rule

    watched = with_idle_rule(conf.rules, conf.stop_if_idle_minutes)
    wrong = rules_findings(watched) or tuple(service_findings(conf.debugger, conf.rules))
    # The service's rules are linted only if they are valid.
    judged = replace(conf, debugger=Debugger.OWN) if wrong else conf
    linted = lint(with_judge(training(judged), judged))
    unwatched = unwatched_findings(conf.debugger, is_watched=conf.watch_rules)
    kept = (each for each in linted if each.where not in reported_by_plan)
    return (*kept, *wrong, *unwatched)


def _unset_training(conf: RunConf) -> TrainingJobSpec:
    return training_spec(
        conf,
        paths=UNSET_PATHS,
        dataset_uri=f"{UNSET_PATHS.root}/dataset",
        role=UNSET_ROLE,
        task_id="train",
        measures_test_split=True,
    )


def _script_findings(conf: RunConf, scripts: Path) -> Iterable[Finding]:
    """Return the findings of the training script's own check of its hyperparameters, without duplicates.

    The script checks them for the number of ranks of each capacity tier.
    """
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
    return dict.fromkeys(chain.from_iterable(script_findings(scripts, jobs)))
