"""Opens the statistics of one start of the processes: where, which attempt, which numbers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.statistics.choice import choose
from trainer.statistics.emitter import Emitter
from trainer.statistics.host_samples import HostSampler
from trainer.statistics.parts import PartWriter, newest_attempt
from trainer.statistics.place import choose_folder

if TYPE_CHECKING:
    from torch import nn

    from trainer.batching import BatchPlan
    from trainer.distributed import Ranks
    from trainer.environment import ContainerPaths
    from trainer.hyperparameters import Hyperparameters
    from trainer.statistics.checksums import ReplicaChecksums
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
    pids = [pid for host, pid in ranks.gather((paths.host, os.getpid())) if host == paths.host]
    emitter.write_to(PartWriter(folder, header=header))
    if ranks.local_rank == 0:
        emitter.sample(HostSampler(emitter.write_host, pids=pids, disk=paths.base_dir))
    return emitter
