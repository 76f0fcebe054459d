"""The thread that carries all AutoML jobs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.automl.rounds import AutoMLSearch
from sagemaker_engine.automl.tables import SECONDARY_KEY, STATUS_KEY, AutoMLRow
from sagemaker_engine.search_thread import SearchThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.automl.rounds import AutoMLPorts


class Driver(SearchThread[AutoMLRow]):
    """Carries on every AutoML job that has not ended."""

    def __init__(self, ports: AutoMLPorts) -> None:
        super().__init__(name="automl", noun="AutoML job")
        self._ports = ports

    def _running(self) -> Sequence[AutoMLRow]:
        return self._ports.tables.running()

    def _request_stop(self, row: AutoMLRow) -> None:
        self._ports.tables.change(row.name, note_stop, at=self._ports.clock(), stop=True)

    def _round(self, row: AutoMLRow) -> None:
        AutoMLSearch(ports=self._ports, row=row).advance()

    def _give_up(self, row: AutoMLRow, *, reason: str) -> None:
        now = self._ports.clock()
        outcome = {STATUS_KEY: "Failed", SECONDARY_KEY: "Failed", "FailureReason": reason}

        def change(state: dict[str, Any]) -> None:
            state.update({**outcome, "EndTime": now})

        self._ports.tables.change(row.name, change, at=now)
        for step in self._ports.tables.steps(row.arn):
            if step.result is None:
                self._ports.stop_job(step.kind.job_kind, step.job_name)


def note_stop(state: dict[str, Any]) -> None:
    """Move a state to Stopping."""
    state.update({STATUS_KEY: "Stopping", SECONDARY_KEY: "Stopping"})
