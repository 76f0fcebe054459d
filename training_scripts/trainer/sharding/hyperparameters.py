"""Hyperparameters of train_fsdp.py in addition to those of train_ddp.py, also under their names in SMP v2."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.hyperparameters import Hyperparameters, findings_of, setting
from trainer.sharding.degrees import Degrees
from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
class ShardedHyperparameters(Hyperparameters):
    """Hyperparameters of sharded training."""

    hybrid_shard_degree: int = setting(
        0, "ranks that share one copy of the model's state; 0 = all (FSDP), 1 = each has it whole; "
        "between them HSDP", at_least=0,
    )  # fmt: skip
    tensor_parallel_degree: int = setting(
        1, "ranks that split each layer (gpt), and the sequence between layers", at_least=1
    )
    context_parallel_degree: int = setting(
        1, "ranks, of those that share a shard, that split each sample's sequence (gpt)", at_least=1
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
        """Return the values, with those of SMP's `mp_parameters` as hyperparameters.

        Raises:
            HyperparameterError: `mp_parameters` is not a JSON object, has an unknown key, requests expert parallelism,
                or contradicts a hyperparameter.
        """
        values = dict(given)
        asked = values.pop(MODEL_PARALLEL, None)
        parameters = _decoded(asked)
        experts = parameters.pop("expert_parallel_degree", 1)
        findings = []
        if str(experts) != "1":
            findings.append(
                f"{MODEL_PARALLEL}: expert_parallel_degree {experts!r}, but no model here has experts; leave it at 1"
            )
        for name, value in parameters.items():
            ours = OF_SMP.get(name)
            if ours is None and name not in WITHOUT_EFFECT:
                findings.append(
                    f"{MODEL_PARALLEL}: unknown key {name!r}; known are {', '.join(OF_SMP)}"
                )
            elif ours is not None and str(values.setdefault(ours, value)) != str(value):
                findings.append(
                    f"{ours} is {values[ours]!r} and {value!r} in {MODEL_PARALLEL}: set it once"
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
                "only the inputs of recomputed layers are offloaded; set activation_checkpointing full"
            )
        if self.precision == "fp16":
            findings.append(
                "precision fp16 needs a loss scaler, which shards do not have; use bf16"
            )
        if self.model != "gpt" and self.activation_checkpointing != "none":
            findings.append(f"activation_checkpointing is for layers of gpt; model is {self.model}")
        return findings

    def rank_findings(self, ranks: int) -> list[str]:
        """Return one sentence per degree that does not divide the ranks, or the heads, sequence or layers."""
        return findings_of(Degrees.of, self, ranks)


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
