"""The first task: everything that can be wrong is looked at and reported together, before anything is paid."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import SkipMixin

from trainyard.errors import (
    BudgetExceededError,
    Finding,
    FindingsError,
    RejectedRequestError,
    Severity,
    SpecError,
    ThrottledError,
)
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.specs.base_run_conf import BaseRunConf
from trainyard.specs.monitoring import Monitoring, Notifications
from trainyard.specs.reading import read_spec
from trainyard.task_ids import TaskId
from trainyard.units import format_usd
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.operators.source_check import entry_point_findings
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.tasks.end_to_end.cost_approval import ask_for_approval, check_approval
from trainyard_airflow.tasks.end_to_end.jobs import (
    EVALUATION_ENTRY_POINT,
    TRAINING_ENTRY_POINTS,
)
from trainyard_airflow.tasks.end_to_end.lint import params_findings
from trainyard_airflow.tasks.end_to_end.params import run_params
from trainyard_airflow.tasks.end_to_end.script_findings import run_script_findings
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState
from trainyard_airflow.tasks.shared.schema_findings import value_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from airflow.sdk import Context, Param

    from trainyard.cost.team_budget import RunSpend
    from trainyard.planning.auto_plan import AutoChoice
    from trainyard.planning.comparison_plan import ComparisonPlan
    from trainyard.planning.estimate.run_estimate import RunEstimate
    from trainyard.planning.run_plan import RunPlan
    from trainyard.planning.script_plan import ScriptPlan
    from trainyard_airflow.hooks.aws_clients import AwsClients

T = TypeVar("T")
C = TypeVar("C", bound="BaseRunConf")

_PLACES = ("bucket", "role", "source", "tokenizer", "notifications")
# What Airflow itself puts into an event's extra: the REST API, and a trigger with its payload.
_OF_AIRFLOW = {"from_rest_api", "from_trigger", "payload"}


@retried_by_error
class PreflightOperator(ConnectedOperator, SkipMixin):
    """Checks a run's conf, code, account and data, and fixes what holds for the whole run.

    The search of a run that has none is skipped from here: no worker is started for it.

    Returns the `RunState`, with the plan and its cost ceiling beside the budget.
    """

    ui_color = "#fdf6e3"

    def __init__(
        self,
        *,
        more_findings: Callable[[Mapping[str, Any]], Iterable[Finding]] | None = None,
        **kwargs: Any,
    ) -> None:
        """`more_findings` yields what of the run's params this DAG cannot do."""
        super().__init__(**{**RETRIES, **kwargs})
        self.more_findings = more_findings
        self._result: dict[str, Any] = {}
        self._spend: RunSpend | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the run's state.

        Raises:
            SpecError: everything that is wrong, at once.
            BudgetExceededError: nothing is wrong, but the run could cost more than its budget.
            ConnectionError: nothing is wrong, but AWS did not answer: another try may succeed.
            ThrottledError: likewise, AWS asked to slow down.
            TaskAwaitingInput: a person is asked to approve the cost; `execute_approved` resumes.
        """
        found = _Findings()
        params = {
            **context["params"],
            **found.of_events(triggering_params(context), form=self.form),
        }
        resolved = found.result_of(lambda: self.resolve(params))
        params, auto = resolved or (params, None)
        plan = found.result_of(lambda: self.plan(params)) if resolved else None
        region = found.of_connection(self.clients)
        if plan and region:
            plan, short = self.within_quotas(params, plan)
            params = {**params, **_decided(plan)}
            found.add(short)
        found.add(self.findings(params))
        found.add(self.more_findings(params) if self.more_findings else ())
        found.add(self._absent_task_findings(params))
        place = found.of_account(self.clients, params) if region else {}
        if region:
            found.add(self._deployment_findings())
            found.add(self.account_findings(params))
        estimate = None
        if plan and all(place.values()):
            found.add(found.result_of(lambda: self.limit_findings(plan, place)) or ())
            if not found.has_errors:
                estimate = self.estimate(context, plan, place)
                found.add(self.team_findings(context, plan, estimate))
        if plan:
            plan = replace(plan, warnings=(*plan.warnings, *found.warnings))
        for warning in plan.warnings if plan else found.warnings:
            self.log.warning("%s", warning)
        found.raise_errors(subject=f"{context['ti'].dag_id} run {context['ti'].run_id}")
        assert plan is not None and region is not None  # noqa: S101, PT018  # else there was an error
        self._result = self._state(context, plan, place, region).to_dict()
        self._result["team"] = self._spend.team if self._spend else None
        self._result["team_month"] = self._spend.month if self._spend else None
        if auto:
            self._result["plan"]["auto"] = auto.to_dict()
        if estimate:
            self.log.info("Estimate: %s", estimate)
            self._result["plan"]["estimate"] = estimate.to_dict()
            ask_for_approval(
                context, plan.conf, estimate, then="execute_approved", result=self._result
            )
        return self._result

    def execute_approved(
        self,
        context: Context,  # noqa: ARG002  # as Airflow resumes a task
        event: Mapping[str, Any],
        result: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the run's state if a person approved its cost.

        Raises:
            BudgetExceededError: the person rejected it, or nobody answered in time.
        """
        check_approval(event, result)
        self.log.info("The run's cost is approved")
        self._result = result
        return result

    def form(self) -> Mapping[str, Param]:
        """Return the params that the run's form has."""
        return run_params()

    def resolve(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice | None]:
        """Return the params with the planner's choices in the place of "auto", and log them with the reasons.

        Raises:
            SpecError: they are nothing that can be planned.
            PlanError: no cluster can do it.
        """
        from trainyard.planning.auto_plan import resolve_auto  # a DAG file imports this module

        resolved, choice = resolve_auto(params)
        for name, value in (choice.chosen if choice else {}).items():
            self.log.info("auto: %s = %s", name, value)
        for reason in choice.reasons if choice else ():
            self.log.info("auto: %s", reason)
        return resolved, choice

    def plan(self, params: Mapping[str, Any]) -> Any:
        """Return the plan of a run with these params.

        Raises:
            SpecError: what is wrong with them, at once.
            BudgetExceededError: the run could cost more than its budget.
        """
        from trainyard.planning.run_plan import plan_run  # a DAG file imports this module

        return plan_run(params, job_attempts=JOB_RETRIES + 1)

    def findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield what of the run's jobs and scripts a plan does not look at."""
        yield from params_findings(params)
        scripts = TRAINING_SCRIPTS
        for entry_point in (*TRAINING_ENTRY_POINTS.values(), EVALUATION_ENTRY_POINT):
            yield from entry_point_findings(scripts, entry_point)
        yield from run_script_findings(params, scripts=scripts)

    def account_findings(self, params: Mapping[str, Any]) -> Iterable[Finding]:  # noqa: ARG002  # for subclasses
        """Return what the account lacks beside bucket, role and data; nothing here."""
        return ()

    def within_quotas(self, params: Mapping[str, Any], plan: Any) -> tuple[Any, list[Finding]]:
        """Return the plan that the account's quotas allow, with the findings of that.

        If they lack the type that was chosen for the evaluation, and the conf leaves its place open, the training
        measures the test split as its last step.
        """
        from trainyard.planning.evaluation_plan import Place  # a DAG file imports this module
        from trainyard.planning.quota_needs import EVALUATION  # a DAG file imports this module

        findings = list(self.quota_findings(plan))
        lacking = [each for each in findings if each.where == EVALUATION]
        if not lacking or plan.conf.evaluation_place != "auto":
            return plan, findings
        try:
            other = self.plan({**params, "evaluation_place": Place.TRAINING.value})
        except (SpecError, BudgetExceededError):  # the conf asks for what only a job of its own has
            return plan, findings
        reason = f"{other.evaluation.reason}, since the account's quotas lack {lacking[0].got}"
        told = Finding(
            where="evaluation_place",
            what="was auto: the training measures the test split as its last step",
            got=str(lacking[0].got),
            allowed=lacking[0].allowed,
            next_step="ask for an increase in Service Quotas to have a processing job measure it",
            severity=Severity.WARNING,
        )
        other = replace(
            other, evaluation=replace(other.evaluation, reason=reason, may_fall_back=False)
        )
        return other, [*(each for each in findings if each not in lacking), told]

    def quota_findings(self, plan: Any) -> Iterator[Finding]:
        """Yield the account's quotas that are too small for the run."""
        from trainyard.planning.quota_needs import quota_needs  # a DAG file imports this module
        from trainyard_airflow.hooks.quota_check import quota_findings

        yield from quota_findings(self.clients, tuple(quota_needs(plan.conf)))

    def limit_findings(self, plan: Any, place: Mapping[str, str]) -> list[Finding]:
        """Return what of the run's jobs and cost is beyond the connection's limits.

        Raises:
            SpecError: the connection's defaults or limits cannot be read.
        """
        from trainyard_airflow.tasks.end_to_end.limit_findings import limit_findings

        return [
            *limit_findings(self.clients, plan.conf, bucket=place["bucket"], role=place["role"]),
            *self.clients.job_limits.cost_findings(plan.ceiling_usd),
        ]

    def estimate(self, context: Context, plan: Any, place: Mapping[str, str]) -> RunEstimate | None:
        """Return the estimate of the run by earlier ones; None of a run with several trainings, or without one."""
        from trainyard.planning.estimate.run_estimate import estimate_run
        from trainyard_airflow.hooks.measurements import measurements_of

        conf = plan.conf
        if not isinstance(conf, BaseRunConf):
            return None
        paths = _run_paths(
            context, conf, bucket=place["bucket"], deployment=self.clients.deployment
        )
        history = measurements_of(self.clients.client("s3"), conf, uri=paths.measurements).newest()
        return estimate_run(conf, history=history, ceiling_usd=plan.ceiling_usd)

    def team_findings(
        self, context: Context, plan: Any, estimate: RunEstimate | None
    ) -> Iterator[Finding]:
        """Yield that the run does not fit into its team's budget of the month; else it takes its part of that.

        Args:
            context: the task's.
            plan: of the run.
            estimate: of the run; without one its ceiling counts.
        """
        from trainyard.cost.team_budget import rejected  # a DAG file imports this module
        from trainyard_airflow.hooks.account_check import asked

        needed = plan.ceiling_usd
        if estimate:
            needed = estimate.usd.high if estimate.usd else None
        try:
            yield from asked(
                lambda: self._reserved(context, needed), where="team's spend", got=None
            )
        except SpecError as error:
            yield from error.findings
        except RejectedRequestError as error:
            yield rejected(error)

    def _reserved(self, context: Context, needed_usd: float | None) -> list[Finding]:
        """Reserve the run's part, and return why it cannot be."""
        from trainyard_airflow.hooks.team_spend import TeamSpend, run_spend

        self._spend = run_spend(self.clients, context)
        if not self.clients.job_limits.team_month_usd:
            return []
        return list(TeamSpend(self.clients).reserve(self._spend, needed_usd=needed_usd))

    def _deployment_findings(self) -> Iterator[Finding]:
        """Yield that the run's jobs have the names of another Airflow's, if the connection names no deployment."""
        if self.clients.deployment is None:
            yield Finding(
                where="the connection's extra, trainyard.deployment",
                what="is not set: another Airflow without one on this account takes this run's jobs for its own",
                next_step='set it to a name of this Airflow, such as {"trainyard": {"deployment": "staging"}}',
                severity=Severity.WARNING,
            )

    def _absent_task_findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield what is asked for beside the training, and has no task in this DAG."""
        asked = {
            "monitoring": (TaskId.SET_UP_MONITORING, params.get("monitoring")),
            "watch_rules": (TaskId.WATCH_RULES, params.get("watch_rules")),
            "on_rule_error": (TaskId.WATCH_RULES, params.get("on_rule_error", "stop") != "stop"),
            "on_rule_stop": (TaskId.WATCH_RULES, params.get("on_rule_stop")),
            "debugger": (TaskId.WATCH_RULES, params.get("debugger", "own") != "own"),
        }
        for name, (task, is_asked) in asked.items():
            if is_asked and task not in self.downstream_task_ids:
                yield Finding(
                    where=name,
                    what="is not done by this DAG",
                    allowed="train_end_to_end, train_on_schedule",
                    severity=Severity.WARNING,
                )

    def post_execute(self, context: Context, result: Any = None) -> None:  # noqa: ARG002  # Airflow hands it none
        """Skip the search of a run that has none, and what it does not ask for beside its training."""
        idle = self.idle_tasks(self._result["conf"])
        skipped = [each for each in self.downstream_list if each.task_id in idle]
        if not skipped:
            return
        # Skipping ends the task here and now, before Airflow keeps what it returned.
        context["ti"].xcom_push(key="return_value", value=self._result)
        self.skip(context["ti"], skipped)

    def idle_tasks(self, conf: Mapping[str, Any]) -> set[str]:
        """Return the tasks that a run with this conf does not ask for."""
        is_monitored = Monitoring(**(conf.get("monitoring") or {})).is_on
        asked: Mapping[str, bool] = {
            TaskId.TUNE: conf.get("tune", False),
            TaskId.SET_UP_MONITORING: is_monitored,
            TaskId.WATCH_RULES: conf["watch_rules"],
        }
        return {task for task, is_asked in asked.items() if not is_asked}

    def _state(
        self, context: Context, plan: Any, place: Mapping[str, str], region: str
    ) -> RunState[Any]:
        self.tell_cost(plan, budget_usd=plan.conf.budget_usd, max_cost_usd=plan.conf.max_cost_usd)
        self.log_evaluation(plan)
        return run_state(
            context,
            plan.conf,
            plan=plan.to_dict(),
            place=place,
            region=region,
            deployment=self.clients.deployment,
        )

    def log_evaluation(self, plan: Any) -> None:
        """Log the type that measures the model, and why."""
        self.log.info("The test split is measured on %s", plan.evaluation.reason)

    def tell_cost(
        self,
        plan: RunPlan | ComparisonPlan | ScriptPlan,
        *,
        budget_usd: float | None,
        max_cost_usd: float | None = None,
    ) -> None:
        """Log what the run can cost at most."""
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
    """Return the state of the run that the task belongs to."""
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


def _decided(plan: Any) -> dict[str, Any]:
    """Return the place of the evaluation if a plan has decided it against the params."""
    conf = getattr(plan, "conf", None)
    place = getattr(conf, "evaluation_place", "auto")
    return {} if place == "auto" else {"evaluation_place": place}


def _usd(amount: float | None, *, absent: str) -> str:
    return absent if amount is None else format_usd(amount)


class _Findings:
    """Collects what is wrong, so that all of it is reported at once."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.over_budget: BudgetExceededError | None = None
        self.unanswered: ConnectionError | ThrottledError | None = None

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
        except (ConnectionError, ThrottledError) as error:
            self.unanswered = error

    def result_of(self, make: Callable[[], T]) -> T | None:
        """Return what `make` returns; None when it found faults, which are kept."""
        try:
            return make()
        except FindingsError as error:
            self.found += error.findings
        except BudgetExceededError as error:
            self.over_budget = error
        except (ConnectionError, ThrottledError) as error:
            self.unanswered = error
        return None

    def of_events(
        self, given: Mapping[str, Any], *, form: Callable[[], Mapping[str, Param]]
    ) -> dict[str, Any]:
        """Return those params of asset events that the form would accept; the others are findings."""
        if not given:
            return {}
        correct, params = "correct the extra of the asset event", form()
        refused = {
            name: list(value_findings(name, params[name].schema, value)) if name in params else []
            for name, value in given.items()
        }
        for findings in refused.values():
            self.add(replace(each, next_step=correct) for each in findings)
        return {name: value for name, value in given.items() if not refused[name]}

    def of_connection(self, clients: AwsClients) -> str | None:
        """Return the region; None when the connection names none or cannot be read."""
        from trainyard_airflow.hooks.account_check import asked

        got = clients.connection.aws_conn_id
        return self.result_of(lambda: asked(lambda: clients.region, where="AWS region", got=got))

    def of_account(self, clients: AwsClients, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the run's bucket and role, having looked at both, the data source and the tokenizer.

        A value that is wrong in itself is not looked for.
        """
        from trainyard_airflow.hooks import account_check

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
            self.add(account_check.bucket_findings(clients, bucket))
        if role:
            self.add(account_check.role_findings(clients, role))
        if right.get("source"):
            self.add(account_check.source_findings(clients, str(right["source"])))
        if right.get("tokenizer"):
            self.add(account_check.tokenizer_findings(clients, str(right["tokenizer"])))
        if told := right.get("notifications"):
            self.add(_topic_findings(clients, told))
        return {"bucket": bucket or "", "role": role or ""}

    def raise_errors(self, *, subject: str) -> None:
        """Raise what was found, if any of it is an error.

        Raises:
            SpecError: the findings.
            BudgetExceededError: there are none, but the run could cost too much.
            ConnectionError: there are none, but not everything could be looked at.
            ThrottledError: likewise.
        """
        if any(each.severity is Severity.ERROR for each in self.found):
            more = [Finding(where="AWS", what=str(self.unanswered))] if self.unanswered else []
            if self.over_budget:
                more.append(Finding(where="budget_usd", what=self.over_budget.what))
            raise SpecError([*self.found, *more], subject=subject)
        if self.over_budget or self.unanswered:
            raise self.over_budget or self.unanswered  # type: ignore[misc]  # one of them is there


def _topic_findings(clients: AwsClients, notifications: Mapping[str, Any]) -> Iterable[Finding]:
    """Return what is wrong with the topic; nothing of notifications that are wrong in themselves."""
    from trainyard_airflow.hooks import account_check

    try:
        told = read_spec(Notifications, notifications)
    except SpecError:
        return ()
    return account_check.topic_findings(clients, told)


def triggering_params(context: Context) -> dict[str, Any]:
    """Return the params that came with the asset events that started the run, the last event's winning.

    Whoever announces new data may say where it is: `{"source": "s3://..."}` in the event's extra. A
    key that is no param stays, so that a misspelt one is refused by name. A conf given by hand
    starts no run through an asset, so nothing is overridden behind its author's back.
    """
    events = context.get("triggering_asset_events") or {}
    extras = [event.extra or {} for each in events.values() for event in each]
    return {
        key: value for extra in extras for key, value in extra.items() if key not in _OF_AIRFLOW
    }
