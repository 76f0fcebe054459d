"""Decoder for sharded training: a rank's layers, heads and positions, with the arithmetic of the plain decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.nn import functional

from trainer.models.gpt import GPT, Attention, Block, SwiGLU, attend, logits_of, rotate
from trainer.sharding.portable_layout import NUM_GATED, to_portable

if TYPE_CHECKING:
    from trainer.sharding.context_parallel import SequenceShare

Recompute = Callable[..., Tensor]
Fill = Callable[..., None]
"""Function that sets the parameters of a module, whose name in the decoder is the argument `prefix`."""


class SpreadDecoder(nn.Module):
    """Part of a decoder: consecutive layers, with the names that they have in the whole decoder.

    The part with the first layer also has the embedding. Its input is tokens of shape (batch, time). The input
    of any other part is hidden states of shape (batch, time, width). The part with the last layer also has the
    last norm and the head, and its output is logits. The output of any other part is hidden states.
    """

    def __init__(
        self, whole: GPT, layers: range, *, share: SequenceShare | None, recompute: Recompute | None
    ) -> None:
        """Create the part of `whole` that has the given layers.

        The parameters of `whole` are on the meta device, and so are those of the part until `materialise` creates
        them. `share` has this rank's positions; None if sequences are not split. `recompute` runs a layer with
        recomputation in its backward pass; None runs the layer as it is.
        """
        super().__init__()
        config = self.config = whole.config
        is_first, is_last = layers.start == 0, layers.stop == config.num_layers
        self.embedding = whole.embedding if is_first else None
        self.dropout = whole.dropout if is_first else None
        self.blocks = nn.ModuleDict(
            {str(layer): _spread(whole.blocks[layer], share, recompute) for layer in layers}
        )
        self.norm = whole.norm if is_last else None
        self.head = whole.head if is_last else None
        positions = share.positions if share else slice(None)
        self.register_buffer("rope_cos", whole.rope_cos[positions], persistent=False)
        self.register_buffer("rope_sin", whole.rope_sin[positions], persistent=False)

    def materialise(self, name: str, *, fill: Fill, device: torch.device) -> None:
        """Create and fill the parameters of a submodule on the device.

        The rows of fused projections get the order of `trainer.sharding.portable_layout`.
        """
        part = self.get_submodule(name).to_empty(device=device)
        fill(part, prefix=name)
        with torch.no_grad():
            for key, parameter in part.named_parameters():
                portable = to_portable(key, parameter, self.config)
                if portable is not parameter:
                    parameter.copy_(portable)

    @property
    def ends(self) -> list[str]:
        """Return the names of this part's modules outside of the layers: embedding, last norm and head."""
        return [
            name
            for name, module in self.named_children()
            if name not in {"blocks", "dropout"} and module
        ]

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the output of the last of these layers: hidden states, or logits if this part has the head."""
        if self.embedding is not None and self.dropout is not None:
            hidden = self.dropout(_awaited(self.embedding(hidden)))
        for block in self.blocks.values():
            hidden = block(hidden, self.rope_cos, self.rope_sin)
        if self.norm is not None:
            hidden = logits_of(self.norm(hidden), head=self.head, embedding=self.embedding)
        return hidden


class AwaitCollective(torch.autograd.Function):
    """Identity that waits for the collective of an AsyncCollectiveTensor.

    A split embedding ends in a reduce-scatter whose result is an AsyncCollectiveTensor. torch.compile (2.8 to 2.13)
    unwraps it without its gradient, so the embedding before a compiled first layer gets no gradient. Related:
    pytorch#179506.
    """

    @staticmethod
    def forward(_context: Any, hidden: Tensor) -> Tensor:
        """Wait for the collective, and return the tensor."""
        return hidden.wait()  # type: ignore[attr-defined]

    @staticmethod
    def backward(_context: Any, *gradients: Tensor) -> Tensor:  # type: ignore[override]
        """Return the gradient unchanged."""
        return gradients[0]


def _awaited(hidden: Tensor) -> Tensor:
    is_async = isinstance(hidden, AsyncCollectiveTensor)
    return AwaitCollective.apply(hidden) if is_async else hidden


class SpreadBlock(Block):
    """Decoder layer whose forward pass may be recomputed in the backward pass."""

    recompute: Recompute | None = None

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return `hidden` after this layer."""
        if self.recompute is None or not self.training:
            return super().forward(hidden, cos, sin)

        def layer(entering: Tensor) -> Tensor:
            return Block.forward(self, entering, cos, sin)

        return self.recompute(layer, hidden)


class SpreadAttention(Attention):
    """Attention of this rank's heads and positions."""

    share: SequenceShare | None = None

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the attended values, of shape (batch, time, width).

        With tensor parallelism, the time dimension is split as in `hidden`.
        """
        projected = self.query_key_value(hidden)
        batch, time = projected.shape[:2]
        num_queries = self.num_heads // self.num_kv_heads
        groups = projected.view(batch, time, -1, num_queries + 2, self.head_size)
        query, key, value = (
            part.flatten(2, 3).transpose(1, 2) for part in groups.split((num_queries, 1, 1), dim=3)
        )
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        dropout = self.dropout if self.training else 0.0
        if self.share is None:
            attended = attend(query, key, value, dropout_p=dropout, is_causal=True)
        else:
            attended = self.share.attend(query, key, value, dropout=dropout)
        return self.output(attended.transpose(1, 2).reshape(batch, time, -1))


class SpreadSwiGLU(SwiGLU):
    """SwiGLU for weights in portable order, where each gate row is next to its up row."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the layer's output for `hidden`, in the same shape."""
        projected = self.gate_up(hidden)
        gate, up = projected.view(*projected.shape[:-1], -1, NUM_GATED).unbind(-1)
        return self.down(functional.silu(gate) * up)


def _spread(block: Block, share: SequenceShare | None, recompute: Recompute | None) -> SpreadBlock:
    """Convert a block for sharded training in place, and return it; no weights are copied.

    The classes of the block, its attention and its feed-forward layer are replaced by those of this module.
    """
    block.attention.__class__ = SpreadAttention
    block.attention.share = share
    block.feed_forward.__class__ = SpreadSwiGLU
    block.__class__ = SpreadBlock
    block.recompute = recompute
    return block  # type: ignore[return-value]
