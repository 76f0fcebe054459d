"""A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, causal attention (SDPA) with grouped queries."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.decoder_config import GPTConfig, RopeScaling

INIT_STD = 0.02


class GPT(nn.Module):
    """Decoder that maps token ids (batch, time) to logits (batch, time, vocabulary)."""

    def __init__(self, config: GPTConfig) -> None:
        """Build the decoder; its initial weights depend on the last seed of `torch.manual_seed` only."""
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        is_tied = config.tied_embeddings  # the embedding is the matrix of the logits
        self.head = (
            None if is_tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )
        cos, sin = rope_tables(config)
        self.register_buffer("rope_cos", cos, persistent=False)
        self.register_buffer("rope_sin", sin, persistent=False)
        if not self.embedding.weight.is_meta:
            initialize(self, num_layers=config.num_layers, seed=torch.initial_seed())

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the token that follows each position."""
        time = tokens.shape[1]
        cos, sin = self.rope_cos[:time], self.rope_sin[:time]
        hidden = self.dropout(self.embedding(tokens))
        for block in self.blocks:
            hidden = block(hidden, cos, sin)
        return logits_of(self.norm(hidden), head=self.head, embedding=self.embedding)


def logits_of(hidden: Tensor, *, head: nn.Module | None, embedding: nn.Embedding) -> Tensor:
    """Return the logits (batch, time, vocabulary) of normalized hidden states.

    If `head` is None, the embedding's weights are used as the weights of the output layer.
    """
    return functional.linear(hidden, embedding.weight) if head is None else head(hidden)


@torch.no_grad()
def initialize(module: nn.Module, *, num_layers: int, prefix: str = "", seed: int) -> None:
    """Initialize the parameters of a decoder, or of a submodule whose name in the decoder is `prefix`.

    A parameter depends on the seed and its name only, so each rank can draw its own parameters. Matrices are normal
    with standard deviation 0.02. Projections into the residual stream have 0.02 / sqrt(2 x layers) (Radford et al.
    2019, GPT-2, section 2.3). Norms are 1.
    """
    for name, parameter in module.named_parameters(prefix):
        if parameter.dim() < 2:
            parameter.fill_(1.0)
            continue
        is_residual = name.endswith(("output.weight", "down.weight"))
        std = INIT_STD / math.sqrt(2 * num_layers) if is_residual else INIT_STD
        parameter.copy_(
            torch.empty(parameter.shape).normal_(std=std, generator=_generator(seed, name))
        )


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


class Block(nn.Module):
    """Decoder layer: attention and feed-forward, each with a norm before and a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.feed_forward = SwiGLU(config.hidden_size, config.inner_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return `hidden` (batch, time, width) after this layer."""
        hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), cos, sin))
        return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))


class Attention(nn.Module):
    """Causal attention with rotary positions.

    Query heads share the keys and values of their group. Source: Ainslie et al. 2023, GQA, section 2.2.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.key_value_heads
        self.head_size = config.head_size
        self.dropout = config.dropout
        width = (self.num_heads + 2 * self.num_kv_heads) * self.head_size
        self.query_key_value = nn.Linear(config.hidden_size, width, bias=False)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the attended values, (batch, time, width)."""
        batch, time, width = hidden.shape
        heads = self.query_key_value(hidden).view(batch, time, -1, self.head_size).transpose(1, 2)
        query, key, value = heads.split(
            (self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1
        )
        attended = attend(
            rotate(query, cos, sin),
            rotate(key, cos, sin),
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
        )
        return self.output(attended.transpose(1, 2).reshape(batch, time, width))


def attend(query: Tensor, key: Tensor, value: Tensor, **settings: Any) -> Tensor:
    """Return the attention output (batch, heads, time, size), with the settings of `scaled_dot_product_attention`.

    Each key-value head serves a group of query heads. Keys and values are repeated if the kernel needs it.
    """
    groups = query.shape[1] // key.shape[1]
    is_grouped = groups > 1 and _reads_groups(query)
    if groups > 1 and not is_grouped:
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    return functional.scaled_dot_product_attention(
        query, key, value, enable_gqa=is_grouped, **settings
    )


def _reads_groups(query: Tensor) -> bool:
    """Return whether the attention kernel for this query accepts fewer key-value heads than query heads.

    The CPU's kernel does. On a GPU only the flash kernel does, which needs half precision and compute
    capability 8.0 or higher. If another GPU kernel had to handle such heads, torch (2.8 to 2.13) would
    calculate the whole matrix of scores. On other devices the result is False.
    """
    if query.device.type != "cuda":
        return query.device.type == "cpu"
    is_half = query.dtype in {torch.bfloat16, torch.float16}
    return is_half and torch.cuda.get_device_capability(query.device) >= (8, 0)


class SwiGLU(nn.Module):
    """Feed-forward layer: (silu(x W_gate) * (x W_up)) W_down.

    Source: Shazeer 2020, equation 6.
    """

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(hidden_size, 2 * inner_size, bias=False)
        self.down = nn.Linear(inner_size, hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the layer's output for `hidden`, in the same shape."""
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class RMSNorm(nn.Module):
    """Root mean square norm: x / sqrt(mean(x^2) + eps) * weight, computed in float32.

    Source: Zhang and Sennrich 2019, equation 4. Example: for x = (3, 4) and weight 1, the mean
    square is 12.5 and the result (0.8485, 1.1314).
    """

    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return `hidden` normalized over its last dimension, in its own dtype."""
        weight = self.weight.float()  # shards are gathered in the precision of matrix products
        return functional.rms_norm(hidden.float(), weight.shape, weight, self.eps).to(hidden.dtype)


def rope_tables(config: GPTConfig) -> tuple[Tensor, Tensor]:
    """Return cos and sin of a decoder's rotary angles, each (time, head_size / 2).

    An angle is position * frequency. Frequency i is theta^(-2i / head_size), with `rope_theta` as theta and i
    from 0 to head_size / 2 - 1. Source: Su et al. 2021, RoFormer, equation 15. If the decoder has a
    `rope_scaling`, the frequencies are changed as `RopeScaling` describes.
    """
    exponents = torch.arange(0, config.head_size, 2, dtype=torch.float64) / config.head_size
    frequency = config.rope_theta**-exponents
    if config.rope_scaling:
        scaling = RopeScaling.of(config.rope_scaling)
        periods = scaling.original_max_position_embeddings * frequency / (2 * math.pi)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        kept = ((periods - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / scaling.factor)
    angle = torch.outer(torch.arange(config.sequence_length, dtype=torch.float64), frequency)
    return angle.cos().float(), angle.sin().float()


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return `heads` (batch, heads, time, size), rotated by each position's angles.

    Components i and i + size / 2 are rotated as a pair.
    """
    first, second = heads.chunk(2, dim=-1)
    cos, sin = cos.to(heads.dtype), sin.to(heads.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
