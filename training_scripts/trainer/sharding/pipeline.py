"""Pipeline parallelism: stages of layers on different ranks, with torch.distributed.pipelining.

Sources: Huang et al. 2019 (GPipe); Narayanan et al. 2021, section 2.2 (1F1B, which keeps fewer activations).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from trainer.sharding.mesh import RankMesh

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class Pipeline:
    """This rank's stage of a pipeline."""

    def __init__(
        self,
        model: nn.Module,
        mesh: RankMesh,
        *,
        kind: str,
        num_micro_batches: int,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """Create the stage and its schedule; `loss` takes outputs and targets of one micro-batch.

        Raises:
            HyperparameterError: 1F1B has fewer micro-batches than stages.
        """
        stages = mesh.degrees.pipeline
        if kind == "1f1b" and num_micro_batches < stages:
            message = (
                f"pipeline_schedule 1f1b needs at least as many micro-batches per step as stages, got "
                f"{num_micro_batches} for pipeline_parallel_degree {stages}; lower micro_batch_size, raise "
                "global_batch_size, or set pipeline_schedule to 'gpipe'"
            )
            raise HyperparameterError(message)
        self._is_first, self._is_last = mesh.place("pp") == 0, mesh.is_last_stage
        device = next(model.buffers()).device
        group = mesh.whole["pp"].get_group()
        stage = PipelineStage(model, mesh.place("pp"), stages, device, group=group)
        self._schedule = SCHEDULES[kind](stage, num_micro_batches, loss_fn=loss, scale_grads=False)
        takes = inspect.signature(self._schedule.step).parameters
        # Since torch 2.10; older versions concatenate the last stage's logits, which are not used.
        self._without_outputs = {"return_outputs": False} if "return_outputs" in takes else {}

    def add_gradients(self, batches: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """Run micro-batches forward and backward; return the sum of their losses, 0 on all stages but the last."""
        losses: list[Tensor] = []
        tokens = (torch.cat([batch[0] for batch in batches]),) if self._is_first else ()
        target = torch.cat([batch[1] for batch in batches]) if self._is_last else None
        self._schedule.step(*tokens, target=target, losses=losses, **self._without_outputs)
        return torch.stack([each.detach().double() for each in losses] or [torch.zeros(())]).sum()


def pass_forward(
    model: nn.Module, mesh: RankMesh, tokens: Tensor, *, like: tuple[int, ...], dtype: torch.dtype
) -> Tensor | None:
    """Return the logits of a batch on the last stage, None on the others.

    Args:
        model: this rank's stage.
        mesh: mesh of all ranks.
        tokens: input of the first stage; other stages use only its device.
        like: shape of the hidden states between stages.
        dtype: dtype of the hidden states between stages.
    """
    group, stage = mesh.whole["pp"].get_group(), mesh.place("pp")
    entering = tokens
    if stage > 0:
        entering = torch.empty(like, dtype=dtype, device=tokens.device)
        dist.recv(entering, group=group, group_src=stage - 1)
    leaving = model(entering)
    if mesh.is_last_stage:
        return leaving
    dist.send(leaving.contiguous(), group=group, group_dst=stage + 1)
    return None
