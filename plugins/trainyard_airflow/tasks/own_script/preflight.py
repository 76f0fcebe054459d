"""First task of a run with the user's own script: checks conf, scripts, data, account and limits before any cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.errors import Finding, Severity, SpecError
from trainyard.specs.account_limits import Required
from trainyard.specs.register_condition import unmeasured_findings
from trainyard.specs.script_conf import ScriptConf
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.project import project_folder
from trainyard_airflow.tasks.end_to_end.lint import (
    REPORTED_BY_PLAN,
    UNSET_PATHS,
    UNSET_ROLE,
    training_findings,
)
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator
from trainyard_airflow.tasks.end_to_end.stages import StageUse
from trainyard_airflow.tasks.own_script.jobs import script_evaluation_spec, script_training_spec
from trainyard_airflow.tasks.own_script.params import FORM
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.serving import serving_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.planning.auto_plan import AutoChoice
    from trainyard.planning.script_plan import ScriptPlan
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.training_job import TrainingJobSpec


class ScriptPreflightOperator(PreflightOperator):
    """Checks a run with the user's own script, and returns the `RunState` for all other tasks.

    The result has the plan with its maximum cost, and the budget. If the run has no evaluation script, this task skips
    the evaluation.
    """

    form: ClassVar = FORM

    def resolve(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice | None]:
        """Return the params unchanged, and None in place of an `AutoChoice`.

        Nothing is chosen automatically, because the planner has no model of a user's script.
        """
        return dict(params), None

    def conf(self, params: Mapping[str, Any]) -> ScriptConf:
        """Return the conf of a run with these params.

        Raises:
            SpecError: the params are invalid; it lists all findings.
        """
        return ScriptConf.from_mapping(params)

    def plan(self, params: Mapping[str, Any]) -> ScriptPlan:
        """Return the plan of a run with these params.

        Raises:
            SpecError: the params are invalid; it lists all findings.
            BudgetExceededError: the run could cost more than its budget.
        """
        from trainyard.planning.script_plan import plan_script  # a DAG file imports this module

        return plan_script(params, job_attempts=JOB_RETRIES + 1)

    def findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings on rules, on the evaluation, and on settings that AWS would reject, ignore or mishandle."""
        conf = _readable(params)
        if conf is None:
            return
        if self.evaluation is not StageUse.REPLACED and conf.evaluation_entry_point is None:
            yield from unmeasured_findings(
                conf.condition,
                [each.name for each in conf.metric_definitions],
                next_step="add the missing metric to metric_definitions, or set an evaluation_entry_point",
            )
        try:
            by_plan = REPORTED_BY_PLAN if conf.distribution is None else ()
            yield from training_findings(conf, _unset_training, reported_by_plan=by_plan)
            _render_evaluation(conf)
        except SpecError as error:
            yield from error.findings

    def account_findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings for scripts and data that are missing or invalid, or that the run is not allowed to use."""
        from trainyard_airflow.hooks import account_check
        from trainyard_airflow.tasks.own_script.script_folder import script_findings

        conf = _readable(params)
        if conf is None:
            return
        own = (conf.entry_point, conf.evaluation_entry_point)
        yield from script_findings(
            self.clients,
            conf.source_dir,
            entry_points=[each for each in own if each],
            requirements=conf.requirements,
            training=_valid_training(conf),
            project=project_folder(),
        )
        for where, uri in _addresses(conf).items():
            for found in account_check.channel_findings(self.clients, uri, where=where):
                # A task before the training may still write it.
                yield replace(found, severity=Severity.WARNING) if self.has_preparation else found

    def within_quotas(
        self, params: Mapping[str, Any], plan: Any
    ) -> tuple[Mapping[str, Any], Any, list[Finding]]:
        """Return the params and the plan as given, and a finding for each quota that is too small for the run."""
        from trainyard.planning.script_plan import script_quota_needs
        from trainyard_airflow.hooks.quota_check import quota_findings

        needs = tuple(script_quota_needs(self.conf(params)))
        return params, plan, list(quota_findings(self.clients, needs))

    def limit_findings(
        self, conf: ScriptConf, place: Mapping[str, str], *, ceiling_usd: float | None
    ) -> list[Finding]:
        """Return the findings on the connection's limits that the run's jobs, data, cost or network settings violate.

        The findings on the images and instance types for serving are included.
        """
        from trainyard_airflow.tasks.end_to_end.limit_findings import job_limit_findings

        limits = self.clients.job_limits
        read = [*_addresses(conf).values(), conf.source_dir]
        return [
            *limits.bucket_findings(each for each in read if each.startswith("s3://")),
            *job_limit_findings(self.clients, _jobs(conf, place)),
            *serving_findings(self.clients, conf),
            *limits.cost_findings(ceiling_usd),
            *self._network_findings(conf),
        ]

    def _network_findings(self, conf: ScriptConf) -> Iterator[Finding]:
        """Yield an error for subnets and for security groups that are not the connection's.

        Nothing is yielded unless the connection's limits require subnets.
        """
        defaults = self.clients.job_defaults
        if Required.SUBNETS not in self.clients.job_limits.required:
            return
        for name in ("subnets", "security_group_ids"):
            others = sorted(set(getattr(conf, name)) - set(getattr(defaults, name) or ()))
            if others:
                yield Finding(
                    where=name,
                    what="has values that are not the connection's, and the connection's job_limits allow no others",
                    got=", ".join(others),
                    allowed=", ".join(getattr(defaults, name) or ()) or None,
                    next_step="leave it empty, to use the connection's values",
                )

    def idle_tasks(self, conf: Mapping[str, Any]) -> set[str]:
        """Return the tasks that a run with this conf does not request."""
        idle = super().idle_tasks(conf)
        is_measured = self.evaluation is StageUse.REPLACED or conf["evaluation_entry_point"]
        return idle if is_measured else {*idle, TaskId.EVALUATE}

    def evaluation_reason(self, plan: Any) -> str:
        """Return the instance type of the evaluation with the reason for it, or that there is no evaluation."""
        return plan.evaluation.reason if plan.evaluation else "nothing: no evaluation_entry_point"


def _readable(params: Mapping[str, Any]) -> ScriptConf | None:
    """Return the conf, or None if it is invalid. The errors are reported by `ScriptPreflightOperator.plan`."""
    try:
        return ScriptConf.from_mapping(params)
    except SpecError:
        return None


def _unset_training(conf: ScriptConf) -> TrainingJobSpec:
    return script_training_spec(conf, paths=UNSET_PATHS, role=UNSET_ROLE, task_id=TaskId.TRAIN)


def _valid_training(conf: ScriptConf) -> TrainingJobSpec | None:
    """Return the training job's spec, with placeholders for the run's paths and role.

    Return None if the spec is invalid. The method `findings` reports its errors.
    """
    try:
        return _unset_training(conf)
    except SpecError:
        return None


def _unset_evaluation(conf: ScriptConf, *, paths: RunPaths, role: str) -> ProcessingJobSpec | None:
    """Return the spec of the evaluation job, with placeholders for the training's result.

    Return None if the run has no evaluation script.
    """
    trained = {
        "model_artifact": f"{paths.output}/model.tar.gz",
        "instance_type": conf.instance_type,
    }
    return script_evaluation_spec(conf, paths=paths, training=trained, role=role)


def _render_evaluation(conf: ScriptConf) -> None:
    """Render the evaluation's request with placeholders for the results of earlier tasks.

    Raises:
        SpecError: the service would reject the request.
    """
    from trainyard.sagemaker_api.processing_request import render_processing_job

    if spec := _unset_evaluation(conf, paths=UNSET_PATHS, role=UNSET_ROLE):
        render_processing_job(
            spec,
            name="evaluation",
            region="us-east-1",
            code_s3_uri=f"{UNSET_PATHS.code}/sourcedir.tar.gz",
            image_uri=conf.image_uri or "image",
        )


def _addresses(conf: ScriptConf) -> dict[str, str]:
    """Return the S3 addresses that the run's jobs read, by conf field, such as `inputs.train`."""
    from trainyard.specs.channel import TrainingInput, read_channel

    channels = {f"inputs.{name}": read_channel(each) for name, each in conf.inputs.items()}
    return {
        **{n: each.s3_data for n, each in channels.items() if isinstance(each, TrainingInput)},
        **{f"evaluation_inputs.{name}": uri for name, uri in conf.evaluation_inputs.items()},
    }


def _jobs(
    conf: ScriptConf, place: Mapping[str, str]
) -> Iterator[TrainingJobSpec | ProcessingJobSpec]:
    """Yield the run's jobs, with placeholders for the results of earlier tasks."""
    from trainyard_airflow.tasks.end_to_end.limit_findings import on_every_rung

    paths = RunPaths(bucket=place["bucket"], prefix=conf.prefix, dag_id="dag", run_id="run")
    role = place["role"]
    training = script_training_spec(conf, paths=paths, role=role, task_id=TaskId.TRAIN)
    yield from on_every_rung(training)
    if evaluation := _unset_evaluation(conf, paths=paths, role=role):
        yield evaluation
