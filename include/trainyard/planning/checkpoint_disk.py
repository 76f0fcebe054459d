"""Disk space of a run's checkpoints, and their download at a restart.

Each host writes only its own files of a sharded checkpoint. After a restart every host has all files: SageMaker copies
every object below the checkpoint prefix to every host before it starts the scripts again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainyard.errors import Finding, Severity
from trainyard.planning.phases import BYTES_STATE
from trainyard.units import (
    BYTES_PER_GIB,
    SECONDS_PER_HOUR,
    format_bytes,
    format_duration,
    format_usd,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.catalog.instances import InstanceType
    from trainyard.specs.run_conf import RunConf

KEPT_CHECKPOINTS, LARGE_CHECKPOINT_BYTES = 2, 16e9
"""Number of kept checkpoints, and the size from which only one is kept: the defaults of
training_scripts/trainyard_watch/retention.py."""
UNDERWAY_CHECKPOINTS = 4
"""Limit of checkpoints that wait for their upload; with more, the trainer pauses."""
RESTORE_BYTES_PER_S = 500e6
"""Assumed rate at which a host downloads checkpoints. AWS states none."""
LONG_RESTORE_S = 300.0
"""Download time of one checkpoint from which preflight warns about it."""
_WRITTEN_BY_ONE_HOST = frozenset({"ddp", "horovod"})


def checkpoint_findings(
    conf: RunConf, instance: InstanceType, *, parameters: int
) -> Iterator[Finding]:
    """Yield warnings about too little disk space for checkpoints, and about their long download at a restart."""
    checkpoint = BYTES_STATE * parameters
    kept = int(conf.hyperparameters.get("keep_checkpoints", 0)) or (
        1 if checkpoint >= LARGE_CHECKPOINT_BYTES else KEPT_CHECKPOINTS
    )
    yield from _full_disk(conf, instance, checkpoint=checkpoint, kept=kept)
    restore_s = checkpoint / RESTORE_BYTES_PER_S
    if conf.may_use_spot and restore_s >= LONG_RESTORE_S:
        price = instance.price_usd_per_hour
        usd = price and price * conf.instance_count * restore_s / SECONDS_PER_HOUR
        cost = f"about {format_duration(restore_s)} and costs {format_usd(usd)} on demand "
        cost += f"({conf.instance_count} x {instance.name})"
        yield Finding(
            where="use_spot_instances",
            what=f"makes each restart costly, because every host first downloads {kept} to {kept + 1} checkpoints of "
            f"{format_bytes(checkpoint)} each; at {RESTORE_BYTES_PER_S / 1e6:.0f} MB/s per host, one checkpoint takes "
            f"{cost}",
            severity=Severity.WARNING,
            next_step="allow for these downloads in max_run_s and in the budget, or use on-demand instances",
        )


def _full_disk(
    conf: RunConf, instance: InstanceType, *, checkpoint: float, kept: int
) -> Iterator[Finding]:
    """Yield a warning if a host's checkpoints and the model do not fit into its volume or its local disks.

    Before a restart, a host has only its own part of each checkpoint. It has parts of the `kept` newest
    checkpoints, of those that wait for their upload, and of the one that is being written.

    After a restart, the host has complete copies of up to `kept` + 1 checkpoints, and its own part of the next
    one.
    """
    hosts = 1 if conf.strategy in _WRITTEN_BY_ONE_HOST else conf.instance_count
    copies = kept + UNDERWAY_CHECKPOINTS + 1
    written = copies * checkpoint / hosts
    restored = (kept + 1) * checkpoint + checkpoint / hosts
    model = checkpoint / 3
    needed = max(written, restored) + model
    disks_gb = instance.local_storage_gb if instance.has_local_storage else conf.volume_size_gb
    unit, name = (1e9, "GB") if instance.has_local_storage else (BYTES_PER_GIB, "GiB")
    if disks_gb is None or needed <= disks_gb * unit:
        return
    is_of_restart = restored > written
    cause = (
        f"the model and the {kept + 1} complete checkpoints that each host downloads at a restart"
        if is_of_restart
        else f"{copies} checkpoints and the model"
    )
    yield Finding(
        where="instance_type" if instance.has_local_storage else "volume_size_gb",
        what=f"may give each host too little disk space for {cause}",
        got=f"{disks_gb} {name}{' of local disks' if instance.has_local_storage else ''}",
        allowed=f"at least {math.ceil(needed / unit)} {name}, and room for the data",
        severity=Severity.WARNING,
        next_step="choose a larger type" if instance.has_local_storage else "raise volume_size_gb",
    )
