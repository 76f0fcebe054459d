"""Training run of one rank: setup, resume, steps, results."""

from __future__ import annotations

import logging
import math
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer.artifacts import weights_sha256, write_model
from trainer.batching import plan_batches
from trainer.checkpoint_pace import make_pace
from trainer.checkpointing import Checkpointer
from trainer.data.loader import choose_num_processes, evaluation_batches, training_batches
from trainer.data.mixture import MixedSamples, evaluated_parts, order_of
from trainer.data.sample_digest import MASK, digest_of, from_limbs, to_limbs
from trainer.data.sample_order import RankBatches
from trainer.data.shard_index import ChannelIndex
from trainer.evaluation import combine, evaluate
from trainer.failure import note_stop
from trainer.hyperparameters import Hyperparameters
from trainer.llama.config import CHANNEL as INIT_CHANNEL
from trainer.llama.initial import initial_weights
from trainer.measurements import peak_memory, state_bytes
from trainer.models import build, build_empty
from trainer.optimization import make_optimizer, set_learning_rate
from trainer.parallel import make_parallel, settle_buckets
from trainer.precision import Precision, settle
from trainer.profiling import CollectiveProfile, open_traces
from trainer.run_report import RunReport
from trainer.schedule import make_schedule
from trainer.serving import write_serving_code
from trainer.step_spans import read_steps
from trainer.tasks import make_task, open_splits
from trainer.test_split import EVALUATION_FILE, describe, write_report
from trainer.training_state import TrainingState
from trainyard_watch.distributed import Ranks, choose_num_threads
from trainyard_watch.errors import NonFiniteError
from trainyard_watch.metrics import SETUP_TIMEOUT_S, START_TIMEOUT_S, MetricsWriter
from trainyard_watch.model_limit import NO_MODEL
from trainyard_watch.random_states import begin_random_states
from trainyard_watch.retention import remove
from trainyard_watch.statistics.checksums import ReplicaChecksums
from trainyard_watch.statistics.opening import (
    NO_ACTIVATIONS,
    ProcessStart,
    close_each,
    open_headlines,
    open_statistics,
)
from trainyard_watch.statistics.tensors import ModelTensors
from trainyard_watch.stopping import EXIT_CODE_TERMINATED, StoppedError, StopRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.distributed import ProcessGroup

    from trainer.data.mixture import EvaluatedPart
    from trainer.evaluation import ModelEvaluation
    from trainer.llama.checkpoint import LlamaCheckpoint
    from trainer.measurements import Meter
    from trainer.tasks import Batch
    from trainyard_watch.environment import ContainerPaths

log = logging.getLogger(__name__)

BYTES_PER_PARAMETER = 4
"""Bytes per parameter of a written model (float32)."""


class Training:
    """Training run of one rank: `__init__` sets everything up, `run` takes the steps.

    Subclasses for other kinds of parallelism override single methods, such as `setup_mesh`, `make_model`,
    `parallelize`, `exchanging` and `whole_weights`.
    """

    hyperparameters_class = Hyperparameters
    state_class = TrainingState
    checkpointer_class = Checkpointer

    def __init__(
        self, hp: Hyperparameters, paths: ContainerPaths, ranks: Ranks, stop: StopRequest
    ) -> None:
        precision, compiles = settle(hp.precision, hp.compile, ranks.device)
        self.hp = replace(hp, precision=precision, compile=compiles)
        self.paths, self.ranks, self.stop = paths, ranks, stop
        if ranks.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32
        # The same on all ranks; `stop` may change at any time, on some ranks only.
        self.is_stopping = False
        self.metrics = MetricsWriter(paths.output_data_dir, enabled=ranks.is_main)
        with self.metrics.kept_alive(at_most_s=START_TIMEOUT_S):  # the first collectives
            torch.set_num_threads(choose_num_threads(ranks, hp.num_threads))
            self.reader, self.num_readers = self.setup_mesh()

        with self.metrics.kept_alive(), ranks.all_or_none():
            self.index = ChannelIndex.load(paths.channels.get("index"), may_be_mixture=True)
            self.task = make_task(hp, self.index, paths.channels)
            verify = hp.verify_shards and ranks.local_rank == 0
            splits = ("train", "validation", *(("test",) if hp.test_samples else ()))
            self.train_set, self.validation_set, *self.test_sets = open_splits(
                self.task, self.index, paths.channels, splits, verify=verify
            )
            num_samples = len(self.train_set)
            self.plan = plan_batches(self.hp, world_size=self.num_readers, num_samples=num_samples)
            self.num_steps = self.hp.num_steps(num_samples=num_samples)
        self.skipped = read_steps(hp.skip_steps)
        self.order = order_of(self.train_set, seed=hp.seed)
        self.units_per_batch = self.plan.global_batch_size * self.task.units_per_sample

        torch.manual_seed(hp.seed)  # the same weights on every rank ...
        init = paths.channels.get(INIT_CHANNEL)
        with (
            self.metrics.kept_alive(at_most_s=SETUP_TIMEOUT_S if init else START_TIMEOUT_S),
            initial_weights(
                init, self.task.model_config, ranks, base_dir=paths.base_dir
            ) as initial,
        ):
            self.model = self.make_model(initial)
            self.init_config = initial.content if initial else None
            init_fingerprint = initial.fingerprint() if initial else None
        begin_random_states(hp.seed, rank=ranks.rank, step=0)  # ... but each rank its own dropout
        self.precision = self.make_precision()
        self.optimizer = self.make_optimizer()
        self.schedule = make_schedule(hp, max_steps=self.num_steps)
        self.state = self.state_class(
            model=self.model,
            optimizer=self.optimizer,
            scaler=self.precision.scaler,
            schedule=self.schedule,
            identity={
                "model": dict(self.task.model_config),
                "init": init_fingerprint,
                "data_fingerprint": self.index.fingerprint,
                "seed": hp.seed,
                "global_batch_size": self.plan.global_batch_size,
            },
        )
        self.report = RunReport(
            self.metrics,
            state=self.state,
            plan=self.plan,
            num_steps=self.num_steps,
            task=self.task,
            num_samples=num_samples,
            num_parameters=self.count_parameters(),
            mixture=self.train_set if isinstance(self.train_set, MixedSamples) else None,
        )
        self.collectives = CollectiveProfile(
            num_steps=hp.profile_steps, max_steps=self.num_steps, device=ranks.device
        )
        folder = Path(hp.checkpoint_dir) if hp.checkpoint_dir else paths.default_checkpoint_dir
        self.checkpointer = self.checkpointer_class(
            folder,
            keep=hp.keep_checkpoints,
            pace=make_pace(hp.checkpoint_interval, hp.mean_time_to_interruption_s),
            ranks=ranks,
            metrics=self.metrics,
        )

    def setup_mesh(self) -> tuple[int, int]:
        """Return this rank's part of each global batch: the index of the part, and the number of parts."""
        return self.ranks.rank, self.ranks.world_size

    def make_model(self, initial: LlamaCheckpoint | None) -> nn.Module:
        """Return the model on the device, with the same weights on every rank: the initial ones, or random ones."""
        if initial is None:
            return build(self.task.model_config).to(self.ranks.device)
        model, device = build_empty(self.task.model_config), self.ranks.device
        weights = {
            name: each.to(device, torch.float32, copy=True) for name, each in initial.items()
        }
        model.load_state_dict(weights, assign=True)
        return model.to(device)

    def make_precision(self) -> Precision:
        """Return the precision of the forward pass."""
        return Precision.of(self.hp.precision, self.ranks.device)

    def count_parameters(self) -> int:
        """Return the number of parameters of the whole model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer of the model's parameters."""
        return make_optimizer(self.model, weight_decay=self.hp.weight_decay)

    def parallelize(self) -> None:
        """Set `parallel`, the wrapped model that each step runs.

        `run` calls this method after the checkpoint is restored.
        """
        self.parallel = make_parallel(self.model, self.ranks, compiled=bool(self.hp.compile))
        settle_buckets(self.parallel, self.ranks, self.loss_of_first_samples)

    def step_groups(self) -> list[ProcessGroup]:
        """Return the process groups, other than the default group, that a step's collectives use."""
        return []

    def make_tensors(self) -> ModelTensors:
        """Return the object that measures and clips the model's gradients; called after `parallelize`."""
        return ModelTensors(self.model)

    def make_checksums(self) -> ReplicaChecksums | None:
        """Return the object that compares parameters between this rank and its replicas, or None without a replica."""
        size = self.ranks.world_size
        if size == 1:
            return None
        return ReplicaChecksums(self.tensors.names, rank=self.ranks.rank, size=size)

    def open_statistics(self) -> None:
        """Set `tensors`, `statistics` and `headlines`, and register the last two as listeners of the metrics."""
        self.tensors = self.make_tensors()
        if self.hp.compile and self.hp.statistics != "off" and self.ranks.is_main:
            log.info(NO_ACTIVATIONS)
        self.statistics = open_statistics(
            self.hp.statistics,
            self.paths,
            self.ranks,
            tensors=self.tensors,
            model=None if self.hp.compile else self.model,
            start=ProcessStart(
                number=self.state.progress.num_starts,
                step=self.state.progress.step,
                max_steps=self.num_steps,
                global_batch_size=self.plan.global_batch_size,
            ),
            checksums=self.make_checksums(),
        )
        self.headlines = open_headlines(
            self.paths,
            self.ranks,
            tensorboard_dir=self.hp.tensorboard_dir,
            settings=self.hp.to_dict(),
        )
        self.statistics.listeners.append(self.headlines.on_record)
        self.metrics.listeners += [self.statistics.on_record, self.headlines.on_record]

    def run(self) -> int:
        """Resume, train to the last step or a stop, and write the model; return the exit code."""
        began = time.monotonic()
        self.report.log_setup(self.index, self.ranks)
        with self.metrics.kept_alive():
            self.checkpointer.resume(self.state)
        self.state.progress.num_starts += 1
        self.report.log_start(ranks=self.ranks, seed=self.hp.seed)
        with self.metrics.kept_alive(self.state.progress.step, at_most_s=START_TIMEOUT_S):
            self.parallelize()
            self.open_statistics()
        self.traces = open_traces(
            self.hp, self.paths, self.ranks, num_starts=self.state.progress.num_starts
        )
        try:
            self.take_steps()
            self.ranks.wait_at_most(SETUP_TIMEOUT_S, self.step_groups())
            with self.metrics.kept_alive(self.state.progress.step):
                self.checkpointer.save(self.state)
                self.checkpointer.finish()
            with self.metrics.kept_alive(self.state.progress.step):
                facts = self.write_results(obstacle=self.obstacle_to_model())
            self.measure_test_split()
            self.report.log_end(
                facts, seconds=time.monotonic() - began, index=self.index, ranks=self.ranks
            )
        finally:
            close_each(self.traces, self.statistics, self.headlines)
        self.ranks.barrier()
        return EXIT_CODE_TERMINATED if self.is_stopping else 0

    def take_steps(self) -> None:
        """Train until the last step, an early stop, or SIGTERM."""
        batches = self.batches()
        with self.compiling():
            self.validate_if_due()  # the last start may have been stopped before its validation
            if self.goes_on():
                self.take_step(batches)
        while self.goes_on():
            self.take_step(batches)

    def goes_on(self) -> bool:
        """Return whether another step follows."""
        return not self.is_finished() and not self.is_stopping

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Set the timeout of collectives to `distributed_timeout_s`; the body runs this process's first step.

        If the model is not compiled, the timeout is set before the body. If it is compiled, the first step includes
        the compilation. The timeout is then set after the body, so that this step has the longer timeout of the
        setup.
        """
        if self.hp.compile:
            step = self.state.progress.step
            with self.metrics.kept_alive(step, at_most_s=START_TIMEOUT_S):
                yield
        self.ranks.wait_at_most(self.hp.distributed_timeout_s, self.step_groups())
        if not self.hp.compile:
            yield

    def take_step(self, batches: Iterator[tuple[Any, Tensor]]) -> None:
        """Take one optimizer step, then log, validate and save a checkpoint if they are due."""
        progress, meter = self.state.progress, self.report.meter
        skipped = self.skip_steps(batches, meter)
        number = progress.step + 1
        with self.collectives.step(number), self.traces.step(number), meter.step():
            learning_rate = self.schedule.at(progress.step)
            set_learning_rate(self.optimizer, learning_rate)
            self.statistics.begin_step(progress.step + 1)
            loss_sum, digest = self.accumulate_gradients(batches, meter)
            loss, digest, saves = self.sync_metrics(loss_sum, digest + skipped & MASK)
            gradient_norm = self.update_weights(loss)
            self.log_step(loss, gradient_norm)
        progress.step += 1
        progress.samples_consumed += self.plan.global_batch_size
        progress.trained_seconds += meter.of_step()["step_seconds"]
        self.report.count_step(digest)

        # A checkpoint and the end of a run need a metric line that accounts for their last sample.
        if self.is_logged(progress.step) or saves or self.is_stopping:
            self.report.log_step(
                loss=loss, learning_rate=learning_rate, gradient_norm=gradient_norm
            )
        if self.is_stopping:
            log.warning("SIGTERM: stopping after step %d", progress.step)
        else:
            self.validate_if_due()
            if saves and not self.is_stopping:  # after a stop, `run` saves
                with self.metrics.kept_alive(progress.step):  # the other ranks wait for rank 0
                    self.checkpointer.save(self.state, within_s=self.hp.distributed_timeout_s / 2)
        self.metrics.write_alive(progress.step)

    def skip_steps(self, batches: Iterator[tuple[Any, Tensor]], meter: Meter) -> int:
        """Skip the next steps if the hyperparameter `skip_steps` names them; return the digest of their samples.

        The digest covers the samples that this rank read. The batch of a skipped step is read and dropped, so all
        other steps keep their samples and learning rates. Validations, checkpoints and the reaction to a SIGTERM
        are postponed to the next step that is not skipped. The last step is never skipped.
        """
        progress, digest = self.state.progress, 0
        while progress.step + 1 in self.skipped and progress.step + 1 < self.num_steps:
            digest += self.drop_batch(batches, meter)
            progress.step += 1
            progress.samples_consumed += self.plan.global_batch_size
            progress.skipped_steps += 1
            self.report.count_step(0)  # the digest is part of the next step's
            self.metrics.write("skipped", step=progress.step, reason="skip_steps lists it")
        return digest & MASK

    def drop_batch(self, batches: Iterator[tuple[Any, Tensor]], meter: Meter) -> int:
        """Read and discard this rank's part of a global batch; return the digest of its samples."""
        with meter.waiting_for_data():
            read = (next(batches) for _ in range(self.plan.gradient_accumulation_steps))
            return sum(digest_of(samples) for _, samples in read) & MASK

    def log_step(self, loss: float, gradient_norm: float) -> None:
        """Write the current step's loss, learning rate, norm, speed and times to the statistics."""
        seconds = self.report.meter.of_step()
        self.statistics.end_step(
            loss=loss,
            learning_rate=self.schedule.at(self.state.progress.step),
            gradient_norm=gradient_norm,
            units_per_second=self.units_per_batch / max(1e-9, seconds["step_seconds"]),
            **seconds,
        )

    def is_finished(self) -> bool:
        """Return whether all steps are taken, or the validation loss has stopped falling."""
        return self.state.progress.step >= self.num_steps or self.has_stopped_improving()

    def is_logged(self, step: int) -> bool:
        """Return whether the step has a metric line because of its number; a checkpoint or a stop also causes one."""
        return step == 1 or step % self.hp.log_interval == 0 or self.is_evaluated(step)

    def is_evaluated(self, step: int) -> bool:
        """Return whether validation follows the step."""
        interval = self.hp.eval_interval
        return step == self.num_steps or bool(interval and step % interval == 0)

    def batches(self) -> Iterator[tuple[Any, Tensor]]:
        """Return this rank's micro-batches and their sample ids, from the first sample not consumed yet."""
        positions = RankBatches(
            order=self.order,
            start=self.state.progress.samples_consumed,
            global_batch_size=self.plan.global_batch_size,
            micro_batch_size=self.plan.micro_batch_size,
            rank=self.reader,
            world_size=self.num_readers,
        )
        return training_batches(
            self.train_set,
            positions,
            num_workers=choose_num_processes(self.hp.num_workers, self.ranks),
            device=self.ranks.device,
        )

    def accumulate_gradients(
        self, batches: Iterator[tuple[Any, Tensor]], meter: Meter
    ) -> tuple[Tensor, int]:
        """Add up the gradient of the global batch's mean loss.

        DDP averages over ranks, so each rank's part is multiplied by the world size first. Ranks
        exchange gradients in the last micro-step only.

        Returns:
            This rank's sum of losses (float64 scalar), and the digest of the samples that it read.
        """
        loss_sum, digest = torch.zeros((), device=self.ranks.device, dtype=torch.float64), 0
        num_micro_steps = self.plan.gradient_accumulation_steps
        self.parallel.train()
        for micro_step in range(1, num_micro_steps + 1):
            with meter.waiting_for_data():
                batch, samples = next(batches)
            digest += digest_of(samples)
            self.statistics.see_inputs(batch)
            loss_sum += self.add_gradient(batch, exchanges=micro_step == num_micro_steps)
        return loss_sum, digest & MASK

    def add_gradient(self, batch: Any, *, exchanges: bool) -> Tensor:
        """Add one micro-batch's part of the gradient; return the sum of its losses.

        The ranks exchange gradients if `exchanges` is true.
        """
        scale = self.num_averaged / self.units_per_batch
        meter = self.report.meter
        with self.exchanging(exchanges):
            with meter.part("forward"), self.precision.forward():
                part = self.task.loss_sum(self.task.outputs(self.parallel, batch), batch)
            if exchanges:
                meter.end_local_part()
            with meter.part("backward"):
                self.differentiate(part * scale)
        return part.detach()

    def differentiate(self, loss: Tensor) -> None:
        """Run the backward pass of a micro-batch's part of the loss, scaled by the loss scaler."""
        self.precision.scaler.scale(loss).backward()

    @property
    def num_averaged(self) -> int:
        """The number of ranks over which an exchange averages the gradient."""
        return self.ranks.world_size

    def exchanging(self, exchanges: bool) -> AbstractContextManager[Any]:
        """Return the context of a micro-step: gradients are exchanged in it, or only accumulated locally."""
        waits = self.ranks.world_size > 1 and not exchanges
        return self.parallel.no_sync() if waits else nullcontext()

    def loss_of_first_samples(self) -> Tensor:
        """Return the summed loss of the training split's first samples, as many as one micro-batch has.

        The samples are the first ones in the data set, not the first ones in the run's sample order.
        """
        batch = self.first_samples(self.plan.micro_batch_size)
        with self.precision.forward():
            return self.task.loss_sum(self.task.outputs(self.parallel, batch), batch)

    def first_samples(self, number: int) -> Batch:
        """Return the training split's first `number` samples as a batch on the device."""
        return tuple(part.to(self.ranks.device) for part in self.train_set[torch.arange(number)])

    def sync_metrics(self, loss_sum: Tensor, digest: int) -> tuple[float, int, bool]:
        """Combine the ranks' losses, digests and flags of this step in one collective.

        Set `is_stopping` if any rank received SIGTERM. If any rank had an error in its statistics, stop measuring
        tensors for the statistics on all ranks.

        Returns:
            The mean loss over the global batch, the digest of its samples, and whether a checkpoint follows. All
            ranks return the same values.
        """
        saves = self.checkpointer.is_due(self.state.progress.step + 1)
        flags = (self.stop.received, saves, self.statistics.is_degraded)
        own = loss_sum.item()
        with self.report.meter.part("communication"):
            total, num_stopping, num_saving, num_degraded, *limbs = self.ranks.sum(
                [own, *map(float, flags), *to_limbs(digest)]
            )
        self.is_stopping = num_stopping > 0
        if num_degraded:
            self.statistics.degrade()
        return total / self.units_per_batch, from_limbs(*limbs), num_saving > 0

    def update_weights(self, loss: float) -> float:
        """Clip the gradients and take one optimizer step; return the norm of the gradients before clipping.

        If the loss or the norm is not finite, no rank changes its weights. With fp16, a norm that is not finite is
        expected at times. If the loss is finite, the loss scaler then leaves the weights unchanged, and the step
        does not count as skipped.

        Raises:
            NonFiniteError: the loss or, without fp16, the norm is not finite, and either `on_non_finite` is "fail"
                or the number of skipped steps in a row exceeds `most_skipped_steps`.
        """
        scaler, meter = self.precision.scaler, self.report.meter
        with meter.part("optimizer"):
            scaler.unscale_(self.optimizer)
            norm = self.clip_gradients(self.hp.clip_norm or math.inf)
            is_good = math.isfinite(loss) and (math.isfinite(norm) or scaler.is_enabled())
            if is_good:
                self.state.progress.skipped_in_a_row = 0
                self.statistics.before_update()
                scaler.step(self.optimizer)
                self.statistics.after_update()
            scaler.update()
            self.optimizer.zero_grad()
        if not is_good:
            self.refuse_update(loss, norm)
        return norm

    def refuse_update(self, loss: float, norm: float) -> None:
        """Count a step with a non-finite loss or gradient norm as skipped, and write the event `skipped`.

        If such a step must end the training, write its statistics and raise the error instead.

        Raises:
            NonFiniteError: as in `update_weights`.
        """
        progress = self.state.progress
        seen = f"the loss is {loss:.6f} but the gradient norm is {norm}"
        error = self.divergence(seen if math.isfinite(loss) else f"the loss is {loss}")
        progress.skipped_steps += 1
        progress.skipped_in_a_row += 1
        if (
            self.hp.on_non_finite == "fail"
            or progress.skipped_in_a_row > self.hp.most_skipped_steps
        ):
            self.log_step(loss, norm)
            raise error
        self.metrics.write("skipped", step=progress.step + 1, reason=error.findings[0])

    def clip_gradients(self, limit: float) -> float:
        """Scale the gradient down to the L2 norm `limit`; return its norm before clipping."""
        total, norm = self.statistics.measure()
        self.tensors.clip(limit, total)
        return norm

    def divergence(self, seen: str) -> NonFiniteError:
        """Return the error for a non-finite loss or gradient norm in the current step.

        It names the step's samples and settings. `seen` describes the value that is not finite.
        """
        progress = self.state.progress
        return NonFiniteError.in_step(
            progress.step + 1,
            seen=seen,
            samples=range(
                progress.samples_consumed,
                progress.samples_consumed + self.plan.global_batch_size,
            ),
            settings=f"learning rate {self.schedule.at(progress.step):g}, precision "
            f"{self.hp.precision}, clip_norm {self.hp.clip_norm:g}",
        )

    def validate_if_due(self) -> None:
        """Measure the validation loss if it is due; the samples do not depend on the number of ranks.

        A stop ends the measurement without a result, so the next start repeats it.
        """
        progress = self.state.progress
        if not self.is_evaluated(progress.step) or progress.evaluated_step == progress.step:
            return
        parts = evaluated_parts(
            self.validation_set, self.hp.eval_batches * self.hp.global_batch_size
        )
        try:
            results = [
                self.evaluate(self.until_stop(self.report_alive(self.batches_of(part))))
                for part in parts
            ]
        except StoppedError as error:
            log.warning(
                "SIGTERM: the validation after step %d is NOT MEASURED (%s): the next start measures it",
                progress.step,
                error,
            )
            return
        result = combine(parts, results)
        progress.note_validation(result.loss)
        self.metrics.write(
            "eval",
            step=progress.step,
            validation_loss=result.loss,
            validation_accuracy=result.accuracy,
            **{f"validation_{self.task.unit}": result.num_units},
            validation_loss_by_source=result.losses(),
        )

    def batches_of(self, part: EvaluatedPart) -> Iterator[Any]:
        """Return this rank's batches of samples to evaluate."""
        return evaluation_batches(
            part.samples,
            num_samples=part.num_samples,
            batch_size=self.plan.micro_batch_size,
            rank=self.reader,
            world_size=self.num_readers,
            device=self.ranks.device,
        )

    def evaluate(
        self, batches: Iterator[Any], *, keeps_predictions: bool = True
    ) -> ModelEvaluation:
        """Return the evaluation of the model over all ranks' batches.

        The confusion counts of the predictions go into the statistics if `keeps_predictions` is true and the task has
        classes.
        """
        classes = self.task.num_classes if keeps_predictions else 0
        confusion = self.statistics.new_confusion(classes)
        result = evaluate(
            self.task,
            self.evaluated,
            batches,
            precision=self.precision,
            ranks=self.ranks,
            see=confusion.add if confusion else None,
            spare=self.spare,
        )
        if confusion:
            counts = self.ranks.sum(confusion.flat())
            if self.ranks.is_main:
                self.statistics.write_predictions(self.state.progress.step, counts)
        return result

    @property
    def evaluated(self) -> nn.Module:
        """The model that an evaluation calls."""
        return self.model

    @property
    def spare(self) -> Batch | None:
        """The batch to run once this rank has evaluated all its batches but others have not; None to run nothing."""
        return None

    def report_alive(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches and report the run as alive, so that a long evaluation is not mistaken for a hang."""
        for batch in batches:
            self.metrics.write_alive(self.state.progress.step)
            yield batch

    def until_stop(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches, and None in place of each batch that only other ranks have.

        Raises:
            StoppedError: any rank received SIGTERM. All ranks raise it before the same batch.
        """
        num_rounds = 0
        while True:
            batch = next(batches, None)
            has_batch, is_stopped = self.ranks.sum([batch is not None, self.stop.received])
            if is_stopped:
                self.is_stopping = True
                message = f"it was stopped after {num_rounds} batches per rank"
                raise StoppedError(message)
            if not has_batch:
                return
            num_rounds += 1
            yield batch

    def measure_test_split(self) -> None:
        """Measure the test split if `test_samples` is set, and write evaluation.json from rank 0.

        The model is written first. A stop ends the measurement without evaluation.json, because the loss over a part
        of the samples is not comparable. A later start of the job measures the split again.
        """
        if self.is_stopping or not self.test_sets:
            return
        (samples,) = self.test_sets
        parts = evaluated_parts(samples, self.hp.test_samples)
        try:
            results = [
                self.evaluate(
                    self.until_stop(self.report_alive(self.batches_of(part))),
                    keeps_predictions=False,
                )
                for part in parts
            ]
        except StoppedError as error:
            log.warning(
                "SIGTERM: the test split is NOT MEASURED (%s): no %s is written; the model is in %s",
                error,
                EVALUATION_FILE,
                self.paths.model_dir,
            )
            return
        if not self.ranks.is_main:
            return
        progress = self.state.progress
        report = describe(
            combine(parts, results),
            task=self.task,
            index=self.index,
            split="test",
            num_samples=sum(part.num_samples for part in parts),
            num_split_samples=len(samples),
            measured={
                "place": "training",
                "num_ranks": self.ranks.world_size,
                "layout": "as trained",
                "precision": self.hp.precision,
            },
            model={
                "num_parameters": self.count_parameters(),
                "config": dict(self.task.model_config),
                "step": progress.step,
                "validation_loss": progress.validation_loss,
            },
        )
        report["trained_on_fingerprint"] = self.index.fingerprint
        write_report(self.paths.output_data_dir, report)

    def has_stopped_improving(self) -> bool:
        """Return whether to stop early. All ranks have the same validation losses, so they make the same decision."""
        patience = self.hp.early_stopping_patience
        return bool(patience) and self.state.progress.evaluations_without_gain >= patience

    def obstacle_to_model(self) -> str | None:
        """Return the reason not to write the model after a stop, or None; the same on all ranks."""
        if not self.is_stopping:
            return None
        num_bytes = self.count_parameters() * BYTES_PER_PARAMETER
        return self.checkpointer.obstacle_to_model(num_bytes, self.stop)

    def write_results(self, *, obstacle: str | None) -> dict[str, Any]:
        """Write the model from rank 0 unless there is an obstacle; return facts about the run.

        The facts are for the summary. Ranks other than 0 return an empty dict.
        """
        facts = self.facts()
        if obstacle is None:
            with self.stop.bounded(self.give_up_model):
                facts |= self.write_whole_model(facts)
        elif self.ranks.is_main:
            step = self.state.progress.step
            log.warning(NO_MODEL, step, obstacle)
            self.metrics.write("no_model", step=step, reason=obstacle)
        measured = self.measure_ranks()
        return facts | measured if self.ranks.is_main else {}

    def write_whole_model(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Gather the model and write it from rank 0, with `facts` in its model.json.

        Return `weights_sha256` on rank 0, and an empty dict on other ranks.
        """
        weights = self.whole_weights()
        if not self.ranks.is_main:
            return {}
        tokenizer = self.index.content.get("tokenizer")
        write_model(
            self.paths.model_dir,
            weights,
            self.task,
            {**facts, "tokenizer": tokenizer, "categories": self.index.categories},
            like=self.init_config,
        )
        write_serving_code(self.paths.model_dir / "code")
        return {"weights_sha256": weights_sha256(weights)}

    def give_up_model(self) -> None:
        """Remove the incomplete model, because a stop's grace period is almost over."""
        note_stop(self.paths)  # else torchrun would start the ranks again
        if self.ranks.is_main:
            remove(self.paths.model_dir.glob("*"))
            log.warning(
                NO_MODEL, self.state.progress.step, "the stop's grace period is almost over"
            )

    def facts(self) -> dict[str, Any]:
        """Return facts about the run, such as its last step, for the summary and model.json."""
        progress = self.state.progress
        reason = "sigterm" if self.is_stopping else "max_steps"
        return {
            "step": progress.step,
            "stopped_by": "early_stopping" if self.has_stopped_improving() else reason,
            "validation_loss": progress.validation_loss,
            "best_validation_loss": progress.best_validation_loss,
            "data_fingerprint": self.index.fingerprint,
            "hyperparameters": self.hp.to_dict(),
        }

    def measure_ranks(self) -> dict[str, Any]:
        """Return measurements of all ranks for the summary: their memory, and their shares of time in collectives.

        `peak_memory_bytes` and `state_bytes` (parameters, gradients and optimizer states) are lists with one
        value per rank. `memory_kind` describes the kind of memory that `peak_memory_bytes` measures. The other
        members are those of `CollectiveProfile.summary`. Every rank must call this method.
        """
        peak, kind = peak_memory(self.ranks.device)
        gathered = self.ranks.gather((peak, state_bytes(self.model, self.optimizer)))
        return {
            "peak_memory_bytes": [each for each, _ in gathered],
            "memory_kind": kind,
            "state_bytes": [each for _, each in gathered],
            **self.collectives.summary(self.ranks),
        }

    def whole_weights(self) -> Mapping[str, Tensor]:
        """Return the model's whole state, complete at least on rank 0. Every rank must call it."""
        return self.model.state_dict()
