"""The thread that carries all tuning jobs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.search_thread import SearchThread
from sagemaker_engine.tuning.rounds import TuningSearch
from sagemaker_engine.tuning.tables import STATUS_KEY, TuningRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.tuning.rounds import TuningPorts


class Tuner(SearchThread[TuningRow]):
    """Carries on every tuning job that has not ended."""

    def __init__(self, ports: TuningPorts) -> None:
        super().__init__(name="tuner", noun="tuning job")
        self._ports = ports
        self._searches: dict[str, TuningSearch] = {}

    def _running(self) -> Sequence[TuningRow]:
        return self._ports.tables.running()

    def _request_stop(self, row: TuningRow) -> None:
        self._ports.tables.change(
            row.name,
            lambda state: state.update({STATUS_KEY: "Stopping"}),
            at=self._ports.clock(),
            stop=True,
        )

    def _round(self, row: TuningRow) -> None:
        search = self._searches.get(row.arn)
        if search is None or search.tuning.created_at != row.created_at:
            search = self._searches[row.arn] = TuningSearch.of(self._ports, row)
        if search.advance(row):
            del self._searches[row.arn]

    def _give_up(self, row: TuningRow, *, reason: str) -> None:
        now = self._ports.clock()

        def change(state: dict[str, Any]) -> None:
            state[STATUS_KEY] = "Failed"
            state["FailureReason"] = reason
            state["HyperParameterTuningEndTime"] = now

        self._ports.tables.change(row.name, change, at=now)
        for trial in self._ports.tables.trials(row.arn):
            if trial.result is None:
                self._ports.stop_job(trial.job_name)
