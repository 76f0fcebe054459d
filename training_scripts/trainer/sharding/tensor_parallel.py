"""Tensor parallelism: ranks split layers by columns and rows, and the sequence between layers.

Sources: Shoeybi et al. 2019 (Megatron-LM), section 3; for the sequence Korthikanti et al. 2022, section 4.2.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ParallelStyle

    from trainer.sharding.decoder import SpreadDecoder

SEQUENCE = Shard(1)


def split_ends(decoder: SpreadDecoder, mesh: DeviceMesh) -> None:
    """Split the embedding, the last norm and the head; between layers each rank has its part of the sequence."""
    styles: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=SEQUENCE),
        "norm": SequenceParallel(use_local_output=True),
        "head": ColwiseParallel(input_layouts=SEQUENCE, output_layouts=Replicate()),
    }
    parallelize_module(decoder, mesh, {name: styles[name] for name in decoder.ends})


def split_layer(block: nn.Module, mesh: DeviceMesh) -> None:
    """Split one layer over the ranks of the mesh."""
    parallelize_module(block, mesh, _styles_of_a_block())


def _styles_of_a_block() -> dict[str, ParallelStyle]:
    return {
        "attention_norm": SequenceParallel(use_local_output=True),
        "attention.query_key_value": ColwiseParallel(input_layouts=SEQUENCE),
        "attention.output": RowwiseParallel(output_layouts=SEQUENCE),
        "feed_forward_norm": SequenceParallel(use_local_output=True),
        "feed_forward.gate_up": ColwiseParallel(input_layouts=SEQUENCE),
        "feed_forward.down": RowwiseParallel(output_layouts=SEQUENCE),
    }
