"""Degrees of parallelism of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Degrees of a run: pipeline x replicate x shard x tensor = number of ranks.

    `shard` is a multiple of `context`: each group of `context` ranks on the shard axis shares one sequence.
    """

    pipeline: int = 1
    replicate: int = 1
    shard: int = 1
    context: int = 1
    tensor: int = 1

    @property
    def num_readers(self) -> int:
        """Return the number of groups of ranks that read different samples."""
        return self.replicate * self.shard // self.context

    @property
    def num_averaged(self) -> int:
        """Return the number of ranks over which a gradient is averaged."""
        return self.replicate * self.shard
