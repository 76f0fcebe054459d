"""Checksums of replicated parameters, which reveal a bit flip on one replica; data parallelism never repairs it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ReplicaChecksums:
    """Comparison of checksums of this rank's parameters with those of its replicas.

    Args:
        names: names of the parameters.
        rank: this rank's index among the replicas.
        size: number of replicas.
        group: the process group of the replicas; None for all ranks.
        label: name of the group in the statistics.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        rank: int,
        size: int,
        group: dist.ProcessGroup | None = None,
        label: str = "0",
    ) -> None:
        self.size, self.label = size, label
        self._names, self._rank, self._group = list(names), rank, group

    def take(self, tensors: Sequence[Tensor], *, step: int) -> dict[str, str]:
        """Return name -> checksum (16 hex digits) of this rank's local tensors.

        Every replica must call it at the same step. Replica 0 logs a difference at once.
        """
        own = torch.stack([sum_of_bits(each) for each in tensors])
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(gathered, own, group=self._group)
        rows = torch.stack(gathered).tolist()
        if self._rank == 0:
            self._log_differences(rows, step)
        mine = rows[self._rank]
        return {
            name: f"{value & (2**64 - 1):016x}"
            for name, value in zip(self._names, mine, strict=True)
        }

    def _log_differences(self, rows: Sequence[Sequence[int]], step: int) -> None:
        differing = [
            name for name, column in zip(self._names, zip(*rows, strict=True), strict=True)
            if len(set(column)) > 1
        ]  # fmt: skip
        if differing:
            log.error(
                "REPLICAS DIFFER after step %d in %d of %d parameters, first %s: a bit flipped, or a collective went "
                "wrong; resume from an earlier checkpoint on other hardware",
                step, len(differing), len(self._names), differing[0],
            )  # fmt: skip


@torch.no_grad()
def sum_of_bits(tensor: Tensor) -> Tensor:
    """Return the sum, modulo 2^64, of a tensor's bytes as 64-bit integers; any single bit flip changes it."""
    flat = tensor.detach().contiguous().view(-1)
    size = flat.element_size()
    per_word = max(1, 8 // size)
    if size > 8 or flat.storage_offset() % per_word:
        flat = flat.clone()
    whole = flat.numel() // per_word * per_word
    head = flat[:whole].view(torch.int64).sum()
    return head + flat[whole:].view(BITS[min(8, size)]).sum(dtype=torch.int64)
