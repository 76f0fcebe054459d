"""`run`: trigger one run of a DAG, follow it until its report, and leave no process behind."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard.stack.airflow_api import AirflowApi
from trainyard.stack.aws import AwsEndpoint
from trainyard.stack.display import Display, display_for
from trainyard.stack.identity import load_or_create
from trainyard.stack.run_monitor import RunMonitor
from trainyard.stack.stack import Stack, read_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from trainyard.stack.home import Home

DAG_ID = "train_end_to_end"


def run(home: Home, *, conf: Mapping[str, Any], console: Console, dag_id: str = DAG_ID) -> int:
    """Run the DAG once with `conf`, and return the exit code: 0 on success, otherwise 1.

    The run uses the stack that is up. If none is up, a temporary stack is started, and stopped at
    the end in any case.

    Raises a TrainingRunError if the stack does not start or the conf is rejected.
    """
    with display_for(console) as display:
        if (record := read_record(home)) is not None and record.purpose == "up":
            display.print_line(f"using the stack that is up at {record.ui}")
            api = AirflowApi(record.ui, password=load_or_create(home).password)
            aws = AwsEndpoint(record.engine)
            return RunMonitor(
                api=api,
                aws=aws,
                display=display,
                dag_id=dag_id,
                reports=home.reports,
                keep_alive=partial(_require_stack, home),
            ).run(conf)
        return _run_in_own_stack(home, conf=conf, display=display, dag_id=dag_id)


def _require_stack(home: Home) -> None:
    if read_record(home) is None:
        raise TrainingRunError(
            "the stack stopped during the run",
            where=str(home.logs),
            next_step="continue it with 'make up', and clear the failed tasks of the run; or start a new run with "
            "'make run'",
        )


def _run_in_own_stack(home: Home, *, conf: Mapping[str, Any], display: Display, dag_id: str) -> int:
    stack = Stack(home, print_line=display.print_line)
    try:
        api = bring_up(stack, dag_id=dag_id, display=display)
        monitor = RunMonitor(
            api=api,
            aws=AwsEndpoint(stack.addresses.engine),
            display=display,
            dag_id=dag_id,
            reports=home.reports,
            keep_alive=stack.check,
        )
        return monitor.run(conf)
    finally:
        display.print_line("stopping")
        stack.stop()


def bring_up(stack: Stack, *, dag_id: str, display: Display) -> AirflowApi:
    """Start the stack, wait until the DAG can be run, and return a client of its Airflow.

    Raises a TrainingRunError if the stack does not start or the DAG cannot be imported.
    """
    started_at = time.monotonic()
    display.print_line(f"starting the engine and Airflow (logs in {stack.home.logs})")
    stack.start()
    api = stack.api
    stack.wait_until(lambda: api.health() is not None, what="the api-server's first response")
    stack.wait_until(lambda: is_triggerable(api, dag_id), what=f"Airflow to parse the DAG {dag_id}")
    display.print_line(f"ready after {time.monotonic() - started_at:.0f} s: {stack.addresses.ui}")
    _close_old_runs(api, dag_id, display)
    return api


def is_triggerable(api: AirflowApi, dag_id: str) -> bool:
    """Return whether Airflow has parsed the DAG.

    Raises:
        TrainingRunError: Airflow does not have the DAG, and a DAG file cannot be imported.
    """
    if api.has_dag(dag_id):
        return True
    if errors := api.import_errors():
        raise TrainingRunError(
            "a DAG file cannot be imported",
            where=", ".join(str(error["filename"]) for error in errors),
            got="\n".join(str(error["stack_trace"]) for error in errors),
            next_step="fix the file",
        )
    return False


def _close_old_runs(api: AirflowApi, dag_id: str, display: Display) -> None:
    """Mark unfinished runs of earlier sessions as failed, because they would compete with the new run."""
    for run_id in api.unfinished_runs(dag_id):
        display.print_line(f"{run_id} was left unfinished by an earlier session; marked failed")
        api.fail_run(dag_id, run_id)
