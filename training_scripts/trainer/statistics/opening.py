"""Opens the statistics of one start of the processes: where, which attempt, which numbers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

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
    from trainer.statistics.headlines import Sink
    from trainer.statistics.tensors import ModelTensors
    from trainer.training_state import Progress

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
    hook = paths.read_config("debughookconfig")
    choice = choose(hp.statistics, hook, num_tensors=len(tensors.names))
    looked_at = None if hp.compile else model  # hooks would have it compiled again
    if not choice.is_on:
        return Emitter(tensors, None, choice=choice)
    default = paths.default_checkpoint_dir
    checkpoint_dir = Path(hp.checkpoint_dir) if hp.checkpoint_dir else default
    folder = choose_folder(paths.base_dir, paths.output_data_dir, checkpoint_dir, hook)
    newest = max(ranks.gather(newest_attempt(folder)))
    emitter = Emitter(tensors, looked_at, choice=choice, checksums=checksums)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "rank": ranks.rank,
        "world_size": ranks.world_size,
        "attempt": max(newest + 1, progress.num_starts),
        "resumed_at": progress.step,
        "time": time.time(),
        "host": paths.host,
        "max_steps": plan.max_steps,
        "global_batch_size": plan.global_batch_size,
        "tensors": emitter.listed,
    }
    here = str(Path("/proc/self/ns/pid").readlink())  # whose process numbers mean the same as here
    pids = [pid for place, pid in ranks.gather((here, os.getpid())) if place == here]
    emitter.write_to(PartWriter(folder, header=header))
    if ranks.local_rank == 0:
        emitter.sample(HostSampler(emitter.write_host, pids=pids, disk=paths.base_dir))
    return emitter


def open_headlines(hp: Hyperparameters, paths: ContainerPaths, ranks: Ranks) -> Headlines:
    """Return what writes scalars for people, on rank 0 and where the job asks for them."""
    makers: dict[str, Callable[[], Sink]] = {}
    board = paths.read_config("tensorboardoutputconfig")
    if ranks.is_main and (hp.tensorboard_dir or board is not None):
        local_path = (board or {}).get("LocalPath") or DEFAULT_TENSORBOARD_DIR
        folder = Path(hp.tensorboard_dir or in_container(paths.base_dir, local_path))
        makers["TensorBoard"] = lambda: TensorBoardSink(folder)
    if ranks.is_main and os.environ.get("MLFLOW_TRACKING_URI"):
        job = os.environ.get("TRAINING_JOB_NAME") or "training"
        makers["MLflow"] = lambda: MlflowSink(job, hp.to_dict())
    return Headlines(makers)
