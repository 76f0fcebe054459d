"""Training whose model, gradients and optimizer state are sharded over the ranks."""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from trainer.data.sample_digest import MASK, digest_of
from trainer.evaluation import ModelEvaluation
from trainer.models import build_empty
from trainer.precision import DTYPES, Precision
from trainer.sharding.checkpointing import ShardedCheckpointer, ShardedState
from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainer.sharding.mesh import RankMesh
from trainer.sharding.model import parallelize_model, whole_weights
from trainer.sharding.pipeline import Pipeline, pass_forward
from trainer.training import Training
from trainyard_watch.statistics.checksums import ReplicaChecksums
from trainyard_watch.statistics.sharded_tensors import ShardedTensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.distributed import ProcessGroup

    from trainer.llama.checkpoint import LlamaCheckpoint
    from trainer.measurements import Meter
    from trainyard_watch.statistics.tensors import ModelTensors

log = logging.getLogger(__name__)
SMP_VARIABLE = "SM_HP_MP_PARAMETERS"
NOT_OF_SMP = ("context_parallel_degree",)  # split by trainer.sharding itself


class ShardedTraining(Training):
    """A Training with FSDP2 or HSDP, and with tensor, context and pipeline parallelism.

    The hyperparameters set the degree of each.
    """

    hyperparameters_class = ShardedHyperparameters
    state_class = ShardedState
    checkpointer_class = ShardedCheckpointer
    hp: ShardedHyperparameters
    mesh: RankMesh | None = None
    pipeline: Pipeline | None = None

    def setup_mesh(self) -> tuple[int, int]:
        """Create the mesh; return the index of this rank's part of each global batch, and the number of parts.

        Ranks that split one model read the same part.

        Raises:
            HyperparameterError: a degree of parallelism is not valid for the number of ranks.
        """
        with self.ranks.all_or_none():
            degrees = self.hp.degrees(self.ranks.world_size)
        if degrees.pipeline > 1 and self.hp.micro_batch_size is None:
            each = self.hp.global_batch_size // (degrees.num_readers * degrees.pipeline)
            self.hp = dataclasses.replace(self.hp, micro_batch_size=max(1, each))
        if self.ranks.world_size > 1:
            _start_library(os.environ)
            self.mesh = RankMesh.of(degrees, self.ranks.device)
        return (self.mesh.reader if self.mesh else 0), degrees.num_readers

    def make_model(self, initial: LlamaCheckpoint | None) -> nn.Module:
        """Return this rank's part of the model, with the initial weights or random ones."""
        config = self.task.model_config
        self.num_parameters = sum(each.numel() for each in build_empty(config).parameters())
        model, self.share = parallelize_model(
            config, self.hp, self.mesh, self.ranks.device, fill=initial.fill if initial else None
        )
        return model

    def make_precision(self) -> Precision:
        """Return the precision of the training loop: float32 with several ranks, the given precision with one.

        With several ranks, FSDP2 casts the shards to the given precision when it gathers them.
        """
        return Precision.of("fp32" if self.mesh else self.hp.precision, self.ranks.device)

    def count_parameters(self) -> int:
        """Return the number of parameters of the whole model."""
        return self.num_parameters

    def parallelize(self) -> None:
        """Set `parallel` to the model, which is already sharded. If there are pipeline stages, set `pipeline`, too."""
        if self.mesh is None:
            super().parallelize()
            return
        self.parallel = self.model
        if self.mesh.degrees.pipeline > 1:
            self.pipeline = Pipeline(
                self.model,
                self.mesh,
                kind=self.hp.pipeline_schedule,
                num_micro_batches=self.plan.gradient_accumulation_steps,
                loss=self.loss_of_outputs,
            )

    def step_groups(self) -> list[ProcessGroup]:
        """Return this rank's process groups in the mesh."""
        return self.mesh.groups if self.mesh else []

    def make_tensors(self) -> ModelTensors:
        """Return the object that measures and clips sharded gradients."""
        if self.mesh is None:
            return super().make_tensors()
        degrees = self.mesh.degrees
        return ShardedTensors(
            self.model,
            device=self.ranks.device,
            num_ranks=self.mesh.whole.size() // degrees.pipeline,
            group=self.mesh.stage_group,
            stages=self.mesh.whole["pp"].get_group() if degrees.pipeline > 1 else None,
        )

    def make_checksums(self) -> ReplicaChecksums | None:
        """Return the object that compares shards between this rank and its replicas, or None if it has no replica."""
        if self.mesh is None or self.mesh.degrees.replicate == 1:
            return None
        replicas = self.mesh.whole["dp_replicate"]
        places = [self.mesh.place(axis) for axis in ("pp", "dp_shard", "cp", "tp")]
        return ReplicaChecksums(
            self.tensors.names,
            rank=replicas.get_local_rank(),
            size=replicas.size(),
            group=replicas.get_group(),
            label="-".join(map(str, places)),
        )

    def batches(self) -> Iterator[tuple[Any, Tensor]]:
        """Yield micro-batches, cut to this rank's positions of a sequence, and their sample ids."""
        for batch, samples in super().batches():
            yield self.own_part(batch), samples

    def own_part(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return a batch with only this rank's positions of each sequence; unchanged without context parallelism."""
        return self.share.of_batch(batch) if self.share else batch

    @property
    def num_averaged(self) -> int:
        """The number of ranks over which an exchange averages the gradient."""
        return self.mesh.degrees.num_averaged if self.mesh else 1

    def exchanging(self, exchanges: bool) -> AbstractContextManager[Any]:
        """Set whether a micro-step averages gradients over replicas; return an empty context.

        Each micro-step reduces gradients into shards; only the last one averages them over
        replicas.
        """
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_all_reduce(exchanges)
        return nullcontext()

    def accumulate_gradients(
        self, batches: Iterator[tuple[Any, Tensor]], meter: Meter
    ) -> tuple[Tensor, int]:
        """Add up the gradient of the global batch's mean loss.

        Returns:
            The sum of losses, and the digest of the samples. The sum is 0 unless this rank is in the last pipeline
            stage and first on the tensor axis. The digest is 0 unless this rank is the first of those that read the
            same samples. So sums over all ranks count nothing twice.
        """
        if self.pipeline is None:
            loss_sum, digest = super().accumulate_gradients(batches, meter)
        else:
            loss_sum, digest = self.pass_through_stages(self.pipeline, batches, meter)
        if self.mesh is None:
            return loss_sum, digest
        return (
            loss_sum if self.mesh.knows_loss else torch.zeros_like(loss_sum),
            digest if self.mesh.is_first_of_model else 0,
        )

    def drop_batch(self, batches: Iterator[tuple[Any, Tensor]], meter: Meter) -> int:
        """Read and discard a batch; return the digest of its samples.

        Of the ranks that read the same samples, only the first returns the digest. The others return 0.
        """
        digest = super().drop_batch(batches, meter)
        return digest if self.mesh is None or self.mesh.is_first_of_model else 0

    def pass_through_stages(
        self, pipeline: Pipeline, batches: Iterator[tuple[Any, Tensor]], meter: Meter
    ) -> tuple[Tensor, int]:
        """Run the step's micro-batches through the stages; return the sum of losses and the digest of the samples."""
        digest, own = 0, []
        self.parallel.train()
        with meter.waiting_for_data():
            for _ in range(self.plan.gradient_accumulation_steps):
                batch, samples = next(batches)
                digest += digest_of(samples)
                self.statistics.see_inputs(batch)
                own.append(batch)
        with meter.part("forward"):
            loss_sum = pipeline.add_gradients(own)
        return loss_sum / (self.num_averaged / self.units_per_batch), digest & MASK

    def loss_of_outputs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return a micro-batch's part of the global batch's mean loss, times `num_averaged`.

        An exchange averages gradients over `num_averaged` ranks, so the factor makes the average a sum.
        """
        scale = self.num_averaged / self.units_per_batch
        return self.task.loss_sum(outputs, (targets, targets)) * scale

    def evaluate(
        self, batches: Iterator[Any], *, keeps_predictions: bool = True
    ) -> ModelEvaluation:
        """Return the evaluation of the model over all ranks' batches.

        With several ranks, confusion counts are not recorded, and `keeps_predictions` has no
        effect.
        """
        if self.mesh is None:
            return super().evaluate(batches, keeps_predictions=keeps_predictions)
        return _evaluate_together(self, self.mesh, batches)

    def whole_weights(self) -> Mapping[str, Tensor]:
        """Return the model's whole state on rank 0, with the names and row order of train_ddp.py."""
        return whole_weights(self.model, self.mesh, self.task.model_config, self.ranks.device)


@torch.no_grad()
def _evaluate_together(
    training: ShardedTraining, mesh: RankMesh, batches: Iterator[Any]
) -> ModelEvaluation:
    """Return the mean loss over all ranks' batches; the model is left in evaluation mode.

    `batches` has None in place of a batch that only other ranks have. Ranks that share shards must run the
    model equally often. This rank therefore runs the training split's first sample in place of None, and
    discards the outputs.
    """
    task, ranks = training.task, training.ranks
    loss_sum, num_correct, num_samples = 0.0, 0.0, 0
    spare = training.first_samples(1)
    training.model.eval()
    for batch in batches:
        own = training.own_part(batch or spare)
        outputs = _outputs(training, mesh, own)
        if batch is None or outputs is None or not mesh.knows_loss:
            continue
        loss_sum += task.loss_sum(outputs, own).item()
        num_correct += task.num_correct(outputs, own)
        num_samples += len(batch[0]) if mesh.place("cp") == 0 else 0
    loss_sum, num_correct, total = ranks.sum([loss_sum, num_correct, num_samples])
    num_units = int(total) * task.units_per_sample
    return ModelEvaluation(
        loss=loss_sum / num_units,
        num_units=num_units,
        accuracy=num_correct / num_units if task.num_classes else None,
    )


def _outputs(training: ShardedTraining, mesh: RankMesh, batch: tuple[Tensor, ...]) -> Tensor | None:
    if mesh.degrees.pipeline == 1:
        return training.task.outputs(training.model, batch)
    hp, tokens = training.hp, batch[0]
    like = (len(tokens), tokens.shape[1] // mesh.degrees.tensor, hp.hidden_size)
    return pass_forward(training.model, mesh, tokens, like=like, dtype=DTYPES[hp.precision])


def _start_library(environ: Mapping[str, str]) -> None:
    """Initialize SMP (`torch.sagemaker`) if the job has `mp_parameters` and the image has the library.

    trainer.sharding implements the parameters with torch alone, so training is the same without the library.
    """
    parameters = json.loads(environ.get(SMP_VARIABLE) or "{}")
    if not parameters:
        return
    try:
        library = importlib.import_module("torch.sagemaker")
    except ImportError:
        log.warning("mp_parameters: the image has no torch.sagemaker; sharding by torch alone")
        return
    library.init({name: value for name, value in parameters.items() if name not in NOT_OF_SMP})
    log.info("torch.sagemaker has started: hybrid_shard_degree %s, tensor_parallel_degree %s",
             library.state.hybrid_shard_degree, library.state.tensor_parallel_degree)  # fmt: skip
