"""DeepSpeed's configuration: its source, and the values that the trainer sets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trainer.hyperparameters import Hyperparameters, setting
from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainer.batching import BatchPlan

CHANNEL = "deepspeed"
HYPERPARAMETER = "ds_config"
DEFAULT: Mapping[str, Any] = {"zero_optimization": {"stage": 1}}
AUTO = "auto"
STAGES = (1, 2, 3)
OURS: Mapping[str, str] = {
    "optimizer": "not supported, because the script has its own AdamW; set learning_rate and weight_decay",
    "scheduler": "not supported, because the script has its own; set warmup_steps and learning_rate",
    "fp16": "not supported; set the section bf16, or the hyperparameter precision",
    "pipeline": "not supported; use train_fsdp.py, which has pipeline parallelism",
}
"""Sections of the configuration that the trainer does not support, and the alternative for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroHyperparameters(Hyperparameters):
    """Hyperparameters of a training with DeepSpeed."""

    ds_config: str = setting(
        "", f"DeepSpeed's configuration as a JSON object; empty: the one file of channel {CHANNEL}, or ZeRO 1"
    )  # fmt: skip

    @classmethod
    def load(cls, sm_hps: str, argv: Sequence[str] = ()) -> Self:
        """Return the values as `Hyperparameters.load` does, with the same errors.

        AWS's toolkit passes `ds_config` in SM_HPS and as a command-line option. The option is ignored if SM_HPS has
        `ds_config`, because the option's objects have the form `stage=1,...` instead of JSON.
        """
        given = list(argv)
        option = f"--{HYPERPARAMETER}"
        if option in given and f'"{HYPERPARAMETER}"' in sm_hps:
            place = given.index(option)
            del given[place : place + 2]
        loaded: Self = Hyperparameters.load.__func__(cls, sm_hps, given)  # type: ignore[attr-defined]  # slots: no super()
        return loaded

    @classmethod
    def translate(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given values; if `ds_config` is an object, it is converted to JSON text."""
        values = dict(given)
        if isinstance(values.get(HYPERPARAMETER), dict):
            values[HYPERPARAMETER] = json.dumps(values[HYPERPARAMETER])
        return values

    def contradictions(self) -> list[str]:
        """Return one sentence per contradictory combination of values, and per value not supported with DeepSpeed."""
        findings = Hyperparameters.contradictions(self)
        if self.precision == "fp16":
            findings.append(
                "precision fp16 needs a loss scaler, which sharded training does not have; use bf16 or fp32"
            )
        if self.on_non_finite != "fail":
            findings.append(
                f"on_non_finite {self.on_non_finite!r} is not possible under DeepSpeed, which reports the "
                "gradient norm only after the weights have changed; set on_non_finite to 'fail', or use "
                "train_ddp.py or train_fsdp.py"
            )
        if self.compile:
            findings.append("compile is not supported under DeepSpeed; leave it out")
        return findings


def read_config(text: str, channels: Mapping[str, Path]) -> dict[str, Any]:
    """Return DeepSpeed's configuration from one of two sources, or the default (ZeRO stage 1) if both are absent.

    The sources are the hyperparameter `ds_config` (`text`) and the JSON file in the channel `deepspeed`.

    Raises:
        HyperparameterError: the configuration is not a JSON object, both sources are given, or the channel does
            not have exactly one JSON file.
    """
    folder = channels.get(CHANNEL)
    if text and folder:
        raise HyperparameterError(
            f"hyperparameter {HYPERPARAMETER!r} and channel {CHANNEL!r} both have a DeepSpeed config; use one of them"
        )
    if folder is None:
        return _parsed(text, HYPERPARAMETER) if text else dict(DEFAULT)
    files = sorted(folder.glob("*.json"))
    if len(files) != 1:
        found = ", ".join(each.name for each in files) or "none"
        raise HyperparameterError(
            f"channel {CHANNEL!r} must have exactly one JSON file; it has {found}. Give the channel a prefix with a "
            f"single JSON file, or pass the config as hyperparameter {HYPERPARAMETER}"
        )
    return _parsed(files[0].read_text(encoding="utf-8"), f"channel {CHANNEL!r}, {files[0].name}")


def complete_config(
    written: Mapping[str, Any], plan: BatchPlan, *, clip_norm: float
) -> dict[str, Any]:
    """Return the configuration for DeepSpeed: `written` with the run's batch sizes and gradient clipping.

    If `written` already has one of these values, it must be that of the run, or "auto".

    Raises:
        HyperparameterError: a value contradicts the run, a section is not supported, or the stage is not 1, 2
            or 3; all findings at once.
    """
    runs = {
        "train_batch_size": plan.global_batch_size,
        "train_micro_batch_size_per_gpu": plan.micro_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
        "gradient_clipping": clip_norm,
    }
    findings = [
        f"{HYPERPARAMETER}.{name} is {instead}"
        for name, instead in OURS.items()
        if written.get(name) and _is_enabled(written[name])
    ]
    findings += [
        f"{HYPERPARAMETER}.{name} is {written[name]!r}, but the hyperparameters require {value!r}; write {value!r} or "
        f'"{AUTO}", or omit it'
        for name, value in runs.items()
        if written.get(name, AUTO) not in (AUTO, value)
    ]
    if stage_of(written) not in STAGES:
        findings.append(
            f"{HYPERPARAMETER}.zero_optimization.stage is {stage_of(written)}; allowed: 1, 2, 3. To train without "
            "sharding, use train_ddp.py"
        )
    if findings:
        raise HyperparameterError(findings)
    return {
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 31,
        **{name: value for name, value in written.items() if name not in OURS},
        **runs,
        "zero_allow_untested_optimizer": True,
        "managed_gradient_accumulation": False,  # each step decides when gradients are exchanged
    }


def stage_of(config: Mapping[str, Any]) -> int:
    """Return ZeRO's stage, 0 to 3."""
    section = config.get("zero_optimization")
    return int(section.get("stage", 0)) if isinstance(section, dict) else 0


def casts_itself(config: Mapping[str, Any]) -> bool:
    """Return whether DeepSpeed itself casts to a lower precision.

    It does so if the section `bf16` or `torch_autocast` of its configuration is enabled. With `bf16` the model
    is in bf16. With `torch_autocast` DeepSpeed enters autocast.
    """
    return any(_is_enabled(config.get(name), default=False) for name in ("bf16", "torch_autocast"))


def _is_enabled(section: Any, *, default: bool = True) -> bool:
    return bool(section.get("enabled", default)) if isinstance(section, dict) else default


def _parsed(text: str, where: str) -> dict[str, Any]:
    """Return the object in a JSON text.

    Raises:
        HyperparameterError: the text is not JSON, or not an object.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise HyperparameterError(
            f"{where} is not JSON ({error}); allowed: a JSON object"
        ) from error
    if not isinstance(found, dict):
        raise HyperparameterError(f"{where} must be a JSON object, got {type(found).__name__}")
    return found
