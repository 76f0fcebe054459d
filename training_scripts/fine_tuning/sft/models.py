"""Base model, tokenizer and adapter of a fine-tuning, from a channel or the hub."""

from __future__ import annotations

import os
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from sft.errors import FineTuningError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from sft.options import Options

ADAPTER_CONFIG = "adapter_config.json"
ARCHIVE = "model.tar.gz"
BASE, START = "model", "init"
"""Channels: the base model, and the model or adapter of an earlier fine-tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOrigin:
    """Source of the weights that a run starts from.

    Attributes:
        base: folder of the base model, or its id on the hub.
        start: folder of an earlier run's model or adapter; None = the base itself.
    """

    base: str
    start: Path | None = None

    @classmethod
    def of_job(cls, options: Options, channels: Mapping[str, Path]) -> ModelOrigin:
        """Return the origin of a job's model.

        Raises:
            FineTuningError: the job has neither a channel `model` nor a hub model, or a channel has no model.
        """
        start = unpacked(channels[START]) if START in channels else None
        if BASE in channels:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else PEFT queries the hub about the base
            return cls(base=str(unpacked(channels[BASE])), start=start)
        if options.hub_model:
            return cls(base=options.hub_model, start=start)
        raise FineTuningError(
            "the job has no base model; add the channel `model` or the hyperparameter hub_model"
        )

    @property
    def continues_adapter(self) -> bool:
        """True if the run continues to train an earlier run's adapter."""
        return self.start is not None and (self.start / ADAPTER_CONFIG).is_file()

    @property
    def weights(self) -> str:
        """The folder or hub id of the whole model to load."""
        return self.base if self.start is None or self.continues_adapter else str(self.start)


def unpacked(folder: Path) -> Path:
    """Return a folder with a model's files; a model.tar.gz is unpacked to a temporary folder.

    Raises:
        FineTuningError: the folder has no model.
    """
    archives = sorted(folder.rglob(ARCHIVE))
    if archives:
        place = Path(tempfile.mkdtemp(prefix="model-"))
        with tarfile.open(archives[0]) as archive:
            archive.extractall(place, filter="data")
        return place
    found = sorted((*folder.rglob("config.json"), *folder.rglob(ADAPTER_CONFIG)))
    if not found:
        raise FineTuningError(
            f"{folder} has neither config.json nor {ADAPTER_CONFIG} nor {ARCHIVE}; use the prefix of a model that "
            "save_pretrained wrote, or the model.tar.gz of an earlier run"
        )
    return min((path.parent for path in found), key=lambda path: len(path.parts))


def load_tokenizer(origin: ModelOrigin) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the earlier run, or the base model's if the earlier run has none."""
    start = origin.start
    has_own = start is not None and (start / "tokenizer_config.json").is_file()
    return AutoTokenizer.from_pretrained(start if has_own else origin.base)


def load_model(options: Options, origin: ModelOrigin) -> PreTrainedModel | PeftModel:
    """Return the model for the trainer: whole, or with the adapter of an earlier run.

    Full fine-tuning keeps weights in float32. With an adapter, the base weights are bf16 on GPUs with bf16, and in 4
    bits for qlora.

    Raises:
        FineTuningError: the channel `init` has an adapter, but the option `adapter` is `none`.
    """
    if origin.continues_adapter and not options.has_adapter:
        raise FineTuningError(
            "the channel init has an adapter, but adapter is 'none'; set adapter to lora, or start from a merged model"
        )
    model = AutoModelForCausalLM.from_pretrained(origin.weights, **_load_arguments(options))
    if origin.continues_adapter:
        return PeftModel.from_pretrained(model, str(origin.start), is_trainable=True)
    return model


def adapter_config(options: Options, origin: ModelOrigin) -> PeftConfig | None:
    """Return the configuration of the adapter that the trainer adds, or None if it adds none."""
    if not options.has_adapter or origin.continues_adapter:
        return None
    return LoraConfig(
        r=options.rank,
        lora_alpha=options.lora_alpha or 2 * options.rank,
        lora_dropout=options.lora_dropout,
        target_modules=options.targets,
        task_type="CAUSAL_LM",
    )


def has_bf16() -> bool:
    """Return whether this rank has a GPU that supports bf16 natively."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def _load_arguments(options: Options) -> dict[str, Any]:
    if options.adapter == "qlora":
        from transformers import BitsAndBytesConfig  # noqa: PLC0415  # as bitsandbytes, by images that have it

        dtype = torch.bfloat16 if has_bf16() else torch.float32
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
        return {"quantization_config": quantization, "dtype": dtype}
    is_half = options.has_adapter and has_bf16()
    return {"dtype": torch.bfloat16 if is_half else torch.float32}
