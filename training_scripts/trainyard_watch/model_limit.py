"""Limit on the writing of a model after a stop.

After a SIGTERM the checkpoint has priority. After a spot interruption the platform does not upload the model, and
writing it takes disk and network from the checkpoint's upload. After a stop by a user, the platform uploads the model.
Both stops send the same signal, so the model is written only if it cannot endanger the checkpoint:

- at the measured speed of checkpoints, it can be written in the rest of the grace period, and
- the checkpoint has arrived in S3, or writing the model takes at most two seconds.
"""

from __future__ import annotations

import math
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard_watch.distributed import Ranks
    from trainyard_watch.retention import Retention
    from trainyard_watch.stopping import StopRequest

NO_MODEL = (
    "THE MODEL OF STEP %d IS NOT WRITTEN: %s. The newest checkpoint is complete; resume the training, or take the "
    "weights from the checkpoint"
)
SLOWDOWN = 2.0
"""Time to write a model relative to a checkpoint of the same size: the model is also gathered and hashed."""
UNMEASURED_BYTES_PER_S = 50e6
"""Assumed speed of a rank before a checkpoint was measured; a volume of SageMaker (gp3) has at least 125 MB/s."""
SMALL_BYTES = 50e6
"""A checkpoint below this size never sets a speed below the assumed one: creating its files takes most of the time."""
RESERVED_SHARE = 1 / 12
"""Share of the stop's grace period that stays free after the model: 10 s of 120 s."""
BRIEF_S = 2.0
"""A model that takes at most this time is written even before the checkpoint has arrived in S3."""


class ModelLimit:
    """Joint decision of all ranks on writing the model after a stop.

    Args:
        ranks: all ranks of the job; rank 0 writes the model.
        retention: retention of the checkpoint folder; it records which checkpoints have arrived in S3.
        num_writers: number of ranks that write a checkpoint at the same time.
    """

    def __init__(self, ranks: Ranks, retention: Retention, *, num_writers: int = 1) -> None:
        self._ranks, self._retention, self._num_writers = ranks, retention, num_writers
        self._bytes_per_s = UNMEASURED_BYTES_PER_S

    def note_checkpoint(self, *, seconds: float, num_bytes: int) -> None:
        """Record the time that writing a checkpoint took, and the bytes that all ranks wrote."""
        if num_bytes <= 0:
            return
        measured = num_bytes / max(seconds, 1e-3) / self._num_writers
        at_least = UNMEASURED_BYTES_PER_S if num_bytes < SMALL_BYTES else 0.0
        self._bytes_per_s = max(measured, at_least)

    def write_s(self, num_bytes: int) -> float:
        """Return the estimated seconds that rank 0 needs to write a model.

        The estimate is the time at the measured speed of one rank, multiplied by `SLOWDOWN` (2). Example: 8 ranks
        wrote a checkpoint of 150 GB in 60 s, which is 0.3125 GB/s each. At this speed, a model of 50 GB
        takes 160 s, so the estimate is 2 * 160 = 320 s.
        """
        return SLOWDOWN * num_bytes / self._bytes_per_s

    def obstacle(self, num_bytes: int, *, seconds_left: float, grace_s: float) -> str | None:
        """Return the reason not to write a model now, or None. Every rank must call it; all return the same.

        The call waits for the checkpoint's arrival in S3 while there is still time for the model afterwards.

        Args:
            num_bytes: size of the model.
            seconds_left: seconds until this rank is killed; infinite if it received no SIGTERM.
            grace_s: seconds between SIGTERM and SIGKILL.
        """
        left = min(self._ranks.gather(seconds_left))
        reason: str | None = None
        if self._ranks.is_main and math.isfinite(left):
            reason = self._reason(num_bytes, spare_s=left - RESERVED_SHARE * grace_s)
        found: str | None = self._ranks.broadcast(reason)
        return found

    def _reason(self, num_bytes: int, *, spare_s: float) -> str | None:
        write_s = self.write_s(num_bytes)
        size = f"{num_bytes / 1e9:.3g} GB"
        if write_s > spare_s:
            return (
                f"its {size} take about {write_s:.0f} s at the speed of the checkpoints, and {max(0.0, spare_s):.0f} s "
                "are left of the stop's grace period"
            )
        if write_s > BRIEF_S and not self._retention.await_arrival(spare_s - write_s):
            return (
                f"the checkpoint has not arrived in S3 early enough to write the model's {size} afterwards, and "
                "writing them now would delay the checkpoint's upload"
            )
        return None


@contextmanager
def ending_together(ranks: Ranks, stop: StopRequest, *, is_stopping: bool) -> Iterator[None]:
    """Run the body, in which rank 0 writes the model.

    After a stop, all ranks leave the body together, even after an error. Every rank must enter it.

    If the other ranks did not wait for rank 0, they would exit with code 143, and torchrun would send rank 0 a
    SIGKILL 30 s later (torch 2.13, `SubprocessContext._close`).
    """
    try:
        yield
    finally:
        if is_stopping:
            # A lost peer ran out of time or failed, or the script has destroyed its process group (ValueError): then
            # there is nothing to wait for.
            with stop.bounded(lambda: None), suppress(RuntimeError, ValueError):
                ranks.barrier()
