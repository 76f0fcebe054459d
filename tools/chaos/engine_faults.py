"""Client of the engine's fault injection, and conversion of strikes (scheduled faults) to engine faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

from chaos.jobs import TRAINING_JOBS
from chaos.schedule import Strike, StrikeKind
from trainyard.errors import RejectedRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 10
WHAT = {
    StrikeKind.INTERRUPTION: "interrupt",
    StrikeKind.NOTICED_INTERRUPTION: "interrupt",
    StrikeKind.KILLED_RANK: "kill_rank",
    StrikeKind.HUNG_HOST: "hang",
    StrikeKind.S3_ERRORS: "s3_error",
    StrikeKind.S3_STALLS: "s3_stall",
    StrikeKind.S3_HALVES: "s3_truncate",
    StrikeKind.THROTTLING: "throttle",
    StrikeKind.SLOW_UPLINK: "slow_uplink",
}


def fault_id(strike: Strike) -> str:
    """Return the strike's id in the engine."""
    return f"chaos-{strike.number}"


def fault_of(strike: Strike) -> dict[str, Any]:
    """Return a strike as a fault of the engine.

    The engine keeps a fault of the training until the training reaches the strike's step. A fault of a service,
    or of the hosts' uplinks, begins at once.

    Raises:
        KeyError: the strike kills a process, which is not a fault of the engine.
    """
    fault: dict[str, Any] = {"id": fault_id(strike), "what": WHAT[strike.kind]}
    match strike.kind:
        case StrikeKind.INTERRUPTION | StrikeKind.NOTICED_INTERRUPTION:
            fault |= {"hosts": "all", "notice_s": strike.notice_s}
        case StrikeKind.KILLED_RANK | StrikeKind.HUNG_HOST:
            fault |= {"hosts": [strike.host]}
        case StrikeKind.S3_ERRORS:
            return {**fault, "count": strike.count, "status": 500}
        case StrikeKind.S3_STALLS:
            return {**fault, "count": strike.count, "duration_s": strike.stall_s}
        case StrikeKind.S3_HALVES:
            return {**fault, "count": strike.count, "operation": "GetObject"}
        case StrikeKind.SLOW_UPLINK:
            return {**fault, "job": f"{TRAINING_JOBS}*", "megabytes_per_s": strike.megabytes_per_s}
        case _:
            return {**fault, "count": strike.count, "operation": strike.operation}
    return {**fault, "job": f"{TRAINING_JOBS}*", "at": {"step": strike.moment.step}}


class EngineFaults:
    """Client of one engine's faults; methods raise `requests.RequestException` if the engine is down."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/_engine/faults"
        self._session = requests.Session()
        self._session.trust_env = False  # loopback must not use a proxy from the environment

    def put(self, strikes: Sequence[Strike]) -> None:
        """Replace the engine's faults by these strikes; a fault that the engine already has keeps its state.

        Raises:
            RejectedRequestError: the engine rejected a fault.
        """
        answer = self._session.put(
            self._url, json=[fault_of(strike) for strike in strikes], timeout=TIMEOUT_S
        )
        if not answer.ok:
            raise RejectedRequestError(
                f"the engine rejected a fault: {answer.text}",
                operation="PUT /_engine/faults",
                code=str(answer.status_code),
            )

    def fired(self) -> dict[str, list[float]]:
        """Return the times at which each fault was executed, epoch seconds, by its id."""
        answer = self._session.get(self._url, timeout=TIMEOUT_S)
        answer.raise_for_status()
        return {str(fault["id"]): list(fault["fired_at"]) for fault in answer.json()["faults"]}

    def clear(self) -> None:
        """Remove all faults."""
        self._session.delete(self._url, timeout=TIMEOUT_S).raise_for_status()
