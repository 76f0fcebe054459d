"""Setup and end of a training process's statistics: folder, attempt number, choice, observers.

An error is logged once and reduces the statistics, but never ends the training. A rank with an error still takes part
in the collectives, since the other ranks would wait for it.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainyard_watch.environment import DEFAULT_BASE_DIR, JOB_VARIABLE
from trainyard_watch.s3_prefix import S3Prefix, S3UnavailableError
from trainyard_watch.statistics.choice import choose
from trainyard_watch.statistics.emitter import Emitter
from trainyard_watch.statistics.headlines import Headlines, MlflowSink, TensorBoardSink
from trainyard_watch.statistics.host_samples import HostSampler
from trainyard_watch.statistics.parts import PartWriter, newest_attempt
from trainyard_watch.statistics.shipping import (
    CANNOT_SHIP,
    STATISTICS_VARIABLE,
    Shipper,
    newest_attempt_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from trainyard_watch.distributed import Ranks
    from trainyard_watch.environment import ContainerPaths
    from trainyard_watch.statistics.checksums import ReplicaChecksums
    from trainyard_watch.statistics.choice import Choice
    from trainyard_watch.statistics.headlines import Sink
    from trainyard_watch.statistics.tensors import ModelTensors

log = logging.getLogger(__name__)
FORMAT, VERSION = "trainyard-statistics", 1
DEFAULT_TENSORBOARD_DIR = f"{DEFAULT_BASE_DIR}/output/tensorboard"
NO_ACTIVATIONS = (
    "compile is on (the default on GPUs with bf16): there are NO STATISTICS OF ACTIVATIONS, so the rules DeadRelu and "
    "SaturatedActivation are not evaluated; set compile to false to evaluate them"
)
NO_PLACE = (
    "the statistics of this rank cannot be written (%s: %s); the training continues without them; check "
    "LocalPath in input/config/debughookconfig.json and the permissions of its folder"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStart:
    """One start or restart of the training processes, for the statistics' header.

    Attributes:
        number: number of the start (1, 2, ...), from the checkpoint.
        step: optimizer steps done before this start.
        max_steps: optimizer steps of the training; None if they are not known.
        global_batch_size: samples of one optimizer step; None if they are not known.
    """

    number: int = 1
    step: int = 0
    max_steps: int | None = None
    global_batch_size: int | None = None


def open_statistics(
    setting: str,
    paths: ContainerPaths,
    ranks: Ranks,
    *,
    tensors: ModelTensors,
    model: nn.Module | None,
    start: ProcessStart,
    checksums: ReplicaChecksums | None,
) -> Emitter:
    """Return the statistics emitter of this start; every rank must call it. Files of earlier starts are kept.

    Args:
        setting: `on`, `off`, or a JSON object that maps the name of each collection to its parameters.
        paths: folders of the container.
        ranks: ranks of the job.
        tensors: the model's parameters.
        model: model whose activations are observed; None to observe none. A compiled model must not be passed,
            since hooks would cause a recompilation.
        start: start of the processes.
        checksums: checksums of replicated parameters; None without replicas.
    """
    hook, is_readable = (None, True) if setting == "off" else _hook(paths)
    choice = _choice(setting, hook, num_tensors=len(tensors.names))
    if not choice.is_on:
        return Emitter(tensors, None, choice=choice)
    s3, in_s3 = _shipping(ranks) if hook is None and is_readable else (None, None)
    namespace = _pid_namespace(ranks)
    gathered = ranks.gather((s3 is not None, in_s3, namespace, os.getpid()))
    first_of_host = ranks.rank - ranks.local_rank
    ships, newest_in_s3, *_ = gathered[first_of_host]
    # If S3 does not answer now, it may never answer: the platform then uploads the files at the end.
    is_shipped = newest_in_s3 is not None
    place = _place(paths, hook, is_shipped=is_shipped) if is_readable else None
    here = ranks.gather(place and place[1])
    emitter = Emitter(tensors, model, choice=choice, checksums=checksums)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "rank": ranks.rank,
        "world_size": ranks.world_size,
        "attempt": max(
            start.number,
            *(1 + (newest or 0) for newest in (*here, *(each for _, each, _, _ in gathered))),
        ),
        "resumed_at": start.step,
        "time": time.time(),
        "host": paths.host,
        "max_steps": start.max_steps,
        "global_batch_size": start.global_batch_size,
        "tensors": emitter.listed,
    }
    if place is not None:
        emitter.writer = PartWriter(place[0], header=header, marks_end=ships)
        if s3:
            emitter.shipper = Shipper(
                folder=place[0],
                s3=s3,
                attempt=header["attempt"],
                host=paths.host,
                num_ranks=ranks.local_world_size,
                knows_attempt=any(each is not None for _, each, _, _ in gathered),
                keeps_files=not is_shipped,
            )
            emitter.shipper.start()
    if ranks.local_rank == 0:
        pids = [pid for _, _, other, pid in gathered if other == namespace]
        try:
            emitter.sampler = HostSampler(emitter.write_host, pids=pids, disk=paths.base_dir)
        except Exception as error:  # noqa: BLE001 an unreadable host must not end the training
            log.warning("no samples of the host: %s: %s", type(error).__name__, error)
    return emitter


def _choice(setting: str, hook: dict[str, Any] | None, *, num_tensors: int) -> Choice:
    """Return the choice of statistics; the defaults if the job's DebugHookConfig is not valid."""
    try:
        return choose(setting, hook, num_tensors=num_tensors)
    except Exception as error:  # noqa: BLE001 the file may have any content
        log.error(  # noqa: TRY400 no fault of this code
            "input/config/debughookconfig.json cannot be used (%s: %s), so the default statistics are written; its "
            "CollectionParameters take whole numbers for save_interval, start_step and end_step, whole numbers with "
            "commas for save_steps, a regular expression for include_regex",
            type(error).__name__,
            error,
        )
        return choose(setting, None, num_tensors=num_tensors)


def _hook(paths: ContainerPaths) -> tuple[dict[str, Any] | None, bool]:
    """Return (config, True), or (None, False) if the config cannot be read.

    `config` is the job's DebugHookConfig, or None if the job has none.
    """
    try:
        return paths.read_config("debughookconfig"), True
    except Exception as error:  # noqa: BLE001 as in _choice
        log.error(NO_PLACE, type(error).__name__, error)  # noqa: TRY400
        return None, False


def _shipping(ranks: Ranks) -> tuple[S3Prefix | None, int | None]:
    """Return the S3 prefix of the statistics, and the newest attempt in it.

    - On the host's first rank: (prefix, attempt), or (prefix, None) if S3 does not answer.
    - On other ranks, or if the host uploads no statistics: (None, None).
    """
    uri = os.environ.get(STATISTICS_VARIABLE)
    if ranks.local_rank:
        return None, None
    if not uri:
        if JOB_VARIABLE in os.environ:
            log.info(CANNOT_SHIP, f"the job's Environment has no {STATISTICS_VARIABLE}")
        return None, None
    s3 = S3Prefix(uri)
    try:
        return s3, newest_attempt_in(s3)
    except S3UnavailableError as error:
        log.warning(CANNOT_SHIP, error.findings[0])
        return s3, None


def _place(
    paths: ContainerPaths, hook: dict[str, Any] | None, *, is_shipped: bool
) -> tuple[Path, int] | None:
    """Return the folder of the statistics and the newest attempt in it, or None after an error."""
    try:
        folder = paths.statistics_dir(hook, is_shipped=is_shipped)
        return folder, newest_attempt(folder)
    except Exception as error:  # noqa: BLE001 as in _choice
        log.error(NO_PLACE, type(error).__name__, error)  # noqa: TRY400
        return None


def _pid_namespace(ranks: Ranks) -> str:
    """Return the identity of this process's PID namespace; process ids are comparable within one namespace only."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Some sandboxes have none: the host samples then include this rank's process only.
        return f"rank {ranks.rank}"


def _board(paths: ContainerPaths) -> dict[str, Any] | None:
    """Return the job's TensorBoardOutputConfig, or None if the job has none.

    If the config cannot be read, the dict is empty.
    """
    try:
        return paths.read_config("tensorboardoutputconfig")
    except (OSError, ValueError) as error:
        log.warning("input/config/tensorboardoutputconfig.json cannot be read: %s", error)
        return {}


def open_headlines(
    paths: ContainerPaths,
    ranks: Ranks,
    *,
    tensorboard_dir: str | None,
    settings: Mapping[str, Any],
) -> Headlines:
    """Return the writer of headline metrics; it has sinks on rank 0 only, and only those that the job enables.

    Args:
        paths: folders of the container.
        ranks: ranks of the job.
        tensorboard_dir: folder given by the script; None uses the job's TensorBoardOutputConfig.
        settings: settings of the run, logged as MLflow parameters.
    """
    makers: dict[str, Callable[[], Sink]] = {}
    board = _board(paths)
    if ranks.is_main and (tensorboard_dir or board is not None):
        local_path = (board or {}).get("LocalPath") or DEFAULT_TENSORBOARD_DIR
        makers["TensorBoard"] = lambda: TensorBoardSink(
            Path(tensorboard_dir or paths.in_container(local_path))
        )
    if ranks.is_main and os.environ.get("MLFLOW_TRACKING_URI"):
        job = os.environ.get(JOB_VARIABLE) or "training"
        makers["MLflow"] = lambda: MlflowSink(job, dict(settings))
    return Headlines(makers)


class Observer(Protocol):
    """Observer of a run, closed at the run's end."""

    def close(self) -> None:
        """Write buffered output and release resources."""


def close_each(*observers: Observer) -> None:
    """Close every observer. A failed close is logged and not raised, so it hides no error of the run."""
    for each in observers:
        try:
            each.close()
        except Exception:  # noqa: PERF203  # the others are closed, too
            log.exception("%s was not closed correctly", type(each).__name__)
