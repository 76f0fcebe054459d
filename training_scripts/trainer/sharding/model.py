"""This rank's part of a model, and the assembly of the whole model from all ranks.

With tensor parallelism, ranks split the weights of layers by columns or rows (Shoeybi et al. 2019,
Megatron-LM, section 3). Between layers they split the sequence (Korthikanti et al. 2022, section 4.2.2).
"""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from trainer.decoder_config import GPTConfig
from trainer.models import build_empty
from trainer.models.gpt import GPT, initialize
from trainer.precision import DTYPES
from trainer.sharding.context_parallel import SequenceShare
from trainer.sharding.decoder import SpreadDecoder
from trainer.sharding.portable_layout import to_plain
from trainer.sharding.recompute import keeps_random_of, make_recompute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ParallelStyle

    from trainer.sharding.decoder import Fill
    from trainer.sharding.hyperparameters import ShardedHyperparameters
    from trainer.sharding.mesh import RankMesh

SEQUENCE = Shard(1)


def parallelize_model(
    config: Mapping[str, Any],
    hp: ShardedHyperparameters,
    mesh: RankMesh | None,
    device: torch.device,
    *,
    fill: Fill | None = None,
) -> tuple[nn.Module, SequenceShare | None]:
    """Return this rank's part of the model, and its part of each sequence (None if sequences are not split).

    A decoder is built and sharded layer by layer; the embedding and the head come last. In addition to its
    shards, a rank therefore has at most one whole layer in memory, or at the end the whole embedding and head.
    `fill` sets the model's weights; without it, they depend on the seed only. `mesh` is None for a single rank.
    """
    share = None
    if mesh and mesh.context:
        share = SequenceShare.of(mesh.context, hp.sequence_length, device)
    whole = build_empty(config)
    if not isinstance(whole, GPT):
        model = whole.to(device)
        if mesh:
            settings = _settings(hp, mesh, device)
            # The network standardizes its numbers in float64, and casts them itself.
            policy = dataclasses.replace(settings["mp_policy"], cast_forward_inputs=False)
            fully_shard(model, **settings | {"mp_policy": policy})
        return model, share
    fill = fill or partial(initialize, num_layers=whole.config.num_layers, seed=hp.seed)
    return _spread_decoder(whole, hp, mesh, device, share=share, fill=fill), share


def _spread_decoder(
    whole: GPT,
    hp: ShardedHyperparameters,
    mesh: RankMesh | None,
    device: torch.device,
    *,
    share: SequenceShare | None,
    fill: Fill,
) -> SpreadDecoder:
    is_split = mesh is not None and mesh.degrees.tensor > 1
    recompute = make_recompute(
        hp.activation_checkpointing,
        offloads=hp.activation_offloading,
        device=device,
        keeps_random=keeps_random_of(device, is_compiled=bool(hp.compile), is_split=is_split),
    )
    layers = stage_layers(whole.config.num_layers, mesh)
    decoder = SpreadDecoder(whole, layers, share=share, recompute=recompute)
    decoder.rope_cos, decoder.rope_sin = decoder.rope_cos.to(device), decoder.rope_sin.to(device)
    settings = _settings(hp, mesh, device) if mesh else None
    tensor = mesh.whole["tp"] if mesh and mesh.degrees.tensor > 1 else None
    for name, layer in decoder.blocks.items():
        decoder.materialise(f"blocks.{name}", fill=fill, device=device)
        if tensor:
            split_layer(layer, tensor)
        if settings:
            if hp.compile:
                layer.compile()
            fully_shard(layer, **settings)
    for name in decoder.ends:
        decoder.materialise(name, fill=fill, device=device)
    if tensor:
        split_ends(decoder, tensor)
        # The loss only reads the logits.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    if settings:
        fully_shard(decoder, **settings)
    return decoder


def stage_layers(num_layers: int, mesh: RankMesh | None) -> range:
    """Return the layers of this rank's pipeline stage.

    Example: with 5 layers and 2 stages, the first stage has layers 0 to 2, and the second has 3 and 4.
    """
    if mesh is None:
        return range(num_layers)
    stage, num_stages = mesh.place("pp"), mesh.degrees.pipeline
    each, more = divmod(num_layers, num_stages)
    start = stage * each + min(stage, more)
    return range(start, start + each + (stage < more))


def _settings(hp: ShardedHyperparameters, mesh: RankMesh, device: torch.device) -> dict[str, Any]:
    """Return the arguments of FSDP2's `fully_shard`, for each layer and for the rest of the model.

    Matrix products run in the precision's dtype on gathered copies; stored parameters and exchanged gradients are
    float32.
    """
    dtype = DTYPES[hp.precision] if hp.precision != "fp32" else None
    settings: dict[str, Any] = {
        "mesh": mesh.sharding,
        "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda")
        if hp.cpu_offload
        else OffloadPolicy(),
    }
    # A stage's layers process many micro-batches in a row, so they stay gathered between them.
    return settings | ({"reshard_after_forward": False} if mesh.degrees.pipeline > 1 else {})


def whole_weights(
    model: nn.Module, mesh: RankMesh | None, config: Mapping[str, Any], device: torch.device
) -> dict[str, Tensor]:
    """Return the model's whole state on rank 0's CPU. Every rank must call it.

    A decoder's fused projections have the plain row order (module `portable_layout`). The result of other ranks
    is incomplete or empty. Tensors are assembled one by one: a rank has at most one whole tensor at any time,
    besides the copy on rank 0. With pipeline stages, each stage's first rank also has a copy of its stage.
    """
    keeps = mesh is None or mesh.speaks_for_stage
    weights: dict[str, Tensor] = {}
    for name, each in model.state_dict().items():
        whole = each.full_tensor() if isinstance(each, DTensor) else each
        if keeps:
            weights[name] = whole.cpu()
    if mesh and keeps and mesh.degrees.pipeline > 1:
        weights = _of_all_stages(weights, mesh, device)
    if config["kind"] == "gpt":
        shape = GPTConfig.of(config)
        return {
            name: to_plain(name, weights.pop(name), shape)
            for name in sorted(weights, key=_plain_order)
        }
    return weights


def _of_all_stages(
    weights: dict[str, Tensor], mesh: RankMesh, device: torch.device
) -> dict[str, Tensor]:
    """Return the weights of all stages on the first stage's rank, and an empty dict on the ranks of other stages.

    The other stages send their tensors one by one.
    """
    group, stage = mesh.whole["pp"].get_group(), mesh.place("pp")
    outlines: list[Any] = [None] * mesh.degrees.pipeline
    own = [(name, each.shape, each.dtype) for name, each in weights.items()]
    dist.all_gather_object(outlines, own, group=group)
    for sender, outline in enumerate(outlines[1:], 1):
        for name, shape, dtype in outline:
            if stage == 0:
                received = torch.empty(shape, dtype=dtype, device=device)
                dist.recv(received, group=group, group_src=sender)
                weights[name] = received.cpu()
            elif stage == sender:
                dist.send(weights.pop(name).contiguous().to(device), group=group, group_dst=0)
    return weights if stage == 0 else {}


def _plain_order(name: str) -> tuple[int, int]:
    """Return the sort key of a parameter in the order of `trainer.models.gpt`'s state."""
    kind, _, rest = name.partition(".")
    return ["embedding", "blocks", "norm", "head"].index(kind), int(
        rest.split(".")[0]
    ) if kind == "blocks" else 0


def split_ends(decoder: SpreadDecoder, mesh: DeviceMesh) -> None:
    """Split the embedding, the last norm and the head over the ranks of the mesh.

    The embedding returns each rank's part of the sequence. The norm and the head receive such parts.
    """
    styles: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=SEQUENCE),
        "norm": SequenceParallel(use_local_output=True),
        "head": ColwiseParallel(input_layouts=SEQUENCE, output_layouts=Replicate()),
    }
    parallelize_module(decoder, mesh, {name: styles[name] for name in decoder.ends})


def split_layer(block: nn.Module, mesh: DeviceMesh) -> None:
    """Split one layer over the ranks of the mesh."""
    styles: dict[str, ParallelStyle] = {
        "attention_norm": SequenceParallel(use_local_output=True),
        "attention.query_key_value": ColwiseParallel(input_layouts=SEQUENCE),
        "attention.output": RowwiseParallel(output_layouts=SEQUENCE),
        "feed_forward_norm": SequenceParallel(use_local_output=True),
        "feed_forward.gate_up": ColwiseParallel(input_layouts=SEQUENCE),
        "feed_forward.down": RowwiseParallel(output_layouts=SEQUENCE),
    }
    parallelize_module(block, mesh, styles)
