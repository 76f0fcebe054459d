"""`chaos`: one run of the DAG on a separate stack while faults occur, and the audit of this run.

A seed determines the schedule of the faults.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from chaos import audit
from chaos.engine_faults import EngineFaults
from chaos.fault_injector import FaultInjector
from chaos.jobs import ChaosEndpoint
from chaos.schedule import Strike, draw
from chaos.story import job_lines, story
from trainyard.errors import TrainingRunError
from trainyard.stack.aws import AwsEndpoint
from trainyard.stack.display import Display, display_for
from trainyard.stack.home import Home
from trainyard.stack.run import DAG_ID, bring_up
from trainyard.stack.run_monitor import RunMonitor
from trainyard.stack.stack import Stack, is_engine_ready
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from trainyard.stack.airflow_api import AirflowApi
    from trainyard.stack.following import RunView

LEAST_STEPS = 50
CHAOS_CONF: dict[str, Any] = {
    "use_spot_instances": True,
    "max_run_s": 1800,
    "max_wait_s": 3600,
    "max_source_bytes": 2_000_000,
    "validation_fraction": 0.1,
    "test_fraction": 0.1,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_size": 64,
    "sequence_length": 128,
    "max_steps": 600,
    "warmup_steps": 60,
    "eval_interval": 200,
    "checkpoint_interval": 25,
    "heartbeat_timeout_s": 45,
    "max_retry_attempts": 0,  # a lost host ends the job, and the test is whether the run survives that
    "hyperparameters": {"log_interval": 1},
}
"""Conf of the run: a real training on spot capacity, with enough steps for strikes, and short enough to watch."""


def chaos(home: Home, *, seed: int, conf: Mapping[str, Any], console: Console) -> int:
    """Run the DAG once under the seed's faults; return 0 if all checks of the audit pass, otherwise 1.

    The stack has its own home beside `home`, because its engine stores faults that must not affect other runs.

    Raises:
        TrainingRunError: `max_steps` is below `LEAST_STEPS`, or the stack does not start.
    """
    conf = {**CHAOS_CONF, **conf}
    if (steps := int(conf["max_steps"])) < LEAST_STEPS:
        raise TrainingRunError(
            "the training is too short to inject faults",
            where="max_steps",
            got=steps,
            allowed=f"at least {LEAST_STEPS}",
            next_step="raise max_steps in the conf",
        )
    strikes = draw(seed, max_steps=steps)
    own = Home(path=home.path.with_name(f"{home.path.name}-chaos"), project=home.project)
    with display_for(console) as display:
        display.print_line(f"seed {seed} draws {len(strikes)} strikes:")
        for strike in strikes:
            display.print_line(f"  {strike}")
        checks = _struck_run(own, strikes=strikes, conf=conf, display=display)
        checks.append(audit.check_processes(own))
        for line in ("", f"chaos, seed {seed}", *audit.check_lines(checks)):
            display.print_line(line)
    return 0 if all(check.holds for check in checks) else 1


def _struck_run(
    home: Home, *, strikes: Sequence[Strike], conf: Mapping[str, Any], display: Display
) -> list[audit.AuditCheck]:
    """Run the DAG once under the scheduled faults (`strikes`).

    Return the results of the audit's checks that need the running stack.
    """
    stack = Stack(home, print_line=display.print_line)
    try:
        api = bring_up(stack, dag_id=DAG_ID, display=display)
        url = stack.addresses.engine
        endpoint, faults = ChaosEndpoint(url), EngineFaults(url)
        faults.clear()
        fault_injector = FaultInjector(
            strikes,
            home=home,
            faults=faults,
            step=endpoint.training_step,
            print_line=display.print_line,
        )
        watched = WatchedDisplay(display, fault_injector)
        monitor = RunMonitor(
            api=api,
            aws=AwsEndpoint(url),
            display=watched,
            dag_id=DAG_ID,
            reports=home.reports,
            keep_alive=stack.check,
        )
        began_at = time.time()
        with fault_injector:
            monitor.run(conf)
        stack.wait_until(lambda: is_engine_ready(url), what="the engine's answer")
        return _audited(home, api, watched, endpoint, faults, began_at=began_at)
    finally:
        display.print_line("stopping")
        stack.stop()


def _audited(
    home: Home,
    api: AirflowApi,
    watched: WatchedDisplay,
    endpoint: ChaosEndpoint,
    faults: EngineFaults,
    *,
    began_at: float,
) -> list[audit.AuditCheck]:
    fired = faults.fired()
    faults.clear()
    view, fault_injector, jobs = watched.last, watched.fault_injector, endpoint.jobs(since=began_at)
    assert view is not None  # noqa: S101  # a run that has ended was seen
    tries = {task.task_id: task.try_number for task in view.tasks}
    strike_lines = story(
        fault_injector.blows, endpoint.marks(jobs), fired, began_at=began_at, tries=tries
    )
    for line in (
        "",
        "the strikes, their times and their costs",
        *strike_lines,
        "jobs",
        *job_lines(jobs),
    ):
        watched.print_line(line)
    prepared = api.xcom(DAG_ID, view.run_id, TaskId.PREFLIGHT, "return_value") or {}
    ledger = endpoint.ledger(str(prepared["ledger_uri"])) if prepared else []
    report = home.reports / view.run_id.replace("/", "_")
    return [
        audit.check_strikes(fault_injector.pending),
        audit.check_run(view.state),
        audit.check_jobs(jobs),
        audit.check_ledger(ledger, jobs),
        audit.check_continuity(report, home.project),
        audit.check_rules(report),
    ]


class WatchedDisplay:
    """Wrapper of another display; `last` is the last shown view, or None."""

    def __init__(self, display: Display, fault_injector: FaultInjector) -> None:
        self._display = display
        self.fault_injector = fault_injector
        self.last: RunView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, view: RunView) -> None:
        """Show a view of the run, and pass it to the fault injector."""
        self.last = view
        self.fault_injector.note(view)
        self._display.show(view)

    def print_line(self, line: str) -> None:
        """Print a line that later views do not replace."""
        self._display.print_line(line)
