"""Degrees of parallelism of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.sharding.hyperparameters import ShardedHyperparameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Degrees of a run: pipeline x replicate x shard x tensor = number of ranks.

    `context` divides `shard`: that many of the ranks on the shard axis split a sequence.
    """

    pipeline: int = 1
    replicate: int = 1
    shard: int = 1
    context: int = 1
    tensor: int = 1

    @classmethod
    def of(cls, hp: ShardedHyperparameters, world_size: int) -> Degrees:
        """Return the degrees of the hyperparameters for `world_size` ranks.

        `hybrid_shard_degree` 0 means all ranks that the other degrees leave, as in SMP v2. Worked: 8 ranks,
        hybrid_shard_degree 2 and tensor_parallel_degree 2: shard 2, tensor 2, replicate 2.

        Raises:
            HyperparameterError: a degree does not divide the ranks, or the heads, sequence or layers that it splits;
                all findings at once.
        """
        findings = [*_findings(hp, world_size)]
        if findings:
            raise HyperparameterError(findings)
        sharing = world_size // (hp.pipeline_parallel_degree * hp.tensor_parallel_degree)
        shard = hp.hybrid_shard_degree or sharing
        return cls(
            pipeline=hp.pipeline_parallel_degree,
            replicate=sharing // shard,
            shard=shard,
            context=hp.context_parallel_degree,
            tensor=hp.tensor_parallel_degree,
        )

    @property
    def num_readers(self) -> int:
        """Return the number of groups of ranks that read different samples."""
        return self.replicate * self.shard // self.context

    @property
    def num_averaged(self) -> int:
        """Return the number of ranks over which a gradient is averaged."""
        return self.replicate * self.shard


def _findings(hp: ShardedHyperparameters, world_size: int) -> Iterator[str]:
    split = hp.pipeline_parallel_degree * hp.tensor_parallel_degree
    if world_size % split:
        yield (
            f"pipeline_parallel_degree {hp.pipeline_parallel_degree} x tensor_parallel_degree "
            f"{hp.tensor_parallel_degree} = {split} does not divide the {world_size} ranks"
        )
        return
    sharing = world_size // split
    shard = hp.hybrid_shard_degree or sharing
    if sharing % shard:
        allowed = [number for number in range(1, sharing + 1) if sharing % number == 0]
        yield (
            f"hybrid_shard_degree {shard} does not divide the {sharing} ranks that share a model "
            f"({world_size} ranks / {split}); it may be 0 (all) or one of {allowed}"
        )
    elif shard % hp.context_parallel_degree:
        allowed = [number for number in range(1, shard + 1) if shard % number == 0]
        yield (
            f"context_parallel_degree {hp.context_parallel_degree} does not divide the {shard} ranks that "
            f"share a shard (hybrid_shard_degree); it may be one of {allowed}"
        )
    yield from _of_the_model(hp)


def _of_the_model(hp: ShardedHyperparameters) -> Iterator[str]:
    tensor, context, pipeline = (
        hp.tensor_parallel_degree,
        hp.context_parallel_degree,
        hp.pipeline_parallel_degree,
    )
    if hp.model != "gpt" and max(tensor, context, pipeline) > 1:
        yield (
            f"model {hp.model} has no layers, heads or sequence to split: tensor_parallel_degree, "
            "context_parallel_degree and pipeline_parallel_degree must be 1 (hybrid_shard_degree shards it)"
        )
        return
    if hp.num_heads % tensor:
        yield f"tensor_parallel_degree {tensor} does not divide num_heads {hp.num_heads}"
    pieces = tensor * (2 * context if context > 1 else 1)
    if hp.sequence_length % pieces:
        yield (
            f"sequence_length {hp.sequence_length} does not divide into {pieces} pieces "
            f"(tensor_parallel_degree {tensor}, and two for each of context_parallel_degree {context})"
        )
    if pipeline > hp.num_layers:
        yield f"pipeline_parallel_degree {pipeline} is more than num_layers {hp.num_layers}"
