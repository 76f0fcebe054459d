"""Injector that executes each scheduled fault when the run reaches the fault's moment.

The injector also records when a killed process was started again.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import requests

from chaos.engine_faults import fault_id
from chaos.schedule import PROCESSES, SERVICES, TASKS, Strike, StrikeKind
from trainyard.stack import process_finder, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from chaos.engine_faults import EngineFaults
    from trainyard.stack.following import RunView
    from trainyard.stack.home import Home

POLL_S = 0.1
ENGINE_POLL_S = 0.5
"""Seconds between two polls of the engine. The process table is polled more often, because tasks can be short."""
BEGIN_AT_ONCE = (*SERVICES, StrikeKind.SLOW_UPLINK)
"""Faults that the engine gets at their moment, because they do not wait for a step in the engine."""
VICTIM_OF = {
    StrikeKind.ENGINE: "engine",
    StrikeKind.SCHEDULER: "scheduler",
    StrikeKind.TRIGGERER: "triggerer",
    StrikeKind.DAG_PROCESSOR: "dag-processor",
    StrikeKind.API_SERVER: "api-server",
    StrikeKind.WORKER: "worker",
}


@dataclass(slots=True, kw_only=True)
class Blow:
    """Execution of one scheduled fault (strike).

    Attributes:
        strike: the fault, as the schedule has it.
        at: time of the execution, epoch seconds.
        step: last known step of the training.
        pid: id of the process that the injector itself killed, or None.
        back_at: time at which a successor of the process was found, epoch seconds, or None.
    """

    strike: Strike
    at: float
    step: int
    pid: int | None = None
    back_at: float | None = None


class FaultInjector:
    """Context manager whose thread executes the scheduled faults (strikes); `blows` has the executed ones."""

    def __init__(
        self,
        strikes: Sequence[Strike],
        *,
        home: Home,
        faults: EngineFaults,
        step: Callable[[], int],
        print_line: Callable[[str], None],
    ) -> None:
        """Create the injector.

        Args:
            strikes: the scheduled faults.
            home: home of the stack whose processes are killed.
            faults: client of the engine's faults.
            step: returns the training's current step.
            print_line: receives one line per executed strike or restarted process.
        """
        self._pending = list(strikes)
        self._home = home
        self._faults = faults
        self._ask_step = step
        self._print_line = print_line
        self._blows: list[Blow] = []
        self._instances: dict[str, str] = {}
        self._seen: set[str] = set()
        self._step = 0
        self._asked_at = 0.0
        self._answered_at = 0.0
        self._given: list[Strike] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._strike_until_ended, name="fault_injector")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def blows(self) -> list[Blow]:
        """Executed strikes, in the order of the schedule."""
        return sorted(self._blows, key=lambda blow: blow.strike.number)

    @property
    def pending(self) -> list[Strike]:
        """Strikes that have not been executed."""
        return list(self._pending)

    def note(self, view: RunView) -> None:
        """Store the ids of the run's task instances, which identify workers."""
        self._instances = {task.instance_id: task.task_id for task in view.tasks}

    def _strike_until_ended(self) -> None:
        while not self._ended.wait(POLL_S):
            with suppress(requests.RequestException):  # the engine is being started again
                self._poll()

    def _poll(self) -> None:
        busy = process_finder.busy_workers(self._home)
        self._seen |= {self._instances[each] for each in busy if each in self._instances}
        self._find_successors()
        self._strike_processes(busy)
        if time.monotonic() - self._asked_at >= ENGINE_POLL_S:
            self._asked_at = time.monotonic()
            self._step = max(self._step, self._ask_step())
            self._arm()
            self._strike_services()
            self._note_fired()

    def _arm(self) -> None:
        """Send the engine those faults that the engine itself delays until the training reaches their steps.

        After one call has succeeded, further calls have no effect.
        """
        if not self._given:
            self._give([each for each in self._pending if _waits_in_engine(each)])

    def _give(self, strikes: Sequence[Strike]) -> None:
        self._faults.put([*self._given, *strikes])
        self._given += strikes

    def _strike_processes(self, busy: dict[str, int]) -> None:
        for strike in [each for each in self._pending if each.kind in PROCESSES]:
            if self._is_due(strike) and (pid := self._victim(strike, busy)) is not None:
                processes.signal_all([pid], signal.SIGKILL)
                self._struck(strike, at=time.time(), pid=pid)

    def _victim(self, strike: Strike, busy: dict[str, int]) -> int | None:
        """Return the id of the process to kill, or None if it is not running.

        A strike on workers kills a worker that runs the strike's task. If no worker runs it, any busy worker is
        killed.
        """
        if strike.kind is not StrikeKind.WORKER:
            return process_finder.find(self._home, VICTIM_OF[strike.kind])
        wanted = [pid for i, pid in busy.items() if self._instances.get(i) == strike.moment.task]
        return next(iter([*wanted, *busy.values()]), None)

    def _strike_services(self) -> None:
        for strike in [each for each in self._pending if each.kind in BEGIN_AT_ONCE]:
            if self._is_due(strike):
                self._give([strike])
                self._struck(strike, at=time.time())

    def _note_fired(self) -> None:
        fired = self._faults.fired()
        self._answered_at = time.time()
        for strike in [each for each in self._pending if _waits_in_engine(each)]:
            if times := fired.get(fault_id(strike)):
                self._struck(strike, at=times[0])

    def _is_due(self, strike: Strike) -> bool:
        moment = strike.moment
        if moment.step is not None:
            return self._step >= moment.step
        return any(TASKS.index(task) >= TASKS.index(moment.task) for task in self._seen & {*TASKS})

    def _struck(self, strike: Strike, *, at: float, pid: int | None = None) -> None:
        self._pending.remove(strike)
        self._blows.append(Blow(strike=strike, at=at, step=self._step, pid=pid))
        where = f", training at step {self._step}" if self._step else ""
        self._print_line(f"STRUCK {strike}{f' (process {pid})' if pid else ''}{where}")

    def _find_successors(self) -> None:
        """Store the times at which successors of killed services are found. A worker has none: its task is retried."""
        for blow in self._blows:
            if (
                blow.pid is None
                or blow.back_at is not None
                or blow.strike.kind is StrikeKind.WORKER
            ):
                continue
            if blow.strike.kind is StrikeKind.ENGINE and self._answered_at < blow.at:
                continue
            if process_finder.find(self._home, VICTIM_OF[blow.strike.kind]) not in {None, blow.pid}:
                blow.back_at = time.time()
                self._print_line(
                    f"BACK   {blow.strike.number}. after {blow.back_at - blow.at:.1f} s"
                )


def _waits_in_engine(strike: Strike) -> bool:
    return strike.kind not in {*PROCESSES, *BEGIN_AT_ONCE}
