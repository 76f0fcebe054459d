"""Opens the statistics of one start of the processes: where, which attempt, which numbers.

Whatever fails here is told once and costs statistics, never the training. A rank that fails still takes part in the
exchange with the others, which would wait for it.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.statistics.choice import choose
from trainer.statistics.emitter import Emitter
from trainer.statistics.headlines import Headlines, MlflowSink, TensorBoardSink
from trainer.statistics.host_samples import HostSampler
from trainer.statistics.parts import PartWriter, newest_attempt
from trainer.statistics.place import DEFAULT_TENSORBOARD_DIR, choose_folder, in_container

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from trainer.batching import BatchPlan
    from trainer.distributed import Ranks
    from trainer.environment import ContainerPaths
    from trainer.hyperparameters import Hyperparameters
    from trainer.statistics.checksums import ReplicaChecksums
    from trainer.statistics.choice import Choice
    from trainer.statistics.headlines import Sink
    from trainer.statistics.tensors import ModelTensors
    from trainer.training_state import Progress

log = logging.getLogger(__name__)
FORMAT, VERSION = "trainyard-statistics", 1


def open_statistics(
    hp: Hyperparameters,
    paths: ContainerPaths,
    ranks: Ranks,
    *,
    tensors: ModelTensors,
    model: nn.Module,
    plan: BatchPlan,
    progress: Progress,
    checksums: ReplicaChecksums | None,
) -> Emitter:
    """Return the emitter of this start; every rank must call it. Earlier starts' files stay."""
    choice = _choice(hp, paths, num_tensors=len(tensors.names))
    looked_at = None if hp.compile else model  # hooks would have it compiled again
    if not choice.is_on:
        return Emitter(tensors, None, choice=choice)
    place = _place(hp, paths)
    namespace = _pid_namespace(ranks)
    told = ranks.gather((place and place[1], namespace, os.getpid()))
    emitter = Emitter(tensors, looked_at, choice=choice, checksums=checksums)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "rank": ranks.rank,
        "world_size": ranks.world_size,
        "attempt": max(progress.num_starts, *(1 + (newest or 0) for newest, _, _ in told)),
        "resumed_at": progress.step,
        "time": time.time(),
        "host": paths.host,
        "max_steps": plan.max_steps,
        "global_batch_size": plan.global_batch_size,
        "tensors": emitter.listed,
    }
    if place is not None:
        emitter.write_to(PartWriter(place[0], header=header))
    if ranks.local_rank == 0:
        pids = [pid for _, other, pid in told if other == namespace]
        try:
            emitter.sample(HostSampler(emitter.write_host, pids=pids, disk=paths.base_dir))
        except Exception as error:  # noqa: BLE001 a host that cannot be read is not the training's fault
            log.warning("no samples of the host: %s: %s", type(error).__name__, error)
    return emitter


def _choice(hp: Hyperparameters, paths: ContainerPaths, *, num_tensors: int) -> Choice:
    """Return what is written; the defaults where the job's DebugHookConfig cannot be understood."""
    try:
        hook = paths.read_config("debughookconfig")
        return choose(hp.statistics, hook, num_tensors=num_tensors)
    except Exception as error:  # noqa: BLE001 it holds whatever somebody wrote
        log.error(  # noqa: TRY400 no fault of this code
            "input/config/debughookconfig.json cannot be used (%s: %s), statistics are written by the defaults; its "
            "CollectionParameters take whole numbers for save_interval, start_step and end_step, whole numbers with "
            "commas for save_steps, a regular expression for include_regex",
            type(error).__name__,
            error,
        )
        return choose(hp.statistics, None, num_tensors=num_tensors)


def _place(hp: Hyperparameters, paths: ContainerPaths) -> tuple[Path, int] | None:
    """Return the folder of the statistics and the newest attempt in it; None where it cannot be told."""
    default = paths.default_checkpoint_dir
    checkpoint_dir = Path(hp.checkpoint_dir) if hp.checkpoint_dir else default
    try:
        hook = paths.read_config("debughookconfig")
        folder = choose_folder(paths.base_dir, paths.output_data_dir, checkpoint_dir, hook)
        return folder, newest_attempt(folder)
    except Exception as error:  # noqa: BLE001 as in _choice
        log.error(  # noqa: TRY400
            "there is no place for statistics (%s: %s), training goes on without: rules see nothing of this rank; "
            "look at LocalPath in input/config/debughookconfig.json and at who may read that folder",
            type(error).__name__,
            error,
        )
        return None


def _pid_namespace(ranks: Ranks) -> str:
    """Return what is the same where process numbers mean the same."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except (
        OSError
    ):  # some sandboxes have none: the samples of the host know this rank's process only
        return f"rank {ranks.rank}"


def _board(paths: ContainerPaths) -> dict[str, Any] | None:
    """Return the job's TensorBoardOutputConfig; an empty one where it cannot be read."""
    try:
        return paths.read_config("tensorboardoutputconfig")
    except (OSError, ValueError) as error:
        log.warning("input/config/tensorboardoutputconfig.json cannot be read: %s", error)
        return {}


def open_headlines(hp: Hyperparameters, paths: ContainerPaths, ranks: Ranks) -> Headlines:
    """Return what writes scalars for people, on rank 0 and where the job asks for them."""
    makers: dict[str, Callable[[], Sink]] = {}
    board = _board(paths)
    if ranks.is_main and (hp.tensorboard_dir or board is not None):
        local_path = (board or {}).get("LocalPath") or DEFAULT_TENSORBOARD_DIR
        makers["TensorBoard"] = lambda: TensorBoardSink(
            Path(hp.tensorboard_dir or in_container(paths.base_dir, local_path))
        )
    if ranks.is_main and os.environ.get("MLFLOW_TRACKING_URI"):
        job = os.environ.get("TRAINING_JOB_NAME") or "training"
        makers["MLflow"] = lambda: MlflowSink(job, hp.to_dict())
    return Headlines(makers)
