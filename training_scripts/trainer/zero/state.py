"""The state of a run under ZeRO: the whole model, and each rank's part of the optimizer, in one checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor

from trainer.checkpointing import Checkpointer
from trainer.optimization import keeping_weight_decay
from trainer.training_state import TrainingState
from trainyard_watch.errors import CheckpointError
from trainyard_watch.tensor_tree import on_cpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard_watch.distributed import Ranks

PARTS = (
    *("base_optimizer_state", "single_partition_of_fp32_groups"),
    *("optimizer_state_dict", "fp32_flat_groups"),
)
"""Keys of a rank's own part of the engine's state: optimizer state and float32 parameters. The first two are for
stages 1 and 2, the others for stage 3 (deepspeed 0.19)."""


class ZeroState(TrainingState):
    """A TrainingState with a partitioned optimizer. Before `capture`, `collect` must gather its parts on rank 0."""

    engine: Any = None
    _collected: Mapping[str, Any]
    _saved: Any = None

    def capture(self) -> dict[str, Any]:
        """Return the content of a checkpoint as a dict, file name -> object.

        The model and the optimizer's parts are those that the last `collect` gathered.
        """
        return {**self._collected, "run": self.capture_run()}

    def collect(self, ranks: Ranks) -> None:
        """Gather the whole model and all parts of the optimizer on rank 0. Every rank must call it."""
        weights, own = self.whole_weights(), self._own_part()
        parts = [own] * ranks.world_size
        if ranks.world_size > 1:
            dist.gather_object(own, parts if ranks.is_main else None)
        self._collected = {"model": weights, "zero": parts}

    def discard_collected(self) -> None:
        """Release the memory of the last `collect`."""
        self._collected = {}

    def restore(self, content: Mapping[str, Any]) -> None:
        """Restore the result of `capture`, whose entry `zero` must have this rank's part of the optimizer only.

        This object stores the part until `attach` loads it into DeepSpeed's engine.

        Raises:
            CheckpointError: the checkpoint was saved by another run.
        """
        self.restore_run(content["run"])
        self.model.load_state_dict(content["model"])
        self._saved = content["zero"]

    def attach(self, engine: Any) -> None:
        """Set the engine, and load this rank's part of the restored state into the engine's optimizer.

        Raises:
            CheckpointError: the checkpoint was saved under another stage of ZeRO. Stages 1 and 2 count as the same.
        """
        self.engine = engine
        if self._saved is None:
            return
        if self._saved.keys() != engine.optimizer.state_dict().keys() & set(PARTS):
            message = (
                "the checkpoint has the optimizer state of another stage of ZeRO (1 and 2 are alike, 3 is not); resume "
                "with that stage, or set another checkpoint_s3_uri"
            )
            raise CheckpointError(message)
        parts: list[Any] = [None] * dist.get_world_size()
        parts[dist.get_rank()] = engine.optimizer.state_dict() | self._saved
        with keeping_weight_decay(self.optimizer):
            engine.optimizer.load_state_dict(parts, load_from_fp32_weights=True)
        self._saved = None

    def whole_weights(self) -> Mapping[str, Tensor]:
        """Return the model's whole state. Every rank must call it.

        Under stage 3, only rank 0 returns the state, on the CPU; other ranks return an empty dict. Sharded tensors
        are gathered one by one, so ranks other than 0 have at most one whole tensor at any time.
        """
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        if not any(hasattr(each, "ds_id") for each in parameters.values()):
            return self.model.state_dict()
        import deepspeed  # noqa: PLC0415 first use: seconds

        keeps = not dist.is_initialized() or dist.get_rank() == 0
        weights: dict[str, Tensor] = {}
        for name, stored in self.model.state_dict().items():
            each = parameters.get(name, stored)
            with deepspeed.zero.GatheredParameters([each] if name in parameters else []):
                if keeps:
                    weights[name] = each.detach().to("cpu", copy=True)
        return weights

    def _own_part(self) -> Any:
        """Return this rank's part of the optimizer's state, with its tensors on the CPU.

        Rank 0 gathers the parts of all ranks. If a tensor were on a GPU, rank 0 would load it onto the GPU with the
        same index on its own host.
        """
        whole = self.engine.optimizer.state_dict()
        return on_cpu({name: whole[name] for name in PARTS if name in whole})


class CollectingCheckpointer(Checkpointer):
    """A Checkpointer that collects the state from all ranks before a save, and sends each rank its part at a resume."""

    files = ("model", "zero", "run")

    def save(self, state: ZeroState, *, within_s: float | None = None) -> None:  # type: ignore[override]
        """Collect the state on rank 0, copy it and write it in the background.

        Training first waits until the previous write has ended. If that write has not ended after `within_s`
        seconds, the new checkpoint is postponed. Without `within_s`, the wait has no limit.
        """
        super().save(state, within_s=within_s)
        state.discard_collected()

    def _collect(self, state: ZeroState) -> None:
        state.collect(self._ranks)

    def _share(self, content: Any) -> Any:
        """Return rank 0's checkpoint on every rank, with only this rank's part under `zero`.

        Return None if rank 0 has no checkpoint.

        Raises:
            CheckpointError: the checkpoint was saved by another number of ranks; raised on every rank.
        """
        parts = content.pop("zero") if content else []
        shared = super()._share(content)
        if shared is None:
            return None
        size, saved = self._ranks.world_size, len(shared["run"]["random_states"])
        if saved != size:
            message = (
                f"the checkpoint has the optimizer state of {saved} ranks, but this job has {size}: the state cannot "
                f"be redistributed; resume with {saved} ranks, or set another checkpoint_s3_uri"
            )
            raise CheckpointError(message)
        own = parts[:1] or [None]
        if size > 1:
            dist.scatter_object_list(own, parts)
        return {**shared, "zero": own[0]}
