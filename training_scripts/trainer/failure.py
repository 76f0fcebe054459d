"""Failure report of a rank: on stderr, and in the file that becomes the FailureReason."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from trainyard_watch.errors import PeerError, TrainerError
from trainyard_watch.stopping import EXIT_CODE_TERMINATED

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard_watch.environment import ContainerPaths

log = logging.getLogger(__name__)
PEER_LOST_WORDS = (
    *("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting"),
    *("wait timeout after", "failed to recv", "Application timeout caused pair closure"),
    *("The client socket has failed to connect", "NCCL error", "recvValue failed", "Gloo"),
    *("ncclRemoteError", "Watchdog caught collective operation timeout", "clients joined"),
    "NCCL communicator was aborted",
)
MAX_REASON_CHARACTERS = 1024


def report_failure(error: BaseException, *files: Path) -> None:
    """Print the reason, and write its first 1,024 characters to each of `files` that does not exist yet."""
    if isinstance(error, TrainerError):
        reason = f"{type(error).__name__}: {error}"
    else:
        traceback.print_exception(error)
        rank = os.environ.get("RANK", "0")
        reason = f"rank {rank}: {_as_peer_error(error) or f'{type(error).__name__}: {error}'}"
    sys.stderr.write(f"\n{reason}\n")
    sys.stderr.flush()
    for file in files:
        _leave(reason[:MAX_REASON_CHARACTERS], file)


def end_of_restart(paths: ContainerPaths, *, num_restarts: int) -> int | None:
    """Return the exit code of a rank that must end at once after the launcher's restart, or None to train.

    - After a stop the rank ends again with the code of a stop.
    - After an error of this script the rank ends with 1, since the error would occur again.
    - After a PeerError (another rank was killed), or without a failure file, the rank trains.
    """
    if not num_restarts:
        paths.stopped_file.unlink(missing_ok=True)
        return None
    if paths.stopped_file.exists():
        return EXIT_CODE_TERMINATED
    try:
        reason = paths.failure_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    if f": {PeerError.title}" not in reason:
        return 1
    paths.failure_file.unlink(missing_ok=True)
    return None


def note_stop(paths: ContainerPaths) -> None:
    """Write the file that marks the ranks of this host as ended by a stop."""
    paths.stopped_file.parent.mkdir(parents=True, exist_ok=True)
    paths.stopped_file.touch()


def end_process(code: int) -> NoReturn:
    """End the process at once, so that the launcher sees the exit code.

    The process does not wait for its threads or for other ranks. A failed rank can have pending collectives, on
    other threads or on the device. Its peers never join these collectives, so a wait could block the process.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave(reason: str, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(reason)
    except FileExistsError:
        log.info("%s already has the reason of another rank", file)
    except OSError as problem:
        log.warning("the reason could not be written to %s: %s", file, problem)


def _as_peer_error(error: BaseException) -> PeerError | None:
    """Return a PeerError if a collective raised the error because it lost a peer, otherwise None."""
    text = str(error)
    if isinstance(error, RuntimeError) and any(words in text for words in PEER_LOST_WORDS):
        return PeerError(
            f"a collective failed with {text.splitlines()[0]!r}; read the logs of the other ranks first"
        )
    return None
