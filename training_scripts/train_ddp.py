"""Train a model on shards with data parallelism: one process a rank, started by torchrun or alone.

Reads hyperparameters from SM_HPS and the channels `train`, `validation` and `index`; prints metric lines; leaves
`model.pt` and `model.json` in SM_MODEL_DIR, `metrics.jsonl` and `summary.json` in SM_OUTPUT_DATA_DIR, and checkpoints
in `<base>/checkpoints`, from which a later start goes on. Exit codes: 0 finished; 143 SIGTERM came, the step was
finished and a checkpoint saved; 1 failed, with the reason in `<base>/output/failure`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer.batching import plan_batches
from trainer.checkpoint import CheckpointFolder
from trainer.data.loader import evaluation_batches, training_batches
from trainer.data.sample_order import RankBatches, SampleOrder
from trainer.distributed import Ranks, choose_num_threads, joined_ranks
from trainer.environment import ContainerPaths
from trainer.errors import CheckpointError, NonFiniteError
from trainer.failure import report_failure
from trainer.hyperparameters import Hyperparameters
from trainer.metrics import MetricsWriter
from trainer.models import build
from trainer.optimization import make_optimizer, make_schedule, set_learning_rate
from trainer.precision import Precision
from trainer.stopping import EXIT_CODE_TERMINATED, StopRequest, note_validation
from trainer.tasks import open_task
from trainer.throughput import Meter
from trainer.training_state import (
    BackgroundSaver,
    Progress,
    copy_to_cpu,
    random_states,
    restore_random_states,
)

log = logging.getLogger("train_ddp")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s rank "
                        + os.environ.get("RANK", "0") + " %(name)s: %(message)s")  # fmt: skip
    paths = ContainerPaths.from_environment(os.environ)
    stop = StopRequest().install()
    try:
        hyperparameters = Hyperparameters.load(
            os.environ.get("SM_HPS", "{}"), sys.argv[1:] if argv is None else argv
        )
        with joined_ranks(os.environ, timeout_s=hyperparameters.distributed_timeout_s) as ranks:
            return Training(hyperparameters, paths, ranks, stop).run()
    except Exception as error:  # noqa: BLE001 the process boundary: every failure becomes a reason and an exit code
        report_failure(error, paths.failure_file)
        return 1


class Training:
    """One run on one rank: set up in `__init__`, then `run`."""

    def __init__(
        self, hp: Hyperparameters, paths: ContainerPaths, ranks: Ranks, stop: StopRequest
    ) -> None:
        self.hp, self.paths, self.ranks, self.stop = hp, paths, ranks, stop
        torch.set_num_threads(choose_num_threads(ranks, hp.num_threads))

        with ranks.all_or_none():
            self.task, self.index = open_task(
                hp, paths, verify=hp.verify_shards and ranks.local_rank == 0
            )
            num_samples = len(self.task.train_set)
            self.plan = plan_batches(hp, world_size=ranks.world_size, num_samples=num_samples)
        self.order = SampleOrder(num_samples=num_samples, seed=hp.seed)

        torch.manual_seed(hp.seed)  # the same weights on every rank ...
        self.model = build(self.task.model_config).to(ranks.device)
        torch.manual_seed(hp.seed + 1 + ranks.rank)  # ... but each its own dropout
        self.optimizer = make_optimizer(self.model, weight_decay=hp.weight_decay)
        self.schedule = make_schedule(hp, max_steps=self.plan.max_steps)
        self.precision = Precision.of(hp.precision, ranks.device)

        self.progress = Progress()
        self.metrics = MetricsWriter(paths.output_data_dir, enabled=ranks.is_main)
        self.folder = CheckpointFolder(
            Path(hp.checkpoint_dir) if hp.checkpoint_dir else paths.default_checkpoint_dir,
            keep=hp.keep_checkpoints,
        )
        self.saver = BackgroundSaver(self.folder)
        self.validation_loss: float | None = None

    def run(self) -> int:
        """Resume, train to the end or to a reason to stop, and write the model; return the exit code."""
        began = time.monotonic()
        self.resume()
        self.parallel = self.make_parallel()
        self.train()
        if self.validation_loss is None and not self.stop.received:
            self.evaluate()
        self.save_checkpoint()
        self.saver.finish()
        self.write_model(finished=not self.stop.received)
        seconds = time.monotonic() - began
        self.metrics.write(
            "done", step=self.progress.step, validation_loss=self.validation_loss, seconds=seconds
        )
        self.metrics.write_summary(
            step=self.progress.step,
            validation_loss=self.validation_loss,
            best_validation_loss=self.progress.best_validation_loss,
            unigram_loss=self.index.unigram_loss,
            seconds=seconds,
            world_size=self.ranks.world_size,
            num_parameters=sum(p.numel() for p in self.model.parameters()),
            data_fingerprint=self.index.fingerprint,
            hyperparameters=self.hp.to_dict(),
        )
        self.ranks.barrier()
        return EXIT_CODE_TERMINATED if self.stop.received else 0

    def make_parallel(self) -> nn.Module:
        """Return the model as the training step calls it: compiled if asked, gradients averaged over the ranks."""
        model = torch.compile(self.model) if self.hp.compile else self.model
        if self.ranks.world_size == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel  # imports torch._dynamo: seconds

        devices = [self.ranks.device.index] if self.ranks.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)

    def train(self) -> None:
        """Take steps until the last one, an early stop, or SIGTERM."""
        batches = self.batches()
        meter = Meter()
        while self.progress.step < self.plan.max_steps and not self.is_stalled():
            with meter.step():
                learning_rate = self.schedule.at(self.progress.step)
                set_learning_rate(self.optimizer, learning_rate)
                loss = self.agree_on_loss(self.accumulate_gradients(batches, meter))
                gradient_norm = self.update_weights(loss)
            self.progress.step += 1
            self.progress.samples_consumed += self.plan.global_batch_size

            step, is_last = self.progress.step, self.progress.step == self.plan.max_steps
            if step == 1 or step % self.hp.log_interval == 0 or is_last:
                self.log_step(loss, learning_rate, gradient_norm, meter)
            if self.stop.received:
                log.warning("SIGTERM: stopping after step %d", step)
                return
            if is_last or (self.hp.eval_interval and step % self.hp.eval_interval == 0):
                self.evaluate()
            if (
                self.hp.checkpoint_interval
                and step % self.hp.checkpoint_interval == 0
                and not is_last
            ):
                self.save_checkpoint()

    def batches(self) -> Iterator[Any]:
        """Return this rank's micro-batches from the first sample that was not consumed yet."""
        positions = RankBatches(
            order=self.order,
            start=self.progress.samples_consumed,
            global_batch_size=self.plan.global_batch_size,
            micro_batch_size=self.plan.micro_batch_size,
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
        )
        return training_batches(
            self.task.train_set,
            positions,
            num_workers=self.hp.num_workers,
            device=self.ranks.device,
        )

    def accumulate_gradients(self, batches: Iterator[Any], meter: Meter) -> Tensor:
        """Add up the gradient of the mean loss over the global batch; return this rank's sum of losses.

        DDP averages over ranks, so each rank's part is multiplied by the world size first.
        """
        num_units = self.plan.global_batch_size * self.task.units_per_sample
        loss_sum = torch.zeros((), device=self.ranks.device, dtype=torch.float64)
        self.parallel.train()
        for micro_step in range(1, self.plan.gradient_accumulation_steps + 1):
            with meter.waiting_for_data():
                batch = next(batches)
            is_last = micro_step == self.plan.gradient_accumulation_steps
            synchronise_later = self.ranks.world_size > 1 and not is_last
            with self.parallel.no_sync() if synchronise_later else nullcontext():
                with self.precision.forward():
                    part = self.task.loss_sum(self.parallel, batch)
                self.precision.scaler.scale(part * (self.ranks.world_size / num_units)).backward()
            loss_sum += part.detach()
        return loss_sum

    def agree_on_loss(self, loss_sum: Tensor) -> float:
        """Return the mean loss over the global batch; learn on the way whether any rank was asked to stop.

        Raises:
            NonFiniteError: the loss is not a number or infinite, on every rank alike and before weights change.
        """
        total, num_stopping = self.ranks.sum([loss_sum.item(), float(self.stop.received)])
        self.stop.received = num_stopping > 0
        loss = total / (self.plan.global_batch_size * self.task.units_per_sample)
        if not math.isfinite(loss):
            raise NonFiniteError(self.divergence(f"the loss is {loss}"))
        return loss

    def update_weights(self, loss: float) -> float:
        """Clip, take one optimizer step and clear the gradients; return the norm before clipping.

        Raises:
            NonFiniteError: the gradient norm is not finite (with fp16 the scaler skips such a step instead).
        """
        scaler = self.precision.scaler
        scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(
            self.model.parameters(), self.hp.clip_norm or math.inf
        ).item()
        if not math.isfinite(norm) and not scaler.is_enabled():
            raise NonFiniteError(
                self.divergence(f"the loss is {loss:.6f} but the gradient norm is {norm}")
            )
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def divergence(self, seen: str) -> str:
        """Return the message of a diverged run."""
        return (
            f"in step {self.progress.step + 1} (samples {self.progress.samples_consumed} to "
            f"{self.progress.samples_consumed + self.plan.global_batch_size - 1} of the run) {seen}; learning rate "
            f"{self.schedule.at(self.progress.step):g}, precision {self.hp.precision}, clip_norm {self.hp.clip_norm:g}. "
            "Checkpoints hold the state before. Lower learning_rate, raise warmup_steps, use clip_norm 1 and precision "
            "bf16 or fp32, or look for broken samples"
        )

    def evaluate(self) -> None:
        """Measure the validation loss on the same samples whatever the number of ranks, and note it."""
        total_samples = len(self.task.validation_set)
        wanted = self.hp.eval_batches * self.plan.global_batch_size
        num_samples = min(total_samples, wanted) if wanted else total_samples
        loss_sum = 0.0
        self.model.eval()
        with torch.no_grad():
            for batch in evaluation_batches(
                self.task.validation_set,
                num_samples=num_samples,
                batch_size=self.plan.micro_batch_size,
                rank=self.ranks.rank,
                world_size=self.ranks.world_size,
                device=self.ranks.device,
            ):
                with self.precision.forward():
                    loss_sum += self.task.loss_sum(self.model, batch).item()
        num_units = num_samples * self.task.units_per_sample
        self.validation_loss = self.ranks.sum([loss_sum])[0] / num_units
        note_validation(self.progress, self.validation_loss)
        self.metrics.write(
            "eval",
            step=self.progress.step,
            validation_loss=self.validation_loss,
            **{f"validation_{self.task.unit}": num_units},
        )

    def is_stalled(self) -> bool:
        """Return whether the validation loss has not improved for `early_stopping_patience` evaluations."""
        patience = self.hp.early_stopping_patience
        return bool(patience) and self.progress.evaluations_without_gain >= patience

    def log_step(
        self, loss: float, learning_rate: float, gradient_norm: float, meter: Meter
    ) -> None:
        """Write the metrics of the step just taken; rates are over the steps since the last such line."""
        steps, seconds, data_wait_seconds = meter.read()
        units = steps * self.plan.global_batch_size * self.task.units_per_sample
        self.metrics.write(
            "step",
            step=self.progress.step,
            epoch=(self.progress.samples_consumed - 1) // self.order.num_samples,
            loss=loss,
            learning_rate=learning_rate,
            gradient_norm=gradient_norm,
            eta_seconds=meter.seconds_per_step() * (self.plan.max_steps - self.progress.step),
            max_steps=self.plan.max_steps,
            data_wait_seconds=data_wait_seconds,
            **{f"{self.task.unit}_per_second": units / seconds},
        )

    def save_checkpoint(self) -> None:
        """Copy the state of the run and write it in the background; training stands still only for the copy."""
        began = time.monotonic()
        ranks_random = self.ranks.gather(random_states(self.ranks.device))
        if self.ranks.is_main:
            self.saver.start(
                self.progress.step,
                tensors={
                    "model": copy_to_cpu(self.model.state_dict()),
                    "optimizer": copy_to_cpu(self.optimizer.state_dict()),
                    "run": {
                        "identity": self.identity(),
                        "progress": dataclasses.asdict(self.progress),
                        "schedule": dataclasses.asdict(self.schedule),
                        "scaler": self.precision.scaler.state_dict(),
                        "random": ranks_random,
                    },
                },
                files={"metrics.jsonl": self.metrics.history()},
                facts={
                    "samples_consumed": self.progress.samples_consumed,
                    "world_size": self.ranks.world_size,
                },
            )
        self.metrics.write(
            "checkpoint", step=self.progress.step, stall_seconds=time.monotonic() - began
        )

    def resume(self) -> None:
        """Go on from the newest good checkpoint, if there is one; rank 0 finds it and gives it to the others.

        Raises:
            CheckpointError: it belongs to a run with another model, data set, seed or batch size.
        """
        found, content = None, None
        with self.ranks.all_or_none():
            if self.ranks.is_main:
                found, rejected = self.folder.newest_good()
                for text in rejected:
                    log.warning("CHECKPOINT REJECTED: %s; trying the one before", text)
                if found:
                    content = {name: found.load(name) for name in ("model", "optimizer", "run")}
                    self.check_identity(found.path, content["run"]["identity"])
                    self.metrics.restore(found.read("metrics.jsonl"))
                elif rejected:
                    log.warning(
                        "NO GOOD CHECKPOINT among %d: training starts from step 0", len(rejected)
                    )
        content = self.ranks.broadcast(content)
        if not content:
            return
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        run = content["run"]
        self.precision.scaler.load_state_dict(run["scaler"])
        self.progress = Progress(**run["progress"])
        if self.ranks.rank < len(run["random"]):
            restore_random_states(run["random"][self.ranks.rank], self.ranks.device)
        if run["schedule"] != dataclasses.asdict(self.schedule):
            log.warning(
                "the learning rate schedule changed at resume: %s -> %s",
                run["schedule"],
                self.schedule,
            )
        if found:
            self.metrics.write("resume", step=self.progress.step, checkpoint=str(found.path))

    def identity(self) -> dict[str, Any]:
        """Return what must be the same when a run goes on from a checkpoint."""
        return {
            "model": dict(self.task.model_config),
            "data_fingerprint": self.index.fingerprint,
            "seed": self.hp.seed,
            "global_batch_size": self.plan.global_batch_size,
        }

    def check_identity(self, path: Path, saved: dict[str, Any]) -> None:
        """Raise CheckpointError when the checkpoint at `path` is of another run."""
        now = self.identity()
        differing = [
            f"{key}: {saved.get(key)!r} there, {now[key]!r} here"
            for key in now
            if saved.get(key) != now[key]
        ]
        if differing:
            message = (
                f"{path} belongs to another run ({'; '.join(differing)}); give this run its own checkpoint_s3_uri, or "
                "set these values back"
            )
            raise CheckpointError(message)

    def write_model(self, *, finished: bool) -> None:
        """Write the weights and the config that rebuilds the model to SM_MODEL_DIR, from rank 0."""
        if not self.ranks.is_main:
            return
        self.paths.model_dir.mkdir(parents=True, exist_ok=True)
        torch.save(copy_to_cpu(self.model.state_dict()), self.paths.model_dir / "model.pt")
        facts = {
            "config": dict(self.task.model_config),
            "step": self.progress.step,
            "finished": finished,
            "validation_loss": self.validation_loss,
            "data_fingerprint": self.index.fingerprint,
            "tokenizer": self.index.content.get("tokenizer"),
            "hyperparameters": self.hp.to_dict(),
        }
        (self.paths.model_dir / "model.json").write_text(
            json.dumps(facts, indent=2) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    sys.exit(main())
