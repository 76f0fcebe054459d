"""`Options`: the hyperparameters of one fine-tuning, each declared once as a field."""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from sft.errors import FineTuningError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CHOICES = {
    "method": ("sft", "dpo"),
    "adapter": ("none", "lora", "qlora"),
    "strategy": ("ddp", "fsdp", "deepspeed"),
    "artifact": ("merged", "adapter"),
}
LEARNING_RATES = {
    ("sft", "none"): 2e-5,
    ("sft", "lora"): 2e-4,
    ("dpo", "none"): 1e-6,
    ("dpo", "lora"): 1e-5,
}
"""Peak learning rates of TRL's documentation, by method and adapter (SFTTrainer and DPOTrainer, "Train adapters")."""
ZERO_2: dict[str, Any] = {"zero_optimization": {"stage": 2}}
STAGES = (1, 2, 3)
OF_THE_RUN = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    "gradient_clipping",
)
"""Keys of DeepSpeed's configuration that may only be `auto`, because the run has other options for them."""
NOT_SUPPORTED = ("optimizer", "scheduler", "fp16", "amp", "pipeline", "tensor_parallel")
"""Sections of DeepSpeed's configuration that the trainer does not support."""
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Hyperparameters of one run. None means that the value is derived from the others.

    Attributes:
        method: `sft` learns answers, `dpo` prefers one answer of two.
        adapter: `none` trains every weight; `qlora` is LoRA over a base in 4 bits.
        load_in_8bit: with `qlora`, the base has 8 bits instead of 4.
        rank: rank of the adapter's matrices.
        lora_alpha: scale of the adapter; None = twice the rank.
        lora_dropout: dropout of the adapter's input.
        target_modules: modules with an adapter: `all-linear`, or names separated by commas.
        max_length: tokens of one sample; longer samples are truncated at the end.
        packing: pack several samples into one sequence, each with attention to itself only.
        epochs: passes over the rows, if max_steps is 0.
        max_steps: optimizer steps; 0 = by epochs.
        batch_size: sequences per rank in one pass.
        gradient_accumulation_steps: passes per optimizer step.
        beta: DPO's weight of the distance to the reference model.
        strategy: `ddp` keeps a whole model on each rank; `fsdp` shards weights, gradients and optimizer state (FSDP2);
            `deepspeed` shards them by ZeRO.
        ds_config: DeepSpeed's configuration as a JSON object; None = ZeRO stage 2.
        eval_steps: steps between two evaluations on the channel `validation`; 0 = none during the training.
        artifact: `merged` = a whole model; `adapter` = the adapter's weights only.
        hub_model: a model of the Hugging Face hub, if the job has no channel `model`.
    """

    method: str = "sft"
    adapter: str = "lora"
    load_in_8bit: bool = False
    rank: int = 16
    lora_alpha: int | None = None
    lora_dropout: float = 0.0
    target_modules: str = "all-linear"
    max_length: int = 1024
    packing: bool = False
    learning_rate: float | None = None
    lr_scheduler: str = "linear"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    epochs: float = 1.0
    max_steps: int = 0
    batch_size: int = 4
    gradient_accumulation_steps: int = 1
    beta: float = 0.1
    strategy: str = "ddp"
    ds_config: str | None = None
    eval_steps: int = 0
    save_steps: int = 50
    logging_steps: int = 1
    seed: int = 0
    artifact: str = "merged"
    hub_model: str | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            FineTuningError: a value is not valid; the message has all findings.
        """
        if wrong := list(_faults(self)):
            raise FineTuningError("; ".join(wrong))

    @classmethod
    def read(cls, argv: Sequence[str] | None = None, *, sm_hps: str = "{}") -> Options:
        """Return the options of a command line; an unknown option ends the process with code 2.

        If `ds_config` is an object in `sm_hps`, this object replaces the value on the command line. The reason is
        that AWS's toolkit writes an object on the command line in the form `stage=1,...`, which is not JSON.

        Args:
            argv: the arguments; None = those of this process.
            sm_hps: the hyperparameters as JSON, the toolkit's SM_HPS.

        Raises:
            FineTuningError: values are out of range or contradict each other, or the strategy's library is
                missing.
        """
        parser = argparse.ArgumentParser(allow_abbrev=False)
        for each in fields(cls):
            default = None if each.default is MISSING else each.default
            parser.add_argument(f"--{each.name}", type=_reader(str(each.type)), default=default)
        given = vars(parser.parse_args(argv))
        config = json.loads(sm_hps).get("ds_config")
        made = cls(
            **given | ({"ds_config": json.dumps(config)} if isinstance(config, dict) else {})
        )
        if made.strategy == "deepspeed" and importlib.util.find_spec("deepspeed") is None:
            raise FineTuningError(
                "strategy 'deepspeed' needs DeepSpeed, which this image lacks; set requirements to "
                "requirements_deepspeed.txt, or strategy to 'fsdp'"
            )
        return made

    @property
    def has_adapter(self) -> bool:
        """True if an adapter is trained and the base model's weights are frozen."""
        return self.adapter != "none"

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate, by default that of TRL's documentation for method and adapter."""
        kind = "lora" if self.has_adapter else "none"
        return self.learning_rate or LEARNING_RATES[self.method, kind]

    @property
    def zero_config(self) -> dict[str, Any]:
        """DeepSpeed's configuration."""
        found: dict[str, Any] = json.loads(self.ds_config) if self.ds_config else ZERO_2
        return found

    @property
    def shards_weights(self) -> bool:
        """True if each rank has only a part of the weights."""
        if self.strategy == "deepspeed":
            return bool(self.zero_config["zero_optimization"]["stage"] == 3)
        return self.strategy == "fsdp"

    @property
    def is_bf16(self) -> bool | None:
        """The setting of bf16 in DeepSpeed's configuration.

        None if there is no setting, or if it is `auto`. The hardware then decides.
        """
        section = self.zero_config.get("bf16") if self.strategy == "deepspeed" else None
        enabled = section.get("enabled", "auto") if section else "auto"
        return None if enabled == "auto" else bool(enabled)

    @property
    def targets(self) -> str | list[str]:
        """The modules that get an adapter, as PEFT's `target_modules`."""
        names = [name.strip() for name in self.target_modules.split(",")]
        return names[0] if names == ["all-linear"] else names


def _reader(type_name: str) -> Callable[[str], Any]:
    """Return the parser of a field's type.

    The parser of an optional field returns None for the texts "None" and "null", and for an empty text: SageMaker's
    training toolkit passes a hyperparameter with the value None as an empty text.
    """
    readers: Mapping[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "str": str,
        "bool": _boolean,
    }
    name, _, is_optional = type_name.partition(" | ")
    if not is_optional:
        return readers[name]

    def optional(text: str) -> Any:
        return None if text in {"", "None", "null"} else readers[name](text)

    optional.__name__ = name  # argparse's error has it
    return optional


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join((*_TRUE, *_FALSE))}")


def _faults(options: Options) -> list[str]:
    faults = [
        f"{name} is {getattr(options, name)!r}; allowed: {', '.join(allowed)}"
        for name, allowed in CHOICES.items()
        if getattr(options, name) not in allowed
    ]
    least = {"rank": 1, "max_length": 2, "batch_size": 1, "gradient_accumulation_steps": 1}
    least |= {"save_steps": 1, "logging_steps": 1, "max_steps": 0, "eval_steps": 0}
    faults += [
        f"{name} is {getattr(options, name)}; allowed: at least {number}"
        for name, number in least.items()
        if getattr(options, name) < number
    ]
    if options.max_steps == 0 and options.epochs <= 0:
        faults.append(f"epochs is {options.epochs:g}, and max_steps is 0; set one of them above 0")
    if options.artifact == "adapter" and not options.has_adapter:
        faults.append("artifact is 'adapter', but adapter is 'none'; set artifact to 'merged'")
    if options.load_in_8bit and options.adapter != "qlora":
        faults.append(
            f"load_in_8bit is set, but adapter is {options.adapter!r}; set adapter to 'qlora'"
        )
    if options.load_in_8bit and options.strategy == "fsdp":
        faults.append(
            "strategy fsdp cannot shard an 8-bit base model; set load_in_8bit to false, or strategy to 'ddp'"
        )
    if options.packing and options.method == "dpo":
        faults.append("packing is not supported with method dpo; set packing to false")
    if options.adapter == "qlora" and importlib.util.find_spec("bitsandbytes") is None:
        faults.append(
            "adapter 'qlora' needs bitsandbytes, which this image lacks; add it to the image, or set adapter to 'lora'"
        )
    return faults + _zero_faults(options)


def _zero_faults(options: Options) -> list[str]:
    """Return the faults of the strategy `deepspeed` and of its configuration."""
    if options.strategy != "deepspeed":
        if options.ds_config:
            return [
                f"ds_config is set, but strategy is {options.strategy!r}; set strategy to 'deepspeed', or remove it"
            ]
        return []
    try:
        config = options.zero_config
        stage = config.get("zero_optimization", {}).get("stage", 0)
    except (ValueError, AttributeError):
        return [
            f"ds_config is not a JSON object with the object zero_optimization: {options.ds_config!r}"
        ]
    faults = [
        f"ds_config.{name} is set by the trainer; remove it"
        for name in (*OF_THE_RUN, *NOT_SUPPORTED)
        if name in config and (name in NOT_SUPPORTED or config[name] != "auto")
    ]
    if stage not in STAGES:
        faults.append(f"ds_config.zero_optimization.stage is {stage!r}; allowed: 1, 2, 3")
    if stage == 3 and options.load_in_8bit:
        faults.append(
            "ZeRO-3 cannot shard an 8-bit base model; set load_in_8bit to false, or the stage to 1 or 2"
        )
    return faults
