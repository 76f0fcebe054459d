"""Monitor of one run: triggers it, displays it until it ends, and prints its summary."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import requests

from trainyard.errors import RejectedRequestError
from trainyard.stack.following import RunFollower, RunView
from trainyard.stack.outcome import (
    explain_failures,
    fetch_report,
    find_unsettled,
    summary,
    unsettled_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainyard.stack.airflow_api import AirflowApi
    from trainyard.stack.aws import AwsEndpoint
    from trainyard.stack.display import Display

POLL_S = 1.0
STOP_JOBS_LIMIT_S = 15.0


class RunMonitor:
    """One run of one DAG, from trigger to summary."""

    def __init__(
        self,
        *,
        api: AirflowApi,
        aws: AwsEndpoint,
        display: Display,
        dag_id: str,
        reports: Path,
        keep_alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a monitor of one run that is not triggered yet.

        `reports` is the folder to which reports are downloaded. `keep_alive` is called before each
        poll; it restarts dead components of the stack, or raises an error if the stack has stopped.
        """
        self._api = api
        self._aws = aws
        self._display = display
        self._dag_id = dag_id
        self._reports = reports
        self._keep_alive = keep_alive

    def run(self, conf: Mapping[str, Any]) -> int:
        """Run the DAG with `conf`, and return the exit code.

        The code is 0 if the run succeeded and left nothing that is still billed, otherwise 1.

        Raises a RejectedRequestError if Airflow rejects the conf; nothing was started in that case.
        """
        self._api.set_paused(self._dag_id, paused=False)
        run_id = self._api.trigger(self._dag_id, conf=conf)
        self._display.print_line(f"started {self._dag_id} {run_id}")
        try:
            view = self._follow(run_id)
        except BaseException:
            self._give_up(run_id)
            raise
        return self._conclude(view)

    def _follow(self, run_id: str) -> RunView:
        follower: RunFollower | None = None
        while True:
            self._keep_alive()
            with suppress(requests.RequestException):  # the api-server is restarting
                follower = follower or RunFollower(
                    api=self._api, aws=self._aws, dag_id=self._dag_id, run_id=run_id
                )
                view = follower.poll()
                self._display.show(view)
                if view.is_finished:
                    return view
            time.sleep(POLL_S)

    def _give_up(self, run_id: str) -> None:
        """Fail the run after an error or interrupt, and wait up to 15 s while its tasks stop their jobs."""
        self._display.print_line(f"ending {run_id}")
        with suppress(requests.RequestException, RejectedRequestError):
            self._api.fail_run(self._dag_id, run_id)
            deadline = time.monotonic() + STOP_JOBS_LIMIT_S
            while self._has_live_tasks(run_id) and time.monotonic() < deadline:
                time.sleep(POLL_S)

    def _has_live_tasks(self, run_id: str) -> bool:
        states = {task["state"] for task in self._api.tasks(self._dag_id, run_id)}
        return bool(states & {"running", "deferred", "queued", "restarting"})

    def _conclude(self, view: RunView) -> int:
        for line in explain_failures(self._api, self._dag_id, view):
            self._display.print_line(line)
        report = fetch_report(self._api, self._aws, self._dag_id, view.run_id, to=self._reports)
        for line in summary(view, report):
            self._display.print_line(line)
        unsettled = find_unsettled(self._api, self._aws, self._dag_id, view.run_id)
        for line in unsettled_lines(unsettled):
            self._display.print_line(line)
        return 0 if view.state == "success" and not unsettled else 1
