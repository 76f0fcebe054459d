"""Training run of one rank: a small Llama with Hugging Face's Trainer."""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from huggingface_trainer import checkpoint_files
from huggingface_trainer.reports import Reports
from trainer.artifacts import weights_sha256
from trainer.batching import num_evaluated, plan_batches
from trainer.data.shard_index import ChannelIndex
from trainer.data.token_blocks import TokenBlocks
from trainer.precision import settle
from trainer.schedule import LearningRateSchedule, make_schedule
from trainyard_watch.huggingface import StoppableEvaluation
from trainyard_watch.metrics import MetricsWriter
from trainyard_watch.model_limit import NO_MODEL, ending_together
from trainyard_watch.retention import LocalLayout, Retention, remove
from trainyard_watch.run import current_ranks
from trainyard_watch.stopping import EXIT_CODE_TERMINATED, StoppedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.batching import BatchPlan
    from trainer.framework_hyperparameters import HuggingFaceHyperparameters
    from trainyard_watch.environment import ContainerPaths
    from trainyard_watch.stopping import StopRequest


log = logging.getLogger(__name__)


class Samples:
    """Data set for the Trainer, whose samples are the token blocks with the numbers `chosen`.

    A sample's labels equal its inputs, because the model itself shifts the labels by one token.
    """

    def __init__(self, blocks: TokenBlocks, chosen: Sequence[int]) -> None:
        self._blocks, self._chosen = blocks, chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        inputs, _ = self._blocks[torch.tensor([self._chosen[number]])]
        return {"input_ids": inputs[0], "labels": inputs[0]}


class ScheduledTrainer(StoppableEvaluation, Trainer):
    """Trainer with the learning rate schedule of train_ddp.py; a stop ends evaluations early."""

    def __init__(self, schedule: LearningRateSchedule, **members: Any) -> None:
        super().__init__(**members)
        self._schedule = schedule

    def create_scheduler(
        self,
        num_training_steps: int,  # noqa: ARG002  # the interface; the schedule knows
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Any:
        """Return the schedule as torch's LambdaLR; its factors multiply the schedule's peak learning rate."""
        if self.lr_scheduler is None:
            schedule, wanted = self._schedule, optimizer or self.optimizer
            self.lr_scheduler = LambdaLR(wanted, lambda step: schedule.at(step) / schedule.peak)
        return self.lr_scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Data of a run; `evaluated` has the indexes of the validation blocks that are evaluated."""

    index: ChannelIndex
    train: TokenBlocks
    validation: TokenBlocks
    evaluated: Sequence[int]

    @classmethod
    def open(cls, hp: HuggingFaceHyperparameters, paths: ContainerPaths) -> Data:
        """Return the job's data.

        Raises:
            DataError: the data cannot be used.
        """
        index = ChannelIndex.load(paths.channels.get("index"))
        train, validation = (
            TokenBlocks.open(
                index,
                split,
                paths.channels.get(split),
                sequence_length=hp.sequence_length,
                verify=hp.verify_shards,
            )
            for split in ("train", "validation")
        )
        wanted = num_evaluated(hp, num_samples=len(validation))
        evaluated = [number * len(validation) // wanted for number in range(wanted)]
        return cls(index=index, train=train, validation=validation, evaluated=evaluated)


def train(hp: HuggingFaceHyperparameters, paths: ContainerPaths, stop: StopRequest) -> int:
    """Train from the newest checkpoint to the last step or a stop; return the exit code.

    Raises:
        DataError: the data cannot be used.
        CheckpointError: the checkpoint belongs to another run.
        HyperparameterError: the global batch does not divide evenly over the ranks.
        NonFiniteError: the loss or the gradient became NaN or infinite.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    precision, compiles = settle(hp.precision, hp.compile, device)
    hp = replace(hp, precision=precision, compile=compiles)
    if hp.num_threads:
        torch.set_num_threads(hp.num_threads)
    world_size, rank = (int(os.environ.get(*each)) for each in (("WORLD_SIZE", "1"), ("RANK", "0")))
    metrics = MetricsWriter(paths.output_data_dir, enabled=rank == 0)
    with metrics.setting_up():
        data, began = Data.open(hp, paths), time.monotonic()
    plan = plan_batches(hp, world_size=world_size, num_samples=len(data.train))
    num_steps = hp.num_steps(num_samples=len(data.train))
    identity = _identity(hp, data.index)
    folder = Path(hp.checkpoint_dir) if hp.checkpoint_dir else paths.default_checkpoint_dir
    retention = Retention.of_job(LocalLayout(folder), keep=hp.keep_checkpoints, paths=paths)
    reports = Reports(
        hp,
        metrics,
        stop,
        retention=retention,
        identity=identity,
        num_samples=len(data.train),
        num_evaluated=len(data.evaluated),
    )
    with closing(reports):
        reports.keep_alive()  # until the Trainer has read the checkpoint
        trainer = _trainer(hp, plan, data, folder=folder, reports=reports)
        checkpoint = checkpoint_files.newest(folder, identity=identity)
        if os.environ.get("LOCAL_RANK", "0") == "0":
            checkpoint_files.remove_torn(folder, retention)
        if checkpoint is not None:
            metrics.restore((checkpoint / checkpoint_files.HISTORY).read_bytes())
            step = checkpoint_files.step_of(checkpoint)
            metrics.write("resume", step=step, checkpoint=str(checkpoint))
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    ranks = current_ranks(trainer.model)
    with (
        metrics.kept_alive(trainer.state.global_step),
        ending_together(ranks, stop, is_stopping=reports.is_stopping),
    ):
        _write_model(trainer, reports, stop, folder=paths.model_dir)
    if trainer.state.global_step < num_steps:
        return EXIT_CODE_TERMINATED
    if reports.evaluated_step < num_steps:
        with closing(reports), suppress(StoppedError):
            trainer.evaluate()
    if reports.is_stopping and reports.evaluated_step < num_steps:
        return EXIT_CODE_TERMINATED
    with metrics.kept_alive(trainer.state.global_step):
        _end(trainer, reports, metrics, seconds=time.monotonic() - began)
    return 0


def _write_model(
    trainer: ScheduledTrainer, reports: Reports, stop: StopRequest, *, folder: Path
) -> None:
    """Write the model from rank 0, unless a stop leaves no time for it."""
    if not trainer.is_world_process_zero():
        return
    step = trainer.state.global_step
    num_bytes = sum(each.numel() * each.element_size() for each in trainer.model.parameters())
    if reports.is_stopping and (obstacle := reports.obstacle_to_model(num_bytes)):
        log.warning(NO_MODEL, step, obstacle)
        return

    def give_up() -> None:
        remove(folder.glob("*"))
        log.warning(NO_MODEL, step, "the stop's grace period is almost over")

    with stop.bounded(give_up):
        trainer.save_model(str(folder))


def _trainer(
    hp: HuggingFaceHyperparameters, plan: BatchPlan, data: Data, *, folder: Path, reports: Reports
) -> ScheduledTrainer:
    set_seed(hp.seed)  # The Trainer's own comes after the weights are drawn.
    num_samples = len(data.train)
    schedule = make_schedule(hp, max_steps=hp.num_steps(num_samples=num_samples))
    trainer = ScheduledTrainer(
        schedule,
        model=LlamaForCausalLM(_config(hp, vocab_size=data.index.vocab_size)),
        args=_arguments(hp, plan, folder=folder, num_samples=num_samples, peak=schedule.peak),
        train_dataset=Samples(data.train, range(len(data.train))),
        eval_dataset=Samples(data.validation, data.evaluated),
        callbacks=[reports],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _identity(hp: HuggingFaceHyperparameters, index: ChannelIndex) -> dict[str, Any]:
    sizes = ("num_layers", "num_heads", "hidden_size", "sequence_length")
    return {
        "model": {name: getattr(hp, name) for name in sizes} | {"vocab_size": index.vocab_size},
        "data_fingerprint": index.fingerprint,
        "seed": hp.seed,
        "global_batch_size": hp.global_batch_size,
    }


def _end(
    trainer: ScheduledTrainer, reports: Reports, metrics: MetricsWriter, *, seconds: float
) -> None:
    weights = trainer.model.state_dict()
    metrics.write(
        "done",
        step=trainer.state.global_step,
        validation_loss=reports.validation_loss,
        seconds=seconds,
        weights_sha256=weights_sha256(weights),
    )
    metrics.write_summary(
        validation_loss=reports.validation_loss,
        step=trainer.state.global_step,
        seconds=seconds,
        world_size=trainer.args.world_size,
        num_parameters=sum(each.numel() for each in trainer.model.parameters()),
    )


def _config(hp: HuggingFaceHyperparameters, *, vocab_size: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hp.hidden_size,
        intermediate_size=4 * hp.hidden_size,
        num_hidden_layers=hp.num_layers,
        num_attention_heads=hp.num_heads,
        max_position_embeddings=hp.sequence_length,
        bos_token_id=None,
        eos_token_id=None,
    )


def _arguments(
    hp: HuggingFaceHyperparameters, plan: BatchPlan, *, folder: Path, num_samples: int, peak: float
) -> TrainingArguments:
    num_steps = hp.num_steps(num_samples=num_samples)
    return TrainingArguments(
        output_dir=str(folder),
        use_cpu=not torch.cuda.is_available(),  # Unless told so, accelerate sees no ranks without GPUs.
        per_device_train_batch_size=plan.micro_batch_size,
        per_device_eval_batch_size=plan.micro_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        max_steps=num_steps,
        learning_rate=peak,
        weight_decay=hp.weight_decay,
        max_grad_norm=hp.clip_norm,
        bf16=hp.precision == "bf16",
        fp16=hp.precision == "fp16",
        save_strategy="no" if hp.save_every is None else "steps",
        save_steps=hp.save_every or num_steps,
        save_total_limit=None,  # `Reports` removes the oldest.
        eval_strategy="steps" if hp.eval_interval else "no",
        eval_steps=hp.eval_interval or None,
        logging_steps=hp.log_interval,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        dataloader_num_workers=hp.num_workers or 0,
        dataloader_pin_memory=False,
        # Else several ranks would fill an epoch's last batch with samples of its first, unlike one process.
        dataloader_drop_last=num_samples >= hp.global_batch_size,
        ddp_timeout=max(1, round(hp.distributed_timeout_s)),
        ddp_find_unused_parameters=False,
        seed=hp.seed,
        report_to="none",
        disable_tqdm=True,
    )
