"""`FineTuneConf`: the params of one `fine_tune` run, and their conversion to params of `train_own_script`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainyard.errors import Finding, not_an_s3_uri, unknown_key
from trainyard.installation import SHIPPED
from trainyard.specs.base_run_conf import BaseRunConf
from trainyard.specs.base_run_conf_rules import base_findings, choice_findings
from trainyard.specs.reading import FromMapping
from trainyard.specs.strategies.deepspeed import (
    HYPERPARAMETER as DS_CONFIG,
    stage_of,
    trainer_findings,
)

SOURCE_DIR = f"{SHIPPED}fine_tuning"
DEEPSPEED_REQUIREMENTS = "requirements_deepspeed.txt"
"""File of SOURCE_DIR with DeepSpeed, which AWS's images lack."""
ENTRY_POINT, EVALUATION_ENTRY_POINT = "train_sft.py", "evaluate_sft.py"
CHOICES = {
    "method": ("sft", "dpo"),
    "adapter": ("lora", "qlora", "none"),
    "strategy": ("ddp", "fsdp", "deepspeed"),
    "artifact": ("merged", "adapter"),
}
FURTHER_HYPERPARAMETERS = (
    *("load_in_8bit", "lora_alpha", "lora_dropout", "target_modules", "lr_scheduler"),
    *("warmup_steps", "weight_decay", "gradient_accumulation_steps", "beta", "eval_steps"),
    *("save_steps", "logging_steps", DS_CONFIG),
)
"""Hyperparameters of train_sft.py that have no field of their own."""
HUB_MODEL = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_OF_THE_SCRIPT = (
    *("method", "adapter", "rank", "learning_rate", "epochs", "max_steps", "max_length"),
    *("packing", "batch_size", "seed", "strategy", "artifact"),
)
"""Fields that are hyperparameters of train_sft.py under the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuneConf(BaseRunConf, FromMapping):
    """Settings of one fine-tuning, in addition to those of every run.

    Attributes:
        base_model: `s3://` prefix of a model that save_pretrained wrote, or a model's id on the Hugging Face
            hub.
        train_data: `s3://` prefix of `*.jsonl` files. For `sft`, a row is a chat, a prompt with its completion,
            or a text. For `dpo`, a row is a pair of answers to a prompt.
        validation_data: `s3://` prefix of held-out rows in the same form, for the evaluation; None = no
            evaluation.
        init_from: model of an earlier run from which the training starts: the `s3://` address of its
            model.tar.gz, or the prefix that contains this file. None = the base model.
        method: `sft` or `dpo`.
        adapter: `none` trains all weights, `lora` a LoRA adapter, `qlora` an adapter over a base that
            bitsandbytes quantizes.
        rank: rank of the adapter's matrices.
        learning_rate: peak learning rate; None = the default for the method and the adapter.
        epochs, max_steps: length of the training; `epochs` applies if `max_steps` is None.
        batch_size: sequences per rank and forward pass.
        max_length: largest number of tokens per sample.
        strategy: `ddp` keeps a whole model on each rank; `fsdp` shards weights, gradients and optimizer state
            over the ranks; `deepspeed` shards them by ZeRO, with the stage in the hyperparameter `ds_config`.
        artifact: `merged` = a whole model, `adapter` = the adapter only.
        register_when: condition for the registration; None = no condition. Without validation_data there is no
            metric, so the condition is ignored.
        environment: environment variables of the container, such as a hub's token.
    """

    base_model: str
    train_data: str
    instance_type: str = "ml.g5.2xlarge"
    instance_count: int = 1
    validation_data: str | None = None
    init_from: str | None = None
    method: str = "sft"
    adapter: str = "lora"
    rank: int = 16
    learning_rate: float | None = None
    epochs: float = 1.0
    max_steps: int | None = None
    batch_size: int = 4
    max_length: int = 1024
    packing: bool = False
    seed: int = 0
    strategy: str = "ddp"
    artifact: str = "merged"
    register_when: str | None = "gain > 0"
    environment: Mapping[str, str] = field(default_factory=dict)

    def findings(self) -> Iterator[Finding]:
        """Yield every fault of the conf that can be found without other data."""
        yield from base_findings(self)
        yield from choice_findings(self, CHOICES)
        yield from _addresses(self)
        yield from _unknown_hyperparameters(self)
        yield from _contradictions(self)
        yield from _sharding(self)
        yield from _zero(self)

    @property
    def is_from_hub(self) -> bool:
        """True if the base model comes from the hub."""
        return not self.base_model.startswith("s3://")

    @property
    def shards_weights(self) -> bool:
        """True if each rank has only a part of the weights."""
        return is_sharding_weights(self.strategy, self.hyperparameters)

    def script_params(self) -> dict[str, Any]:
        """Return the params of the own-script run (`ScriptConf`) that executes this fine-tuning."""
        inputs = {"train": self.train_data} | (
            {} if self.is_from_hub else {"model": self.base_model}
        )
        inputs |= {"init": self.init_from} if self.init_from else {}
        hyperparameters = {name: getattr(self, name) for name in _OF_THE_SCRIPT}
        hyperparameters |= {"hub_model": self.base_model} if self.is_from_hub else {}
        given = {name: value for name, value in hyperparameters.items() if value is not None}
        shared = {each.name: asdict(self)[each.name] for each in fields(BaseRunConf)}
        return {
            **shared,
            "entry_point": ENTRY_POINT,
            "source_dir": SOURCE_DIR,
            "requirements": DEEPSPEED_REQUIREMENTS if self.strategy == "deepspeed" else None,
            "framework": "huggingface",
            "environment": self.environment,
            "hyperparameters": {**given, **self.hyperparameters},
            **self._evaluation(inputs),
        }

    def _evaluation(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return those params of the own-script run that depend on the evaluation.

        With validation data, the training's `inputs` are returned with this data added. The evaluation's script and
        its own inputs are returned, too. Without validation data there is no evaluation. The result is then the
        unchanged `inputs`, with `register_when` = None.

        Args:
            inputs: inputs of the training.
        """
        if self.validation_data is None:
            return {"inputs": inputs, "register_when": None}
        base = {} if self.is_from_hub else {"base": self.base_model}
        return {
            "inputs": inputs | {"validation": self.validation_data},
            "evaluation_entry_point": EVALUATION_ENTRY_POINT,
            "evaluation_inputs": {**base, "test": self.validation_data},
        }


def is_sharding_weights(strategy: str, hyperparameters: Mapping[str, Any]) -> bool:
    """Return whether each rank has only a part of the weights: with FSDP, and with stage 3 of DeepSpeed's ZeRO."""
    stage = stage_of(hyperparameters.get(DS_CONFIG))
    return strategy == "fsdp" or (strategy == "deepspeed" and stage == 3)


def _addresses(conf: FineTuneConf) -> Iterator[Finding]:
    for name in ("train_data", "validation_data", "init_from"):
        value = getattr(conf, name)
        if value is not None and not value.startswith("s3://"):
            yield not_an_s3_uri(name, value)
    if conf.is_from_hub and not HUB_MODEL.fullmatch(conf.base_model):
        yield Finding(
            where="base_model",
            what="is neither an S3 URI nor a model of the Hugging Face hub",
            got=repr(conf.base_model),
            allowed="s3://bucket/prefix, or owner/name",
        )


def _unknown_hyperparameters(conf: FineTuneConf) -> Iterator[Finding]:
    for name in conf.hyperparameters:
        if name in _OF_THE_SCRIPT:
            yield Finding(
                where=f"hyperparameters.{name}",
                what="has its own field in the conf",
                next_step=f"set the field {name!r} instead",
            )
        elif name not in FURTHER_HYPERPARAMETERS:
            yield unknown_key("hyperparameters", name, list(FURTHER_HYPERPARAMETERS))


def _contradictions(conf: FineTuneConf) -> Iterator[Finding]:
    if conf.artifact == "adapter" and conf.adapter == "none":
        yield Finding(
            where="artifact",
            what='cannot be "adapter", because the run trains the whole model',
            got=f'artifact "{conf.artifact}" with adapter "{conf.adapter}"',
            next_step='set artifact to "merged", or adapter to "lora"',
        )
    if conf.packing and conf.method == "dpo":
        yield Finding(
            where="packing", what="is not supported by method dpo", next_step="set it to false"
        )
    if conf.adapter != "qlora" and conf.hyperparameters.get("load_in_8bit"):
        yield Finding(
            where="hyperparameters.load_in_8bit",
            what='quantizes the base model, so adapter must be "qlora"',
            got=f'adapter "{conf.adapter}"',
            next_step='set adapter to "qlora", or remove load_in_8bit',
        )


def _sharding(conf: FineTuneConf) -> Iterator[Finding]:
    """Yield the faults of a conf that concern sharding; none unless the strategy is `fsdp` or `deepspeed`."""
    if conf.shards_weights and conf.hyperparameters.get("load_in_8bit"):
        yield Finding(
            where="hyperparameters.load_in_8bit",
            what="cannot be combined with the strategy fsdp or ZeRO-3, which cannot shard an 8-bit base model",
            next_step="remove load_in_8bit (the base model then has 4 bits), shard with ZeRO stage 1 or 2, or use ddp",
        )
    for rung in conf.rungs if conf.strategy in ("fsdp", "deepspeed") else ():
        if conf.ranks_on(rung.instance_type) * (rung.instance_count or 1) == 1:
            yield Finding(
                where="strategy",
                what=f"is {conf.strategy}, but there is only one rank to shard over",
                got=f"1 x {rung.instance_type}",
                next_step="set strategy to ddp, or use a type with several GPUs or more instances",
            )


def _zero(conf: FineTuneConf) -> Iterator[Finding]:
    """Yield the faults of DeepSpeed's configuration."""
    if DS_CONFIG not in conf.hyperparameters:
        return
    if conf.strategy == "deepspeed":
        yield from trainer_findings(conf.hyperparameters[DS_CONFIG])
        return
    yield Finding(
        where=f"hyperparameters.{DS_CONFIG}",
        what="has no effect on this strategy",
        got=f"strategy {conf.strategy}",
        next_step='set strategy to "deepspeed", or remove ds_config',
    )
