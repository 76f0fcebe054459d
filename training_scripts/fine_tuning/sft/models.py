"""Base model, tokenizer and adapter of a fine-tuning, from a channel or the hub."""

from __future__ import annotations

import os
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from sft.errors import FineTuningError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peft import PeftConfig
    from torch import Tensor
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
            FineTuningError: the job has neither a channel `model` nor a hub model, or a channel has no model. Also
                raised if the option `artifact` is `adapter`, but the channel `init` has a whole model: an adapter
                trained on the model in `init` would not fit the base model.
        """
        start = unpacked(channels[START]) if START in channels else None
        if start and options.artifact == "adapter" and not is_adapter(start):
            raise FineTuningError(
                "channel 'init' has a whole model, but artifact is 'adapter', and an adapter of that model does not "
                "fit the base model; set base_model to the address in init_from, and remove init_from (in a job: the "
                "channels model and init), or set artifact to 'merged'"
            )
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
        return self.start is not None and is_adapter(self.start)

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


def is_adapter(folder: Path) -> bool:
    """Return whether a folder has an adapter, not a whole model."""
    return (folder / ADAPTER_CONFIG).is_file()


def load_tokenizer(origin: ModelOrigin) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model that the run starts from.

    `origin.start` is the folder of an earlier run's model or adapter. If it is None or has no tokenizer, the
    base model's tokenizer is returned.
    """
    start = origin.start
    has_own = start is not None and (start / "tokenizer_config.json").is_file()
    return AutoTokenizer.from_pretrained(start if has_own else origin.base)


def load_model(
    options: Options, origin: ModelOrigin, *, is_quantized: bool
) -> PreTrainedModel | PeftModel:
    """Return the model that a run starts from: whole, or with the adapter of an earlier run.

    Full fine-tuning keeps weights in float32. With an adapter, the base weights are bf16 on GPUs with bf16, or have 4
    or 8 bits if `is_quantized`.

    Raises:
        FineTuningError: the channel `init` has an adapter, but the option `adapter` is `none`.
    """
    if origin.continues_adapter and not options.has_adapter:
        raise FineTuningError(
            "the channel init has an adapter, but adapter is 'none'; set adapter to 'lora', or start from a merged "
            "model"
        )
    model = AutoModelForCausalLM.from_pretrained(
        origin.weights, **_load_arguments(options, is_quantized=is_quantized)
    )
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


def adapter_weights(model: PreTrainedModel | PeftModel) -> dict[str, Tensor]:
    """Return copies of the trainable weights of a model's adapter, by name.

    The adapter is that of an earlier run. If the model has no adapter, the result is empty.
    """
    if not isinstance(model, PeftModel):
        return {}
    return {name: each.clone() for name, each in model.named_parameters() if each.requires_grad}


def set_float32(model: PeftModel, earlier: Mapping[str, Tensor]) -> None:
    """Convert the weights of an adapter over a quantized base model to float32.

    Without this conversion, the adapter would be bf16 at the start of a training (TRL 1.16), and float32
    after a resume (PEFT).

    Args:
        model: the model with the adapter.
        earlier: weights of an earlier run's adapter, copied before TRL converted them, by name. They replace
            the converted weights. Empty for a new adapter.
    """
    trained = ((name, each) for name, each in model.named_parameters() if each.requires_grad)
    for name, each in trained:
        each.data = earlier.get(name, each).detach().float()


def whole_model(
    options: Options, origin: ModelOrigin, trained: Mapping[str, Tensor]
) -> PreTrainedModel | PeftModel:
    """Return the model that a run started from, with the run's trained weights, on the CPU and not quantized.

    Args:
        options: the options of the run.
        origin: the origin of its model.
        trained: the trained weights by their names in the trainer's model.

    Raises:
        FineTuningError: `trained` lacks a weight that a run with these options trains, or has a name that the
            model lacks.
    """
    model = load_model(options, origin, is_quantized=False)
    added = adapter_config(options, origin)
    if added is not None:
        model = get_peft_model(model, added)
    missing = {
        name for name, each in model.named_parameters() if each.requires_grad
    } - trained.keys()
    unexpected = model.load_state_dict(trained, strict=False).unexpected_keys
    if missing or unexpected:
        raise FineTuningError(
            f"the trained weights do not fit the base model: {len(missing)} missing and {len(unexpected)} unexpected "
            f"names, such as {[*missing, *unexpected][0]}; use an image with the versions in docs/fine_tuning.md, or "
            "set strategy to 'ddp'"
        )
    return model


def num_bytes(model: nn.Module, options: Options) -> int:
    """Return the approximate bytes of the weights in the artifact: the adapter's, or those of the whole model.

    The size of a quantized linear layer is that of its weights before the quantization.
    """
    if isinstance(model, PeftModel) and options.artifact == "adapter":
        trained = (each for each in model.parameters() if each.requires_grad)
        return sum(_num_weights(each) * each.itemsize for each in trained)
    linear = [each for each in model.modules() if isinstance(each, nn.Linear)]
    others = (each for each in model.modules() if not isinstance(each, nn.Linear))
    num_weights = sum(each.in_features * each.out_features for each in linear)
    num_weights += sum(
        _num_weights(each) for other in others for each in other.parameters(recurse=False)
    )
    return num_weights * _dtype(options).itemsize


def _num_weights(parameter: nn.Parameter) -> int:
    """Return a parameter's number of elements; ZeRO-3 empties its parameters, and keeps the number in `ds_numel`."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def has_bf16() -> bool:
    """Return whether this rank has a GPU that supports bf16 natively."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def uses_bf16(options: Options) -> bool:
    """Return whether a run computes in bf16."""
    return has_bf16() if options.is_bf16 is None else options.is_bf16


def _dtype(options: Options) -> torch.dtype:
    return torch.bfloat16 if options.has_adapter and uses_bf16(options) else torch.float32


def _load_arguments(options: Options, *, is_quantized: bool) -> dict[str, Any]:
    dtype = _dtype(options)
    if is_quantized:
        from transformers import BitsAndBytesConfig  # noqa: PLC0415  # as bitsandbytes, by images that have it

        quantization = BitsAndBytesConfig(
            load_in_8bit=options.load_in_8bit,
            load_in_4bit=not options.load_in_8bit,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            # FSDP and ZeRO-3 shard no integers.
            bnb_4bit_quant_storage=dtype if options.shards_weights else torch.uint8,
        )
        return {"quantization_config": quantization, "dtype": dtype}
    return {"dtype": dtype}
