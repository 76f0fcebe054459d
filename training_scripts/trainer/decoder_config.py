"""Configuration of a decoder. No framework is imported: hyperparameters are checked without torch."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

LLAMA3 = "llama3"
LLAMA_FIELDS = (
    *("num_kv_heads", "feed_forward_size", "norm_eps"),
    *("rope_theta", "rope_scaling", "tied_embeddings"),
)
"""Fields that `GPTConfig.to_dict` leaves out at their defaults, so checkpoints from before these fields stay valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama 3's scaling of the rotary frequencies, for contexts longer than those of the pretraining.

    The scaling depends on how many periods of a frequency fit into the original context. If these are fewer
    than `low_freq_factor`, the frequency is divided by `factor`. If they are more than `high_freq_factor`, it
    is kept. In between, the result is a weighted mean of the kept and the divided frequency. The kept
    frequency's weight grows linearly from 0 to 1 with the number of periods.

    Source: Meta's `apply_scaling` in llama-models, and `rope_scaling` of Hugging Face's config.json with
    `rope_type` llama3.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    @classmethod
    def of(cls, content: Any) -> Self:
        """Return the scaling in `content`, which has the form of `rope_scaling` in config.json.

        Raises:
            ValueError: the content is not a scaling of type llama3; the error text describes the allowed content.
        """
        names = [item.name for item in dataclasses.fields(cls)]
        allowed = (
            f"allowed is an object with rope_type {LLAMA3!r} and numbers for {', '.join(names)}"
        )
        if not isinstance(content, dict):
            raise ValueError(f"got {content!r}; {allowed}")  # noqa: TRY004  # a value of the user's
        kind = content.get("rope_type", content.get("type", LLAMA3))
        values = {name: content.get(name) for name in names}
        unknown = sorted(content.keys() - {*names, "rope_type", "type"})
        if kind != LLAMA3 or unknown or not all(map(_is_positive, values.values())):
            raise ValueError(f"got {json.dumps(content)}; {allowed}, above 0")
        scaling = cls(**values)
        if scaling.high_freq_factor <= scaling.low_freq_factor:
            raise ValueError(
                f"got {json.dumps(content)}; high_freq_factor must be larger than low_freq_factor"
            )
        return scaling

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `rope_scaling` in config.json."""
        return {"rope_type": LLAMA3, **dataclasses.asdict(self)}


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTConfig:
    """Configuration of a decoder.

    Attributes:
        num_kv_heads: heads of keys and values, each for num_heads / num_kv_heads query heads; None = num_heads.
        feed_forward_size: inner width of SwiGLU; None = see `inner_size`.
        norm_eps: epsilon of the norms.
        rope_theta: base of the rotary frequencies.
        rope_scaling: scaling of the rotary frequencies, as `RopeScaling.to_dict`; None = no scaling.
        tied_embeddings: whether the embedding is also the matrix of the logits. The model has no `head` then.
    """

    vocab_size: int
    num_layers: int
    num_heads: int
    hidden_size: int
    sequence_length: int
    dropout: float = 0.0
    num_kv_heads: int | None = None
    feed_forward_size: int | None = None
    norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: Mapping[str, Any] | None = None
    tied_embeddings: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return the configuration of a decoder's `model.json`, the inverse of `to_dict`."""
        return cls(**{name: value for name, value in config.items() if name != "kind"})

    def to_dict(self) -> dict[str, Any]:
        """Return the config for `trainer.models.build`."""
        defaults = {item.name: item.default for item in dataclasses.fields(self)}
        values = dataclasses.asdict(self).items()
        kept = {name: v for name, v in values if name not in LLAMA_FIELDS or v != defaults[name]}
        return {"kind": "gpt", **kept}

    @property
    def head_size(self) -> int:
        """Return the width of a head."""
        return self.hidden_size // self.num_heads

    @property
    def key_value_heads(self) -> int:
        """Return the number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def inner_size(self) -> int:
        """Return the inner width of SwiGLU, by default 8/3 of the hidden size, rounded up to a multiple of 32.

        A usual feed-forward layer is 4 times as wide as the hidden size. SwiGLU has three matrices instead of two,
        so two thirds of this width keep the number of parameters: 2/3 * 4 = 8/3. Source: Shazeer 2020, GLU
        variants.
        """
        return self.feed_forward_size or 32 * math.ceil(self.hidden_size * 8 / 3 / 32)
