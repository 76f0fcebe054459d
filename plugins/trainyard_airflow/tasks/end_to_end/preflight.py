"""First task of a run: checks conf, code, account and data before any cost, and reports all findings together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, assert_never

from airflow.sdk import SkipMixin

from trainyard.catalog.instances import region_findings
from trainyard.errors import (
    BudgetExceededError,
    ExpiredCredentialsError,
    Finding,
    FindingsError,
    RejectedRequestError,
    Severity,
    SpecError,
    ThrottledError,
)
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.specs.base_run_conf import BaseRunConf
from trainyard.specs.data_mixture import sources_in
from trainyard.specs.metrics import TEST_METRICS, TRAINYARD_METRICS
from trainyard.specs.monitoring import Monitoring, Notifications
from trainyard.specs.reading import read_spec
from trainyard.specs.register_condition import unmeasured_findings
from trainyard.specs.run_conf import RunConf, readable_conf
from trainyard.task_ids import TaskId
from trainyard.units import format_usd
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.operators.person_question import end_wait
from trainyard_airflow.operators.source_check import entry_point_findings
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.tasks.end_to_end.cost_approval import ask_for_approval, check_approval
from trainyard_airflow.tasks.end_to_end.jobs import (
    EVALUATION_ENTRY_POINT,
    TRAINING_ENTRY_POINTS,
)
from trainyard_airflow.tasks.end_to_end.lint import params_findings
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.end_to_end.stages import NO_EVALUATION, StageUse
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState
from trainyard_airflow.tasks.shared.schema_findings import value_findings
from trainyard_airflow.tasks.shared.serving import serving_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from airflow.sdk import Context

    from trainyard.cost.team_budget import RunSpend
    from trainyard.planning.auto_plan import AutoChoice
    from trainyard.planning.comparison_plan import ComparisonPlan
    from trainyard.planning.estimate.run_estimate import RunEstimate
    from trainyard.planning.run_plan import RunPlan
    from trainyard.planning.script_plan import ScriptPlan
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.tasks.end_to_end.stages import Stages
    from trainyard_airflow.tasks.shared.form_schema import Form

T = TypeVar("T")
C = TypeVar("C", bound="BaseRunConf")

_PLACES = ("bucket", "role", "tokenizer", "notifications")
# Keys that Airflow itself adds to an event's extra: its REST API, and a trigger with its payload.
_OF_AIRFLOW = {"from_rest_api", "from_trigger", "payload"}


@retried_by_error
class PreflightOperator(ConnectedOperator, SkipMixin):
    """Checks a run's conf, code, account and data, and returns the `RunState` for all other tasks.

    The result has the plan with its maximum cost, and the budget. This task skips the optional tasks that the conf does
    not request, such as the search; no worker is then started for them.
    """

    ui_color = "#fdf6e3"
    form: ClassVar[Form] = FORM

    def __init__(
        self,
        *,
        more_findings: Callable[[Mapping[str, Any]], Iterable[Finding]] | None = None,
        stages: Stages | None = None,
        **kwargs: Any,
    ) -> None:
        """Create the task.

        Args:
            more_findings: yields findings for params that this DAG does not support.
            stages: stages of the DAG that its author may have replaced or left out; None = the run's own.
            kwargs: arguments of the base class.
        """
        super().__init__(**{**RETRIES, **kwargs})
        self.more_findings = more_findings
        self.stages = stages
        self.evaluation = stages.use("evaluate") if stages else StageUse.OWN
        self.has_preparation = stages is not None and callable(stages.prepare)
        self._result: dict[str, Any] = {}
        self._spend: RunSpend | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the run's state.

        Raises:
            SpecError: at least one check failed; it lists all findings.
            BudgetExceededError: no check failed, but the run could cost more than its budget.
            ConnectionError: no check failed, but AWS did not answer; a retry may succeed.
            ThrottledError: no check failed, but AWS throttled a call; a retry may succeed.
            ExpiredCredentialsError: no check failed, but the credentials have expired.
            TaskAwaitingInput: a person must approve the cost; `execute_approved` resumes.
        """
        found = _Findings()
        params: Mapping[str, Any] = {
            **context["params"],
            **found.of_events(triggering_params(context), form=self.form),
        }
        found.add(self.stages.findings(params) if self.stages else ())
        resolved = found.result_of(lambda: self.resolve(params))
        params, auto = resolved or (params, None)
        plan = found.result_of(lambda: self.plan(params)) if resolved else None
        region = found.of_connection(self.clients)
        if region:
            found.add(region_findings(region))
        if plan and region:
            params, plan, short = self.within_quotas(params, plan)
            found.add(short)
        conf: Any = found.result_of(lambda: self.conf(params)) if plan else None
        found.add(self.findings(params))
        found.add(self.more_findings(params) if self.more_findings else ())
        found.add(self._absent_task_findings(params))
        place = (
            found.of_account(self.clients, params, unwritten=self._may_write_source)
            if region
            else {}
        )
        if region:
            found.add(self.account_findings(params))
        estimate = None
        if plan and conf and all(place.values()):
            ceiling_usd = plan.ceiling_usd
            found.add(
                found.result_of(lambda: self.limit_findings(conf, place, ceiling_usd=ceiling_usd))
                or ()
            )
            if not found.has_errors:
                estimate = self.estimate(context, conf, place, ceiling_usd=ceiling_usd)
                found.add(found.result_of(lambda: self.plan_findings(conf, estimate)) or ())
                found.add(self.team_findings(context, plan, estimate))
        if plan:
            plan = replace(plan, warnings=(*plan.warnings, *found.warnings))
        for warning in plan.warnings if plan else found.warnings:
            self.log.warning("%s", warning)
        found.raise_errors(subject=f"{context['ti'].dag_id} run {context['ti'].run_id}")
        assert plan is not None and region is not None  # noqa: S101, PT018  # else there was an error
        state = self._state(context, conf, plan, place, region)
        self._result = state.to_dict()
        self._result["team"] = self._spend.team if self._spend else None
        self._result["team_month"] = self._spend.month if self._spend else None
        if auto:
            self._result["plan"]["auto"] = auto.to_dict()
        if estimate:
            self.log.info("Estimate: %s", estimate)
            self._result["plan"]["estimate"] = estimate.to_dict()
            from trainyard_airflow.hooks.notifications import notify

            ask_for_approval(
                context,
                conf,
                estimate,
                then="execute_approved",
                result=self._result,
                send=partial(notify, self.clients, state.notifier),
            )
        return self._result

    def execute_approved(
        self,
        context: Context,
        event: Mapping[str, Any],
        result: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the run's state if a person approved its cost.

        Raises:
            BudgetExceededError: the person rejected the cost, or nobody answered in time.
        """
        end_wait(context)
        check_approval(event, result)
        self.log.info("The run's cost is approved")
        self._result = result
        return result

    @property
    def _may_write_source(self) -> bool:
        """True if a later task may write the source, so that a source that is missing now is only a warning.

        This is so if the DAG's author replaced `shard` or added a task before it.
        """
        return self.has_preparation or (
            self.stages is not None and self.stages.use("shard") is StageUse.REPLACED
        )

    def resolve(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice | None]:
        """Return the params with each "auto" replaced by the planner's choice, and log the choices with their reasons.

        The second value has the choices, or is None if there was nothing to choose.

        Raises:
            SpecError: the params cannot be planned.
            PlanError: no cluster fits.
        """
        from trainyard.planning.auto_plan import choose_auto  # a DAG file imports this module

        given = {**params, **({} if self.evaluation is StageUse.OWN else NO_EVALUATION)}
        choice = choose_auto(given)
        if choice is None:
            return given, None
        for name, value in choice.chosen.items():
            self.log.info("auto: %s = %s", name, value)
        for reason in choice.reasons:
            self.log.info("auto: %s", reason)
        return {**given, **choice.chosen}, choice

    def conf(self, params: Mapping[str, Any]) -> Any:
        """Return the conf of a run with these params.

        Raises:
            SpecError: the params are invalid; it lists all findings.
        """
        return RunConf.from_mapping(params)

    def plan(self, params: Mapping[str, Any]) -> Any:
        """Return the plan of a run with these params.

        Raises:
            SpecError: the params are invalid; it lists all findings.
            BudgetExceededError: the run could cost more than its budget.
        """
        from trainyard.planning.run_plan import plan_run  # a DAG file imports this module

        return plan_run(params, job_attempts=JOB_RETRIES + 1)

    def findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings that the plan does not report: on the run's jobs, on its scripts and on `register_when`."""
        yield from params_findings(params, scripts=TRAINING_SCRIPTS)
        if conf := readable_conf(params):
            yield from self._condition_findings(conf)
        for entry_point in (*TRAINING_ENTRY_POINTS.values(), EVALUATION_ENTRY_POINT):
            yield from entry_point_findings(TRAINING_SCRIPTS, entry_point)

    def _condition_findings(self, conf: RunConf) -> Iterator[Finding]:
        """Yield an error if no job of the run measures the metric of `register_when`."""
        if self.evaluation is StageUse.REPLACED:
            return
        trained = [each.name for each in TRAINYARD_METRICS]
        yield from unmeasured_findings(
            conf.condition,
            TEST_METRICS[conf.model] if self.evaluation is StageUse.OWN else trained,
            next_step="use one of these metrics",
        )

    def account_findings(self, params: Mapping[str, Any]) -> Iterable[Finding]:
        """Return the findings on the run's initial weights; bucket, role and data are checked elsewhere."""
        from trainyard_airflow.tasks.end_to_end.initial_weights import init_findings

        return init_findings(self.clients, params, scripts=TRAINING_SCRIPTS)

    def within_quotas(
        self, params: Mapping[str, Any], plan: Any
    ) -> tuple[Mapping[str, Any], Any, list[Finding]]:
        """Return the params and the plan that the account's quotas allow, and the findings on quotas.

        If the quotas do not allow the evaluation's instance type, and `evaluation_place` is `auto`, the returned
        params have `evaluation_place: training`: the training evaluates the test split as its last step.
        """
        from trainyard.planning.evaluation_plan import Place  # a DAG file imports this module
        from trainyard.planning.quota_needs import EVALUATION  # a DAG file imports this module

        conf = self.conf(params)
        findings = list(self.quota_findings(conf))
        lacking = [
            each
            for each in findings
            if each.where == EVALUATION and each.severity is Severity.ERROR
        ]
        if not lacking or conf.evaluation_place != "auto":
            return params, plan, findings
        decided = {**params, "evaluation_place": Place.TRAINING.value}
        try:
            other = self.plan(decided)
        except (SpecError, BudgetExceededError):  # a setting that only a processing job supports
            return params, plan, findings
        reason = f"{other.evaluation.reason}, because the account's quotas lack {lacking[0].got}"
        fallback = Finding(
            where="evaluation_place",
            what="is 'auto', and the quota is too small for a processing job, so the training job evaluates the test "
            "split as its last step",
            got=lacking[0].got,
            allowed=lacking[0].allowed,
            next_step="to use a processing job, request an increase in Service Quotas",
            severity=Severity.WARNING,
        )
        other = replace(
            other, evaluation=replace(other.evaluation, reason=reason, may_fall_back=False)
        )
        return decided, other, [*(each for each in findings if each not in lacking), fallback]

    def quota_findings(self, conf: Any) -> Iterator[Finding]:
        """Yield a finding for each of the account's quotas that is too small for the run."""
        from trainyard.planning.quota_needs import quota_needs  # a DAG file imports this module
        from trainyard_airflow.hooks.quota_check import quota_findings

        yield from quota_findings(self.clients, tuple(quota_needs(conf)))

    def limit_findings(
        self, conf: Any, place: Mapping[str, str], *, ceiling_usd: float | None
    ) -> list[Finding]:
        """Return the findings on the connection's limits that the run's jobs or its maximum cost violate.

        The findings on the images and instance types for serving are included.

        Args:
            conf: the run's conf.
            place: the run's `bucket` and `role`.
            ceiling_usd: the most that the run can cost; None if it is unknown.

        Raises:
            SpecError: the connection's defaults or limits are invalid.
        """
        from trainyard_airflow.tasks.end_to_end.limit_findings import limit_findings

        return [
            *serving_findings(self.clients, conf),
            *limit_findings(self.clients, conf, bucket=place["bucket"], role=place["role"]),
            *self.clients.job_limits.cost_findings(ceiling_usd),
        ]

    def estimate(
        self,
        context: Context,
        conf: Any,
        place: Mapping[str, str],
        *,
        ceiling_usd: float | None,
    ) -> RunEstimate | None:
        """Return the run's estimate from the measurements of earlier runs.

        The result is None if `conf` is not a `BaseRunConf`. An example is the `ComparisonConf` of a run that
        compares several trainings.
        """
        from trainyard.planning.estimate.run_estimate import estimate_run
        from trainyard_airflow.hooks.measurements import measurements_of

        if not isinstance(conf, BaseRunConf):
            return None
        paths = _run_paths(
            context, conf, bucket=place["bucket"], deployment=self.clients.deployment
        )
        history = measurements_of(self.clients.client("s3"), conf, uri=paths.measurements).newest()
        return estimate_run(conf, history=history, ceiling_usd=ceiling_usd)

    def plan_findings(self, conf: Any, estimate: RunEstimate | None) -> list[Finding]:
        """Return the findings on the SageMaker training plans that the entries of the run's capacity ladder name.

        Raises:
            ConnectionError: the service did not answer; the same call may succeed later.
            ThrottledError: the service throttled the call.
        """
        from trainyard_airflow.hooks.training_plans import plan_findings

        if not isinstance(conf, BaseRunConf):
            return []
        jobs = estimate.jobs if estimate else ()
        expected = [each.seconds.expected for each in jobs if each.task_id == TaskId.TRAIN]
        return list(
            plan_findings(
                self.clients,
                conf.rungs,
                needed_s=next(iter(expected), conf.max_run_s),
                reserve_s=conf.stop_reserve_s,
            )
        )

    def team_findings(
        self, context: Context, plan: Any, estimate: RunEstimate | None
    ) -> Iterator[Finding]:
        """Reserve the run's cost in its team's monthly budget; yield a finding if the budget is too small.

        Args:
            context: the task's context.
            plan: the run's plan.
            estimate: the run's estimate, whose upper bound is reserved. Without an estimate in USD, the plan's maximum
                cost is reserved.

        Raises:
            ExpiredCredentialsError: the credentials have expired; the connection may have new ones at the next try.
        """
        from trainyard.cost.team_budget import rejected  # a DAG file imports this module
        from trainyard_airflow.hooks.account_check import asked

        needed = estimate.usd.high if estimate and estimate.usd else plan.ceiling_usd
        try:
            yield from asked(
                lambda: self._reserved(context, needed), where="team's spend", got=None
            )
        except SpecError as error:
            yield from error.findings
        except ExpiredCredentialsError:
            raise
        except RejectedRequestError as error:
            yield rejected(error)

    def _reserved(self, context: Context, needed_usd: float | None) -> list[Finding]:
        """Reserve the run's cost in its team's budget; return a finding if the budget is too small."""
        from trainyard_airflow.hooks.team_spend import TeamSpend, run_spend

        self._spend = run_spend(self.clients, context)
        if not self.clients.job_limits.team_month_usd:
            return []
        return list(TeamSpend(self.clients).reserve(self._spend, needed_usd=needed_usd))

    def _absent_task_findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield a warning for each requested feature that has no task in this DAG."""
        asked = {
            "monitoring": (TaskId.SET_UP_MONITORING, params.get("monitoring")),
            "watch_rules": (TaskId.WATCH_RULES, params.get("watch_rules")),
            "on_rule_error": (TaskId.WATCH_RULES, params.get("on_rule_error", "stop") != "stop"),
            "smoke_hyperparameters": (
                TaskId.SMOKE_TEST,
                params.get("smoke_hyperparameters") is not None,
            ),
            "on_rule_stop": (TaskId.WATCH_RULES, params.get("on_rule_stop")),
            "debugger": (TaskId.WATCH_RULES, params.get("debugger", "own") != "own"),
        }
        for name, (task, is_asked) in asked.items():
            if is_asked and task not in self.downstream_task_ids:
                yield Finding(
                    where=name,
                    what="has no effect in this DAG",
                    next_step="remove it, or use train_end_to_end or train_on_schedule",
                    severity=Severity.WARNING,
                )

    def post_execute(self, context: Context, result: Any = None) -> None:  # noqa: ARG002  # Airflow hands it none
        """Skip the optional tasks that the run's conf does not request."""
        idle = self.idle_tasks(self._result["conf"])
        skipped = [each for each in self.downstream_list if each.task_id in idle]
        if not skipped:
            return
        # `skip` ends the task at once, before Airflow stores its return value.
        context["ti"].xcom_push(key="return_value", value=self._result)
        self.skip(context["ti"], skipped)

    def idle_tasks(self, conf: Mapping[str, Any]) -> set[str]:
        """Return the ids of optional tasks that this conf does not request."""
        is_monitored = Monitoring(**(conf.get("monitoring") or {})).is_on
        asked: Mapping[str, bool] = {
            TaskId.SMOKE_TEST: conf.get("smoke_hyperparameters") is not None,
            TaskId.TUNE: conf.get("tune", False),
            TaskId.SET_UP_MONITORING: is_monitored,
            TaskId.WATCH_RULES: conf["watch_rules"],
        }
        return {task for task, is_asked in asked.items() if not is_asked}

    def _state(
        self, context: Context, conf: Any, plan: Any, place: Mapping[str, str], region: str
    ) -> RunState[Any]:
        self.log_cost(plan, budget_usd=conf.budget_usd, max_cost_usd=conf.max_cost_usd)
        self.log_evaluation(plan)
        return run_state(
            context,
            conf,
            plan=plan.to_dict(),
            place=place,
            region=region,
            deployment=self.clients.deployment,
        )

    def log_evaluation(self, plan: Any) -> None:
        """Log the instance type of the evaluation and the reason for it, or that the run has no evaluation."""
        match self.evaluation:
            case StageUse.OWN:
                self.log.info("The model is measured on %s", self.evaluation_reason(plan))
            case StageUse.REPLACED:
                self.log.info("The model is measured by the task `evaluate` of the DAG's author")
            case StageUse.ABSENT:
                self.log.info("The model is not measured: this DAG has no evaluation")
            case _:
                assert_never(self.evaluation)

    def evaluation_reason(self, plan: Any) -> str:
        """Return the instance type of the evaluation, with the reason for it."""
        return str(plan.evaluation.reason)

    def log_cost(
        self,
        plan: RunPlan | ComparisonPlan | ScriptPlan,
        *,
        budget_usd: float | None,
        max_cost_usd: float | None = None,
    ) -> None:
        """Log the run's maximum cost, its budget and its cap."""
        self.log.info(
            "The run can cost at most: %s (each job once: %s); budget: %s; cap: %s; %s",
            _usd(plan.ceiling_usd, absent="unknown"),
            _usd(plan.once_usd, absent="unknown"),
            _usd(budget_usd, absent="none"),
            _usd(max_cost_usd, absent="none"),
            plan.cost_note,
        )


def run_state(
    context: Context,
    conf: C,
    *,
    plan: Mapping[str, Any],
    place: Mapping[str, str],
    region: str,
    deployment: str | None,
) -> RunState[C]:
    """Return the state of the context's run; `place` has its `bucket` and `role`."""
    paths = _run_paths(context, conf, bucket=place["bucket"], deployment=deployment)
    return RunState(conf=conf, paths=paths, role=place["role"], region=region, plan=plan)


def _run_paths(
    context: Context, conf: BaseRunConf, *, bucket: str, deployment: str | None
) -> RunPaths:
    ti = context["ti"]
    return RunPaths(
        bucket=bucket,
        prefix=conf.prefix,
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        deployment=deployment,
    )


def _usd(amount: float | None, *, absent: str) -> str:
    return absent if amount is None else format_usd(amount)


_UNANSWERED = (ConnectionError, ThrottledError, ExpiredCredentialsError)


class _Findings:
    """Collector of findings and errors, which are reported together."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.over_budget: BudgetExceededError | None = None
        self.unanswered: ConnectionError | ThrottledError | ExpiredCredentialsError | None = None

    @property
    def warnings(self) -> list[Finding]:
        return [each for each in self.found if each.severity is Severity.WARNING]

    @property
    def has_errors(self) -> bool:
        is_error = any(each.severity is Severity.ERROR for each in self.found)
        return is_error or bool(self.over_budget or self.unanswered)

    def add(self, findings: Iterable[Finding]) -> None:
        try:
            self.found += findings
        except _UNANSWERED as error:
            self.unanswered = error

    def result_of(self, make: Callable[[], T]) -> T | None:
        """Return the result of `make`; if it fails with an error to report, store the error and return None.

        These errors are stored; all others are raised:

        - An error with findings.
        - An exceeded budget.
        - A call to AWS that failed because AWS did not answer, because AWS throttled it, or because the
          credentials have expired.
        """
        try:
            return make()
        except FindingsError as error:
            self.found += error.findings
        except BudgetExceededError as error:
            self.over_budget = error
        except _UNANSWERED as error:
            self.unanswered = error
        return None

    def of_events(self, given: Mapping[str, Any], *, form: Form) -> dict[str, Any]:
        """Return the params of asset events without those that the form rejects; add findings on the rejected params.

        Unknown params are returned too, because a later check rejects them by name.
        """
        if not given:
            return {}
        correct, params = "correct the extra of the asset event", form.params()
        refused = {
            name: list(value_findings(name, params[name].schema, value)) if name in params else []
            for name, value in given.items()
        }
        for findings in refused.values():
            self.add(replace(each, next_step=correct) for each in findings)
        return {name: value for name, value in given.items() if not refused[name]}

    def of_connection(self, clients: AwsClients) -> str | None:
        """Return the AWS region of the connection.

        The result is None if the region cannot be determined. The error is then stored in this collector.
        """
        from trainyard_airflow.hooks.account_check import asked

        got = clients.connection.aws_conn_id
        return self.result_of(lambda: asked(lambda: clients.region, where="AWS region", got=got))

    def of_account(
        self, clients: AwsClients, params: Mapping[str, Any], *, unwritten: bool = False
    ) -> dict[str, str]:
        """Return the run's `bucket` and `role`, each empty if it is unknown.

        The bucket, the role, the data, the tokenizer and the topic for notifications are checked in AWS, and the
        findings are stored. Values that already have a finding are not checked.

        Args:
            clients: clients of the run's connection.
            params: the run's params.
            unwritten: whether a task of the DAG's author may write the data later; findings on
                the data are then warnings.
        """
        from trainyard_airflow.hooks import account_check
        from trainyard_airflow.hooks.bucket_claim import claim_bucket

        self.result_of(lambda: clients.job_defaults)
        self.result_of(lambda: clients.job_limits)
        wrong = {each.where for each in self.found}
        right = {name: params.get(name) for name in _PLACES if name not in wrong}
        bucket = role = None
        if "bucket" in right:
            bucket = self.result_of(lambda: clients.bucket(right["bucket"]))
        if "role" in right:
            ask_role = partial(clients.execution_role, right["role"])
            role = self.result_of(
                lambda: account_check.asked(ask_role, where="role", got=right["role"])
            )
        if bucket:
            known = len(self.found)
            self.add(account_check.bucket_findings(clients, bucket))
            if len(self.found) == known:
                claim = partial(claim_bucket, clients, bucket)
                self.result_of(lambda: account_check.asked(claim, where="bucket", got=bucket))
        if role:
            self.add(account_check.role_findings(clients, role))
        severity = {"severity": Severity.WARNING} if unwritten else {}
        for where, source in sources_in(params).items():
            if where not in wrong:
                missing = account_check.source_findings(clients, source, where=where)
                self.add(replace(each, **severity) for each in missing)
        if right.get("tokenizer"):
            self.add(account_check.tokenizer_findings(clients, str(right["tokenizer"])))
        if notifications := right.get("notifications"):
            self.add(_topic_findings(clients, notifications))
        return {"bucket": bucket or "", "role": role or ""}

    def raise_errors(self, *, subject: str) -> None:
        """Raise an error if a check failed or could not be completed.

        Raises:
            SpecError: at least one finding is an error; it lists all findings.
            BudgetExceededError: no finding is an error, but the run could cost more than its budget.
            ConnectionError: no finding is an error, but AWS did not answer all checks.
            ThrottledError: no finding is an error, but AWS throttled a check.
            ExpiredCredentialsError: no finding is an error, but the credentials have expired.
        """
        if any(each.severity is Severity.ERROR for each in self.found):
            more = (
                [
                    Finding(
                        where="AWS",
                        what=str(self.unanswered),
                        next_step="clear preflight later, to complete the checks",
                    )
                ]
                if self.unanswered
                else []
            )
            if self.over_budget:
                more.append(Finding(where="budget_usd", what=self.over_budget.what))
            raise SpecError([*self.found, *more], subject=subject)
        if self.over_budget or self.unanswered:
            raise self.over_budget or self.unanswered  # type: ignore[misc]  # one of them is there


def _topic_findings(clients: AwsClients, notifications: Mapping[str, Any]) -> Iterable[Finding]:
    """Return the findings on the SNS topic of `notifications`.

    If `notifications` is invalid, the result is empty, because the run's plan reports that fault.
    """
    from trainyard_airflow.hooks import account_check

    try:
        spec = read_spec(Notifications, notifications)
    except SpecError:
        return ()
    return account_check.topic_findings(clients, spec)


def triggering_params(context: Context) -> dict[str, Any]:
    """Return the params in the extras of the asset events that started the run.

    Later events override earlier ones. An event may have the address of new data in its extra:
    `{"source": "s3://..."}`. Unknown keys are not dropped, so that the check of the params can report a
    misspelled key by its name. A run that a person starts has no asset events, so these params never override a
    person's conf.
    """
    events = context.get("triggering_asset_events") or {}
    extras = [event.extra or {} for each in events.values() for event in each]
    return {
        key: value for extra in extras for key, value in extra.items() if key not in _OF_AIRFLOW
    }
