"""The engine's own faults over its control address: what a strike is in its words, put and looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

from chaos.schedule import Strike, StrikeKind
from trainyard.errors import RejectedRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 10
TRAINING_JOBS = "train-end-to-end-train-*"
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
    """Return the name under which the engine knows the strike."""
    return f"chaos-{strike.number}"


def fault_of(strike: Strike) -> dict[str, Any]:
    """Return a strike of the training or of a service as the engine's fault; a KeyError for a process's.

    One of the training waits in the engine for its step; one of a service begins at once.
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
            return {**fault, "job": TRAINING_JOBS, "megabytes_per_s": strike.megabytes_per_s}
        case _:
            return {**fault, "count": strike.count, "operation": strike.operation}
    return {**fault, "job": TRAINING_JOBS, "at": {"step": strike.moment.step}}


class EngineFaults:
    """The control address of one engine. All of it may raise `requests.RequestException` while no engine answers."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/_engine/faults"
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the user's shell has no business on loopback

    def put(self, strikes: Sequence[Strike]) -> None:
        """Let these strikes hold and no others; one that the engine has already goes on as it is.

        Raises:
            RejectedRequestError: the engine does not know such a fault.
        """
        answer = self._session.put(
            self._url, json=[fault_of(strike) for strike in strikes], timeout=TIMEOUT_S
        )
        if not answer.ok:
            raise RejectedRequestError(
                f"the engine refuses a fault: {answer.text}",
                operation="PUT /_engine/faults",
                code=str(answer.status_code),
            )

    def fired(self) -> dict[str, list[float]]:
        """Return when each fault struck, in seconds since the epoch, by its id."""
        answer = self._session.get(self._url, timeout=TIMEOUT_S)
        answer.raise_for_status()
        return {str(fault["id"]): list(fault["fired_at"]) for fault in answer.json()["faults"]}

    def clear(self) -> None:
        """Take all faults back."""
        self._session.delete(self._url, timeout=TIMEOUT_S).raise_for_status()
