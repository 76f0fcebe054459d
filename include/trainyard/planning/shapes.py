"""Decoder shapes: number of parameters and floating-point operations per token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LLAMA, GPT, TRAINYARD = "llama", "gpt", "trainyard"
FLASH, EAGER = "flash", "eager"
HEAD_SIZE = 128
# Hidden size per layer, roughly constant within a family (Llama 3 8B: 32 layers at 4096, GPT-3: 96 at 12288).
ASPECT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Shape of a decoder.

    Attributes:
        num_layers: number of layers.
        hidden_size: width of the residual stream.
        num_heads: attention heads.
        vocab_size: tokens of the vocabulary.
        sequence_length: tokens per sequence.
        num_kv_heads: key-value heads of grouped-query attention; None = num_heads.
        feed_forward_size: inner width of the feed-forward part. None = the family's default: 4 times the hidden size
            for gpt, and 8/3 times otherwise, rounded up to a multiple of 32.
        family: architecture.
            `llama`: RMSNorm, SwiGLU, no biases, separate output and embedding, no dropout.
            `gpt`: LayerNorm, GELU, biases, learned positions, output tied to the embedding, dropout.
            `trainyard`: the llama of `training_scripts`. Its norms and residual stream stay in fp32 under autocast.
        attention: `flash` does not keep attention scores, `eager` keeps them.
        has_tied_tables: whether `llama` or `trainyard` ties its output to its embedding, as `gpt` always does.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    sequence_length: int
    num_kv_heads: int | None = None
    feed_forward_size: int | None = None
    family: str = LLAMA
    attention: str = FLASH
    has_tied_tables: bool = False

    def __post_init__(self) -> None:
        """Check the fields of the shape.

        Raises:
            SpecError: fields are invalid; the findings name them.
        """
        findings = list(self._findings())
        if findings:
            raise SpecError(findings, subject="model shape")

    @property
    def kv_size(self) -> int:
        """Width of the keys of all heads, which is also the width of the values."""
        return self.hidden_size // self.num_heads * (self.num_kv_heads or self.num_heads)

    @property
    def inner_size(self) -> int:
        """Width of the feed-forward part."""
        if self.feed_forward_size is not None:
            return self.feed_forward_size
        if self.family == GPT:
            return 4 * self.hidden_size
        return 32 * math.ceil(self.hidden_size * 8 / 3 / 32)

    @property
    def layer_weights(self) -> int:
        """Number of weights in the matrices of one layer.

        The matrices are query, key, value, output, and two (gpt) or three (other families) for feed-forward.
        """
        h, f = self.hidden_size, self.inner_size
        return 2 * h * h + 2 * h * self.kv_size + (2 if self.family == GPT else 3) * h * f

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer, with biases and norms."""
        h, f = self.hidden_size, self.inner_size
        biases_and_norms = 2 * h + 2 * self.kv_size + f + h + 4 * h if self.family == GPT else 2 * h
        return self.layer_weights + biases_and_norms

    @property
    def embedding_parameters(self) -> int:
        """Parameters of one vocabulary table."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """Number of all parameters.

        Worked: Llama 3 8B has 32 layers, hidden size 4096, 8 key-value heads, inner width 14,336 and a vocabulary
        of 128,256. A layer has 218,112,000 parameters. The embedding and the output have 525,336,576 each, and the
        last norm has 4096. With all 32 layers, the sum is 8,030,261,248, as published.
        """
        h = self.hidden_size
        layers = self.num_layers * self.layer_parameters
        if self.family == GPT:
            return layers + self.embedding_parameters + self.sequence_length * h + 2 * h
        return layers + (1 if self.has_tied_tables else 2) * self.embedding_parameters + h

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations per token of forward and backward pass, without recomputation.

        These are 6 per weight of a matrix product, and 12 L s h for the attention scores and the weighted sum of
        values, with L layers, s tokens per sequence and hidden size h. For gpt with a vocabulary of V tokens, the
        sum is 72 L h^2 (1 + s / (6 h) + V / (12 h L)). This is equation 3 of Narayanan et al. 2021 without its
        recomputed forward pass. Worked: GPT-3 has L = 96, h = 12,288, s = 2048 and V = 51,200, which gives
        1.0764e12.
        """
        weights = self.num_layers * self.layer_weights + self.embedding_parameters
        return 6.0 * weights + 12.0 * self.num_layers * self.sequence_length * self.hidden_size

    def _findings(self) -> Iterator[Finding]:
        for name in ("num_layers", "hidden_size", "num_heads", "vocab_size", "sequence_length"):
            if getattr(self, name) < 1:
                yield Finding(
                    where=name,
                    what="is too small",
                    got=str(getattr(self, name)),
                    allowed="at least 1",
                )
                return
        if self.hidden_size % self.num_heads:
            yield Finding(
                where="num_heads",
                what="does not divide hidden_size",
                got=f"{self.num_heads} with hidden_size {self.hidden_size}",
                allowed=f"a divisor of {self.hidden_size}",
            )
        if self.num_kv_heads is not None and (
            self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads
        ):
            yield Finding(
                where="num_kv_heads",
                what="does not divide num_heads",
                got=f"{self.num_kv_heads} with num_heads {self.num_heads}",
                allowed=f"a divisor of {self.num_heads}",
            )
        for name, allowed in (("family", (LLAMA, GPT, TRAINYARD)), ("attention", (FLASH, EAGER))):
            if getattr(self, name) not in allowed:
                yield Finding(
                    where=name,
                    what="is not an allowed value",
                    got=repr(getattr(self, name)),
                    allowed=", ".join(allowed),
                )


PUBLISHED: Mapping[str, ModelShape] = {
    "llama3-8b": ModelShape(
        num_layers=32,
        hidden_size=4096,
        num_heads=32,
        num_kv_heads=8,
        feed_forward_size=14336,
        vocab_size=128256,
        sequence_length=8192,
    ),
    "llama3-70b": ModelShape(
        num_layers=80,
        hidden_size=8192,
        num_heads=64,
        num_kv_heads=8,
        feed_forward_size=28672,
        vocab_size=128256,
        sequence_length=8192,
    ),
    "gpt3-175b": ModelShape(
        num_layers=96,
        hidden_size=12288,
        num_heads=96,
        vocab_size=51200,
        sequence_length=2048,
        family=GPT,
        attention=EAGER,
    ),
    "gpt2-124m": ModelShape(
        num_layers=12,
        hidden_size=768,
        num_heads=12,
        vocab_size=50304,
        sequence_length=1024,
        family=GPT,
    ),
}
"""Shapes by name.

Llama 3: Grattafiori et al. 2024, table 3. GPT-3: Korthikanti et al. 2022, table 3. GPT-2: nanoGPT.
"""


def shape_settings(hyperparameters: Mapping[str, Any], *, num_heads: int) -> dict[str, Any]:
    """Return the fields of `ModelShape` that are set by hyperparameters of a training script.

    Values that the script rejects are left out, because the script itself reports them.
    """
    settings: dict[str, Any] = {}
    for name in ("num_kv_heads", "feed_forward_size"):
        value = str(hyperparameters.get(name))
        if value.isdecimal() and int(value) > 0:
            settings[name] = int(value)
    if num_heads % settings.get("num_kv_heads", 1):
        del settings["num_kv_heads"]
    is_tied = str(hyperparameters.get("tied_embeddings", False)).lower() in {"true", "1", "yes"}
    return {**settings, "has_tied_tables": is_tied}


def shape_of_size(num_parameters: float, *, vocab_size: int, sequence_length: int) -> ModelShape:
    """Return the llama shape whose number of parameters is nearest to `num_parameters`.

    The width is a multiple of 128, and the number of layers is about the width divided by 128. The number of
    layers is a multiple of 4 and the number of heads a multiple of 8, so that both can be divided over ranks.
    Worked: for 8e9 parameters and a vocabulary of 128,256, the shape has 32 layers of width 4224 and 7.9e9
    parameters.

    Raises:
        SpecError: no such shape has between half and twice as many parameters.
    """
    shapes = (
        ModelShape(
            num_layers=max(4, 4 * round(width / ASPECT / 4)),
            hidden_size=width,
            num_heads=_num_heads(width),
            vocab_size=vocab_size,
            sequence_length=sequence_length,
        )
        for width in range(HEAD_SIZE, 200 * HEAD_SIZE, HEAD_SIZE)
    )
    best = min(shapes, key=lambda each: abs(each.num_parameters - num_parameters))
    if not 0.5 < num_parameters / best.num_parameters < 2:
        raise SpecError(
            Finding(
                where="num_parameters",
                what="is too far from every model shape that the planner can derive",
                got=f"{num_parameters:g}",
                allowed=f"{best.num_parameters / 2:,.0f} to {best.num_parameters * 2:,.0f} (half to twice the "
                "size of the nearest shape with this vocabulary)",
                next_step="set the shape instead: num_layers, hidden_size, num_heads",
            )
        )
    return best


def _num_heads(width: int) -> int:
    """Return the number of attention heads for a decoder whose `width` is a multiple of 128.

    The number is the divisor of `width` that is a multiple of 8 and nearest to `width` / 128. If `width` is a
    multiple of 1024, each head is exactly 128 wide.
    """
    eighth = width // 8
    eights = (each for each in range(1, eighth + 1) if eighth % each == 0)
    return 8 * min(eights, key=lambda each: abs(8 * each - width / HEAD_SIZE))
