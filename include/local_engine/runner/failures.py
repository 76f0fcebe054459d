"""FailureReason in the service's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from include.local_engine.runner.life_cycle import MAX_REASON_CHARS

if TYPE_CHECKING:
    from pathlib import Path

    from include.local_engine.sandbox.cluster import InstanceExit


ABANDONED = (
    "InternalServerError: No engine was there for 120 s, so the job was stopped. "
    "Start the engine and submit the job again."
)


def algorithm_error(ended: InstanceExit, failure_file: Path) -> str:
    """Return the reason of a failed training job.

    The container's own words come from /opt/ml/output/failure; of them as much as leaves room for
    the exit code in the 1024 characters of the API.
    """
    prefix, suffix = "AlgorithmError: ", f", exit code: {ended.code}"
    text = read_failure(failure_file)
    if not text and ended.code == 137:
        text = "The container was killed (SIGKILL), most likely because it ran out of memory"
    room = MAX_REASON_CHARS - len(prefix) - len(suffix)
    return f"{prefix}{text[:room]}{suffix}"


def read_failure(path: Path) -> str:
    """Return the first 1024 characters of the failure file; empty where there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_REASON_CHARS).strip()
    except OSError:
        return ""
