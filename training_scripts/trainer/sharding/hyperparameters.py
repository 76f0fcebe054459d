"""Hyperparameters that train_fsdp.py has in addition to those of train_ddp.py.

SMP v2's names for them are accepted too, in `mp_parameters`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.hyperparameters import Hyperparameters, setting
from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MODEL_PARALLEL = "mp_parameters"
OF_SMP = {
    "hybrid_shard_degree": "hybrid_shard_degree",
    "tensor_parallel_degree": "tensor_parallel_degree",
    "context_parallel_degree": "context_parallel_degree",
    "sm_activation_offloading": "activation_offloading",
    "random_seed": "seed",
}
"""SMP v2's name of a parameter -> name of the hyperparameter."""
WITHOUT_EFFECT = ("activation_loading_horizon", "fsdp_cache_flush_warnings", "allow_empty_shards")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedHyperparameters(Hyperparameters):
    """Hyperparameters of sharded training."""

    hybrid_shard_degree: int = setting(
        0, "ranks that share one copy of the model's state; 0 = all (FSDP), 1 = a copy on "
        "each rank, otherwise HSDP", at_least=0,
    )  # fmt: skip
    tensor_parallel_degree: int = setting(
        1, "ranks that split each layer (gpt), and the sequence between layers", at_least=1
    )
    context_parallel_degree: int = setting(
        1, "ranks of the shard axis that split each sample's sequence (gpt)", at_least=1
    )
    pipeline_parallel_degree: int = setting(
        1, "stages that the layers are split into (gpt)", at_least=1
    )
    pipeline_schedule: str = setting(
        "1f1b", "order of the micro batches' passes through the stages", choices=("1f1b", "gpipe")
    )
    activation_checkpointing: str = setting(
        "none",
        "parts that the backward pass computes again: none; half of the matrix products, and everything "
        "except attention; or whole layers (gpt)",
        choices=("none", "selective", "full"),
    )
    activation_offloading: bool = setting(
        False, "keep the layers' inputs in the host's memory (activation_checkpointing full)"
    )
    cpu_offload: bool = setting(
        False, "keep parameters, gradients and optimizer state in the host's memory"
    )

    @classmethod
    def translate(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given values, with the entries of SMP's `mp_parameters` converted to hyperparameters.

        Raises:
            HyperparameterError: `mp_parameters` is not a JSON object, has an unknown key, requests expert
                parallelism, or contradicts a hyperparameter.
        """
        values = dict(given)
        asked = values.pop(MODEL_PARALLEL, None)
        parameters = _decoded(asked)
        experts = parameters.pop("expert_parallel_degree", 1)
        findings = []
        if str(experts) != "1":
            findings.append(
                f"{MODEL_PARALLEL} has expert_parallel_degree {experts!r}, but no model here has experts; leave it at 1"
            )
        for name, value in parameters.items():
            ours = OF_SMP.get(name)
            if ours is None and name not in WITHOUT_EFFECT:
                findings.append(
                    f"{MODEL_PARALLEL} has the unknown key {name!r}; known keys are {', '.join(OF_SMP)}"
                )
            elif ours is not None and str(values.setdefault(ours, value)) != str(value):
                findings.append(
                    f"{ours} is {values[ours]!r}, but {name} in {MODEL_PARALLEL} is {value!r}: set only one of them"
                )
        if findings:
            raise HyperparameterError(findings)
        if parameters.get("sm_activation_offloading"):
            values.setdefault("activation_checkpointing", "full")
        return values

    def contradictions(self) -> list[str]:
        """Return one sentence per contradictory combination of values."""
        findings = Hyperparameters.contradictions(self)
        if self.activation_offloading and self.activation_checkpointing != "full":
            findings.append(
                f"activation_offloading with activation_checkpointing {self.activation_checkpointing}: "
                "only the inputs of recomputed layers are offloaded; set activation_checkpointing to 'full'"
            )
        if self.precision == "fp16":
            findings.append(
                "precision fp16 needs a loss scaler, which sharded training does not have; use bf16 or fp32"
            )
        if self.model != "gpt" and self.activation_checkpointing != "none":
            findings.append(
                "activation_checkpointing is for the layers of model gpt, but model is "
                f"{self.model}; leave it at none"
            )
        return findings

    def degrees(self, world_size: int) -> Degrees:
        """Return the degrees for `world_size` ranks.

        The shard degree is `hybrid_shard_degree`. 0 means all ranks that the pipeline and tensor degrees leave, as
        in SMP v2. Example: 8 ranks with tensor_parallel_degree 2 leave 4 ranks. hybrid_shard_degree 2 then gives
        shard 2, tensor 2 and replicate 2; 0 gives shard 4, tensor 2 and replicate 1.

        Raises:
            HyperparameterError: the degrees do not fit the number of ranks or the model.
        """
        if findings := self.rank_findings(world_size):
            raise HyperparameterError(findings)
        sharing = world_size // (self.pipeline_parallel_degree * self.tensor_parallel_degree)
        shard = self.hybrid_shard_degree or sharing
        return Degrees(
            pipeline=self.pipeline_parallel_degree,
            replicate=sharing // shard,
            shard=shard,
            context=self.context_parallel_degree,
            tensor=self.tensor_parallel_degree,
        )

    def rank_findings(self, ranks: int) -> list[str]:
        """Return one sentence per degree that does not fit the number of ranks or the model."""
        return list(_degree_findings(self, ranks))


def _decoded(asked: Any) -> dict[str, Any]:
    if isinstance(asked, str):
        try:
            asked = json.loads(asked or "{}")
        except ValueError as error:
            message = f"{MODEL_PARALLEL} is not JSON ({error}); got {asked[:200]!r}"
            raise HyperparameterError(message) from error
    if asked is not None and not isinstance(asked, dict):
        raise HyperparameterError(f"{MODEL_PARALLEL} must be a JSON object, got {asked!r}")
    return dict(asked or {})


def _degree_findings(hp: ShardedHyperparameters, world_size: int) -> Iterator[str]:
    split = hp.pipeline_parallel_degree * hp.tensor_parallel_degree
    if world_size % split:
        yield (
            f"pipeline_parallel_degree {hp.pipeline_parallel_degree} x tensor_parallel_degree "
            f"{hp.tensor_parallel_degree} = {split} does not divide the {world_size} ranks; lower a degree, or change "
            "the number of ranks"
        )
        return
    sharing = world_size // split
    shard = hp.hybrid_shard_degree or sharing
    if sharing % shard:
        allowed = [number for number in range(1, sharing + 1) if sharing % number == 0]
        yield (
            f"hybrid_shard_degree {shard} does not divide the {sharing} ranks that the other degrees leave "
            f"({world_size} ranks / {split}); it may be 0 (all) or one of {allowed}"
        )
    elif shard % hp.context_parallel_degree:
        allowed = [number for number in range(1, shard + 1) if shard % number == 0]
        yield (
            f"context_parallel_degree {hp.context_parallel_degree} does not divide the {shard} ranks that "
            f"share one copy of the model's state (hybrid_shard_degree); it may be one of {allowed}"
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
    split = "num_heads" if hp.num_kv_heads is None else "num_kv_heads"
    if getattr(hp, split) % tensor:
        yield f"tensor_parallel_degree {tensor} does not divide {split} {getattr(hp, split)}; choose a divisor of it"
    if hp.tied_embeddings and max(tensor, pipeline) > 1:
        yield (
            f"tied_embeddings with tensor_parallel_degree {tensor} and pipeline_parallel_degree {pipeline}: the "
            "embedding and the logits need the same weights on one rank; set both degrees to 1 (hybrid_shard_degree "
            "shards the model)"
        )
    pieces = tensor * (2 * context if context > 1 else 1)
    if hp.sequence_length % pieces:
        by_context = f" x 2 x context_parallel_degree {context}" if context > 1 else ""
        yield (
            f"sequence_length {hp.sequence_length} is not a multiple of {pieces} (tensor_parallel_degree {tensor}"
            f"{by_context}); use a multiple of {pieces}, or change a degree"
        )
    if pipeline > hp.num_layers:
        yield f"pipeline_parallel_degree {pipeline} is more than num_layers {hp.num_layers}; lower it"
