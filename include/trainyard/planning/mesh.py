"""Layout of ranks: the axes of a device mesh, and the name of its strategy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Degrees of parallelism; their product is the number of ranks.

    The order of the axes from the innermost to the outermost is tp, dp_shard, dp_replicate, pp. The ranks of a
    tensor-parallel group are neighbors in an instance.

    Attributes:
        dp_replicate: replicas of the model, or of its shards, each with different samples.
        dp_shard: ranks over which parameters, gradients and optimizer state are sharded (FSDP, ZeRO-3); 1 = no shards.
        tp: ranks over which each layer's matrices are split, with sequence parallelism.
        pp: pipeline stages of layers.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    pp: int = 1

    @property
    def dp(self) -> int:
        """Number of data-parallel ranks, which read different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def num_ranks(self) -> int:
        """Number of all ranks."""
        return self.dp * self.tp * self.pp

    @property
    def strategy(self) -> str:
        """Name of the strategy, such as `ddp`, `fsdp+tp`, `hsdp`, `pp`, or `single` for one rank."""
        names = []
        if self.dp_shard > 1:
            names.append("hsdp" if self.dp_replicate > 1 else "fsdp")
        elif self.dp_replicate > 1:
            names.append("ddp")
        names += ["tp"] * (self.tp > 1) + ["pp"] * (self.pp > 1)
        return "+".join(names) or "single"

    @property
    def complexity(self) -> int:
        """Sort key by complexity, a sum over the axes with a degree above 1.

        dp_replicate adds 1, dp_shard 2, tp 4 and pp 8.
        """
        return (
            (self.dp_replicate > 1)
            + 2 * (self.dp_shard > 1)
            + 4 * (self.tp > 1)
            + 8 * (self.pp > 1)
        )

    def __str__(self) -> str:
        """Return the degrees above 1, such as `dp_shard 8 x tp 8`."""
        axes = {
            "dp_replicate": self.dp_replicate,
            "dp_shard": self.dp_shard,
            "tp": self.tp,
            "pp": self.pp,
        }
        return (
            " x ".join(f"{name} {degree}" for name, degree in axes.items() if degree > 1)
            or "1 rank"
        )
