"""Llama's config.json as a decoder's configuration, and back. No framework is imported.

Source: `LlamaConfig` of transformers 4 and 5. Version 4 stores the rotary settings as `rope_theta` and
`rope_scaling`, version 5 stores them as `rope_parameters`. `write_config` writes the names of version 4,
because both versions read them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainer.decoder_config import GPTConfig, RopeScaling
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHANNEL = "init"
"""Channel of a training's initial weights."""
CONFIG_FILE = "config.json"
ARCHITECTURE, MODEL_TYPE = "LlamaForCausalLM", "llama"
USUAL_THETA, USUAL_EPS = 10_000.0, 1e-6  # of LlamaConfig
ROPE_TYPES = ("default", "llama3")
FIXED: Mapping[str, Any] = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "quantization_config": None,
}
"""Settings of config.json that have one value in our decoder, which is also the default of LlamaConfig."""
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size"),
    *("num_hidden_layers", "num_attention_heads"),
)
COMPARED = (
    *("num_layers", "num_heads", "hidden_size", "num_kv_heads", "feed_forward_size"),
    *("norm_eps", "rope_theta", "rope_scaling", "tied_embeddings"),
)
"""Hyperparameters that must equal a checkpoint's. The vocabulary, which the data set has, is compared separately."""


def read_config(content: Any, *, file: str, sequence_length: int = 1) -> GPTConfig:
    """Return the configuration of our decoder for the weights of a Llama model, from the model's config.json.

    Args:
        content: the parsed content of config.json.
        file: name of the file for the error.
        sequence_length: tokens of one sample; the file's `max_position_embeddings` is not a limit.

    Raises:
        DataError: the model is not a Llama, or has a setting that the decoder does not have; all findings at once.
    """
    if not isinstance(content, dict):
        raise DataError(f"{file} is not a JSON object; expected the config.json of a Llama model")
    kind = content.get("model_type")
    if kind != MODEL_TYPE:
        raise DataError(
            f"{file} has model_type {kind!r}; allowed is {MODEL_TYPE!r}; fine-tune other architectures with the DAG "
            "fine_tune"
        )
    findings = [f"{file}: {each}" for each in _findings(content)]
    if findings:
        raise DataError(findings)
    heads = content["num_attention_heads"]
    kv_heads = content.get("num_key_value_heads") or heads
    rope = _rope(content)
    return GPTConfig(
        vocab_size=content["vocab_size"],
        num_layers=content["num_hidden_layers"],
        num_heads=heads,
        hidden_size=content["hidden_size"],
        sequence_length=sequence_length,
        num_kv_heads=kv_heads,
        feed_forward_size=content["intermediate_size"],
        norm_eps=float(content.get("rms_norm_eps", USUAL_EPS)),
        rope_theta=float(rope.get("rope_theta", USUAL_THETA)),
        rope_scaling=_scaling(rope),
        tied_embeddings=bool(content.get("tie_word_embeddings", False)),
    )


def _findings(content: Mapping[str, Any]) -> Iterator[str]:
    for name, value in FIXED.items():
        if content.get(name, value) != value:
            yield f"{name} is {content[name]!r}; our decoder supports only {value!r}"
    lacking = [name for name in SIZES if not _is_count(content.get(name))]
    for name in lacking:
        yield f"{name} is {content.get(name)!r}; allowed is a whole number above 0"
    rope = _rope(content)
    kind = _rope_type(rope)
    if kind not in ROPE_TYPES:
        yield f"the rope type is {kind!r}; allowed are {' and '.join(ROPE_TYPES)}"
    elif kind != ROPE_TYPES[0]:
        try:
            _scaling(rope)
        except ValueError as error:
            yield f"rope_scaling is not valid: {error}"
    if not lacking:
        yield from _head_findings(content)


def _head_findings(content: Mapping[str, Any]) -> Iterator[str]:
    width, heads = content["hidden_size"], content["num_attention_heads"]
    kv_heads = content.get("num_key_value_heads") or heads
    if width % (2 * heads):
        yield f"hidden_size {width} is not a multiple of 2 x num_attention_heads {heads}"
        return
    if not _is_count(kv_heads) or heads % kv_heads:
        yield f"num_key_value_heads {kv_heads!r} does not divide num_attention_heads {heads}"
    size = content.get("head_dim") or width // heads
    if size * heads != width:
        yield f"head_dim is {size!r}; our decoder supports only {width // heads}, hidden_size / num_attention_heads"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _rope(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary settings in one dict: `rope_theta`, `rope_type` and the settings of the type."""
    old = {"rope_theta": content["rope_theta"]} if "rope_theta" in content else {}
    return {**old, **(content.get("rope_scaling") or {}), **(content.get("rope_parameters") or {})}


def _rope_type(rope: Mapping[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", ROPE_TYPES[0]))


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any] | None:
    if _rope_type(rope) == ROPE_TYPES[0]:
        return None
    return RopeScaling.of({n: v for n, v in rope.items() if n != "rope_theta"}).to_dict()


def shape_findings(ours: GPTConfig, theirs: GPTConfig, *, file: str) -> list[str]:
    """Return the differences between the decoder `ours` and the checkpoint's `theirs`, as at most two sentences.

    One sentence lists all values of the shape that differ. The other reports different vocabulary sizes.
    `file` is the checkpoint's config file, for the sentences.
    """
    differing = {
        name: (_effective(ours, name), _effective(theirs, name))
        for name in COMPARED
        if _effective(ours, name) != _effective(theirs, name)
    }
    findings = []
    if differing:
        differences = ", ".join(
            f"{name} is {here!r} instead of {there!r}" for name, (here, there) in differing.items()
        )
        wanted = json.dumps({name: there for name, (_, there) in differing.items()})
        findings.append(
            f"the hyperparameters describe another model than {file}: {differences}; set {wanted}"
        )
    if ours.vocab_size != theirs.vocab_size:
        findings.append(
            f"the data set has a vocabulary of {ours.vocab_size} tokens, but {file} has vocab_size "
            f"{theirs.vocab_size}; tokenize the data with the model's own tokenizer.json"
        )
    return findings


def _effective(config: GPTConfig, name: str) -> Any:
    match name:
        case "num_kv_heads":
            return config.key_value_heads
        case "feed_forward_size":
            return config.inner_size
        case _:
            return getattr(config, name)


def write_config(config: GPTConfig, *, dtype: str, like: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of config.json.

    `like` has further settings to keep, such as the ids of special tokens. If the training began with the
    weights of a model, `like` is that model's config.json, and its `max_position_embeddings` is kept, too.
    """
    kept = {name: value for name, value in like.items() if name not in _REPLACED}
    return {
        "max_position_embeddings": config.sequence_length,
        **kept,
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.inner_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_size,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": dict(config.rope_scaling) if config.rope_scaling else None,
        "tie_word_embeddings": config.tied_embeddings,
        "torch_dtype": dtype,
        **{name: value for name, value in FIXED.items() if value is not None},
    }


_REPLACED = ("rope_parameters", "dtype")
