"""Linter's findings about the training job of a run's conf. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.planning.linter.linter import lint
from trainyard.specs.run_conf import readable_conf
from trainyard.specs.service_debugger import Debugger
from trainyard_airflow.tasks.end_to_end.jobs import training_spec, with_judge
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.errors import Finding
    from trainyard.specs.run_conf import RunConf

# The job's addresses, of which the linter reads none.
UNSET_PATHS = RunPaths(bucket="bucket", prefix="prefix", dag_id="dag", run_id="run")
UNSET_ROLE = "arn:aws:iam::000000000000:role/role"
SAID_BY_THE_PLAN = ("distribution.processes_per_host",)


def params_findings(params: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what AWS would refuse, ignore or do badly about the run's training, and rules that there are not.

    Nothing of fields that cannot be read.
    """
    from trainyard.rules.configuration import rules_findings
    from trainyard.rules.rule_retry import retry_findings
    from trainyard.rules.service_rules import service_findings, unwatched_findings

    conf = readable_conf(params)  # `plan_run` reports what is not
    if conf is None:
        return ()
    wrong = rules_findings(conf.rules) or tuple(service_findings(conf.debugger, conf.rules))
    # Who judges by them is linted where they can be read.
    linted = conf_findings(replace(conf, debugger=Debugger.OWN) if wrong else conf)
    unwatched = unwatched_findings(conf.debugger, is_watched=conf.watch_rules)
    return (*linted, *wrong, *unwatched, *retry_findings(conf.on_rule_stop))


def conf_findings(conf: RunConf) -> tuple[Finding, ...]:
    """Return what AWS would refuse, ignore or do badly about the run's training, errors first."""
    spec = training_spec(
        conf,
        paths=UNSET_PATHS,
        dataset_uri=f"{UNSET_PATHS.root}/dataset",
        role=UNSET_ROLE,
        task_id="train",
        measures_test_split=True,
    )
    spec = with_judge(spec, conf)
    return tuple(each for each in lint(spec) if each.where not in SAID_BY_THE_PLAN)
