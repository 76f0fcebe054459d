"""Training with optimizer state, gradients and parameters that DeepSpeed shards."""

from __future__ import annotations

import dataclasses
import logging
import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.precision import Precision
from trainer.training import Training
from trainer.zero.config import (
    ZeroHyperparameters,
    casts_itself,
    complete_config,
    read_config,
    stage_of,
)
from trainer.zero.state import CollectingCheckpointer, ZeroState
from trainyard_watch.distributed import native_backend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.tasks import Batch
    from trainyard_watch.statistics.checksums import ReplicaChecksums

SHARED_MEMORY_COLLECTIVES = "deepspeed_shm_comm"


class ZeroTraining(Training):
    """A Training with DeepSpeed's engine."""

    hyperparameters_class = ZeroHyperparameters
    state_class = ZeroState
    checkpointer_class = CollectingCheckpointer
    hp: ZeroHyperparameters
    state: ZeroState

    def setup_mesh(self) -> tuple[int, int]:
        """Read DeepSpeed's configuration; return the index of this rank's part of each batch, and the world size."""
        self.hp = dataclasses.replace(self.hp, compile=False)
        with self.ranks.all_or_none():
            self.written = read_config(self.hp.ds_config, self.paths.channels)
        return super().setup_mesh()

    def make_precision(self) -> Precision:
        """Return fp32 (no casts), because autocast is entered inside the engine; see `parallelize`."""
        return Precision.of("fp32", self.ranks.device)

    def make_optimizer(self) -> Any:
        """Return the optimizer that DeepSpeed's engine wraps."""
        with self.ranks.all_or_none():
            self.config = complete_config(self.written, self.plan, clip_norm=self.hp.clip_norm)
        return super().make_optimizer()

    def parallelize(self) -> None:
        """Set `parallel` to DeepSpeed's engine; called after the checkpoint is restored."""
        import deepspeed  # noqa: PLC0415 first use: seconds

        logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
        # This extension is compiled at each start of a container, and only used if all ranks are on one host. gloo
        # works as well.
        deepspeed.ops.__compatible_ops__[SHARED_MEMORY_COLLECTIVES] = False
        if not dist.is_initialized():
            backend = native_backend(self.ranks.device)
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        if self.hp.precision == "bf16" and not casts_itself(self.written):
            # On GPUs, the engine disables an autocast that is entered outside it (deepspeed 0.19, torch_autocast.py).
            casting = torch.autocast(self.ranks.device.type, dtype=torch.bfloat16)
            self.model.forward = casting(self.model.forward)  # type: ignore[method-assign]
        self.engine, *_ = deepspeed.initialize(
            model=self.model,
            optimizer=self.optimizer,
            config=self.config,
            dist_init_required=False,
        )
        self.parallel = self.engine
        self.state.attach(self.engine)

    @property
    def evaluated(self) -> nn.Module:
        """The engine, which gathers sharded parameters in an evaluation."""
        return self.engine

    @property
    def spare(self) -> Batch | None:
        """The batch to run while only other ranks still have batches to evaluate; None to run nothing.

        It is one sample under stage 3, because each forward pass then gathers parameters from all ranks.
        """
        return self.first_samples(1) if stage_of(self.config) == 3 else None

    def make_checksums(self) -> ReplicaChecksums | None:
        """Return the object that compares parameters between the ranks, or None if stage 3 shards them."""
        return super().make_checksums() if stage_of(self.config) < 3 else None

    def exchanging(self, exchanges: bool) -> AbstractContextManager[Any]:  # noqa: ARG002 the engine knows
        """Return an empty context: the engine itself decides when gradients are exchanged."""
        return nullcontext()

    def differentiate(self, loss: Tensor) -> None:
        """Run the engine's backward pass for `loss`, the part of the step's loss from one micro-batch."""
        self.engine.backward(loss, scale_wrt_gas=False)

    def update_weights(self, loss: float) -> float:
        """Let the engine clip the gradients and take one optimizer step; return the norm before clipping.

        Raises:
            NonFiniteError: the loss or the gradient norm is not finite. The engine reports the norm after the step.
        """
        if not math.isfinite(loss):
            self.log_step(loss, math.nan)
            raise self.divergence(f"the loss is {loss}")
        with self.report.meter.part("optimizer"):
            self.statistics.before_update()
            self.engine.step()
            self.statistics.after_update()
        norm = float(self.engine.get_global_grad_norm() or 0.0)
        if not math.isfinite(norm):
            raise self.divergence(f"the loss is {loss:.6f} but the gradient norm is {norm}")
        return norm

    def measure_ranks(self) -> dict[str, Any]:
        """Return the measurements of `Training.measure_ranks` without `state_bytes`.

        The states cannot be measured, because DeepSpeed's engine has them in its own buffers.
        """
        measured = super().measure_ranks()
        del measured["state_bytes"]
        return measured

    def whole_weights(self) -> Mapping[str, Tensor]:
        """Return the model's whole state, complete at least on rank 0. Every rank must call it."""
        return self.state.whole_weights()
