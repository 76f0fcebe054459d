"""Llama weights in Hugging Face's files: the names of the tensors in these files, a reader and a writer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from trainer.llama.config import CONFIG_FILE, read_config, shape_findings, write_config
from trainer.llama.safetensors import MAX_FILE_BYTES, SafetensorsFolder, write_files
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor, nn

    from trainer.decoder_config import GPTConfig

OUTSIDE = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
IN_LAYER = {
    "attention_norm.weight": ("input_layernorm.weight",),
    "attention.query_key_value.weight": (
        *("self_attn.q_proj.weight", "self_attn.k_proj.weight"),
        "self_attn.v_proj.weight",
    ),
    "attention.output.weight": ("self_attn.o_proj.weight",),
    "feed_forward_norm.weight": ("post_attention_layernorm.weight",),
    "feed_forward.gate_up.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "feed_forward.down.weight": ("mlp.down_proj.weight",),
}
"""Our parameter of a layer -> Hugging Face's parameters, whose rows are concatenated in ours."""
UNUSED = ("rotary_emb.inv_freq", "lm_head.weight")
"""Endings of the names of tensors that are not read: frequencies, which follow from the config, and the copy of a tied
embedding."""
_MOST_NAMED = 5


def parts_of(name: str, config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Return Hugging Face's tensors that make up our parameter `name`, with their shapes.

    Example: `blocks.0.feed_forward.gate_up.weight` has the rows of `model.layers.0.mlp.gate_proj.weight` above those of
    `up_proj`.
    """
    width, inner = config.hidden_size, config.inner_size
    kv_width = config.head_size * config.key_value_heads
    if name in OUTSIDE:
        return {OUTSIDE[name]: (width,) if name == "norm.weight" else (config.vocab_size, width)}
    _, layer, rest = name.split(".", 2)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "attention.query_key_value.weight": [(width, width), (kv_width, width), (kv_width, width)],
        "attention.output.weight": [(width, width)],
        "feed_forward.gate_up.weight": [(inner, width), (inner, width)],
        "feed_forward.down.weight": [(width, inner)],
    }
    names = [f"model.layers.{layer}.{each}" for each in IN_LAYER[rest]]
    return dict(zip(names, shapes.get(rest, [(width,)]), strict=True))


def parameter_names(config: GPTConfig) -> Iterator[str]:
    """Yield the names of a decoder's parameters, in the order of the model's `state_dict`."""
    yield "embedding.weight"
    for layer in range(config.num_layers):
        yield from (f"blocks.{layer}.{each}" for each in IN_LAYER)
    yield "norm.weight"
    if not config.tied_embeddings:
        yield "head.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCheckpoint:
    """Weights of a decoder in a folder of Hugging Face's files.

    Attributes:
        config: the decoder's configuration.
        content: the content of config.json.
        files: the tensors.
    """

    config: GPTConfig
    content: Mapping[str, Any]
    files: SafetensorsFolder

    @classmethod
    def open(cls, folder: Path, *, ours: GPTConfig | None = None) -> Self:
        """Read config.json and the headers of the files; the weights are read when they are used.

        Args:
            folder: folder of the files, as `save_pretrained` writes them.
            ours: the decoder to fill. None: the decoder that config.json describes.

        Raises:
            DataError: a file is missing or damaged, the model is not a Llama that our decoder supports, tensors are
                missing, unknown or of another shape, or the model is not `ours`.
        """
        path = folder / CONFIG_FILE
        try:
            content = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path} cannot be read ({error}); expected a folder that save_pretrained or a training job wrote"
            ) from error
        theirs = read_config(content, file=str(path))
        if ours is not None and (findings := shape_findings(ours, theirs, file=str(path))):
            raise DataError(findings)
        files = SafetensorsFolder.open(folder)
        findings = list(_tensor_findings(files, theirs, where=str(folder)))
        if findings:
            raise DataError(findings)
        return cls(config=ours or theirs, content=content, files=files)

    @torch.no_grad()
    def fill(self, module: nn.Module, prefix: str = "") -> None:
        """Copy the weights into a decoder, or into a submodule whose name in the decoder is `prefix`."""
        for name, parameter in module.named_parameters(prefix):
            parameter.copy_(self.weight(name))

    def weight(self, name: str) -> Tensor:
        """Return the weight of the decoder's parameter `name`.

        If `write_llama` wrote the files, the tensor is a view of the mapped file, not a copy.
        """
        return self.files.rows(parts_of(name, self.config))

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the decoder's parameters with their names."""
        yield from ((name, self.weight(name)) for name in parameter_names(self.config))

    def fingerprint(self) -> str:
        """Return a SHA-256 of config.json, the tensors' headers, and the last MiB of each file of weights."""
        content = json.dumps(self.content, sort_keys=True)
        return hashlib.sha256(f"{content} {self.files.fingerprint()}".encode()).hexdigest()


def _tensor_findings(files: SafetensorsFolder, config: GPTConfig, *, where: str) -> Iterator[str]:
    names = (parts_of(each, config) for each in parameter_names(config))
    expected = {name: shape for parts in names for name, shape in parts.items()}
    found = {name: each.shape for name, each in files.tensors.items()}
    missing = [name for name in expected if name not in found]
    extra = [n for n in found if n not in expected and not n.endswith(UNUSED)]
    if missing:
        yield f"{where} lacks {len(missing)} tensors of its config.json: {_named(missing)}; upload all files again"
    if extra:
        yield (
            f"{where} has {len(extra)} tensors that a Llama of its config.json does not have: {_named(extra)}; merge "
            "adapters, and remove other weights, before the training"
        )
    wrong = [
        f"{name} has the shape {list(found[name])}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    if wrong:
        yield f"{where} does not match its config.json: {_named(wrong)}; upload config.json and weights of one model"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def write_llama(
    folder: Path,
    weights: Mapping[str, Tensor],
    config: GPTConfig,
    *,
    like: Mapping[str, Any],
    max_file_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Write a decoder's state as config.json and safetensors files, which transformers reads as LlamaForCausalLM.

    `like` has further settings of config.json (`write_config`).
    """

    def split(name: str) -> dict[str, Tensor]:
        parts = parts_of(name, config)
        rows = weights[name].split([shape[0] for shape in parts.values()])
        return dict(zip(parts, rows, strict=True))

    groups = (split(name) for name in parameter_names(config))
    write_files(folder, groups, max_file_bytes=max_file_bytes)
    dtype = str(weights["embedding.weight"].dtype).removeprefix("torch.")
    content = write_config(config, dtype=dtype, like=like)
    (folder / CONFIG_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
