"""Trainer callback that writes the metric lines of train_ddp.py, and synchronizes a stop over the ranks."""

from __future__ import annotations

import logging
import math
import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from huggingface_trainer import checkpoint_files
from huggingface_trainer.divergence import divergence
from trainyard_watch.distributed import Ranks
from trainyard_watch.metrics import SETUP_TIMEOUT_S, START_TIMEOUT_S
from trainyard_watch.model_limit import ModelLimit
from trainyard_watch.stopping import StoppedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from trainer.framework_hyperparameters import HuggingFaceHyperparameters
    from trainyard_watch.metrics import MetricsWriter
    from trainyard_watch.retention import Retention
    from trainyard_watch.stopping import StopRequest

log = logging.getLogger(__name__)


class Reports(TrainerCallback):
    """Callback on each rank for the Trainer's events; `is_stopping` is true if any rank received SIGTERM.

    A thread prints heartbeats in these phases: the setup before the training, the first step, and each save.
    `close` ends the heartbeats of the current phase.
    """

    def __init__(
        self,
        hp: HuggingFaceHyperparameters,
        metrics: MetricsWriter,
        stop: StopRequest,
        *,
        retention: Retention,
        identity: Mapping[str, Any],
        num_samples: int,
        num_evaluated: int,
    ) -> None:
        self._hp, self._metrics, self._stop, self._identity = hp, metrics, stop, identity
        self._retention, self._limit = retention, ModelLimit(Ranks(), retention)
        self._num_samples, self._num_evaluated = num_samples, num_evaluated
        self._logged_at, self._logged_step, self._idle_since = time.monotonic(), 0, time.monotonic()
        self.is_stopping = False
        self.evaluated_step, self.validation_loss = 0, math.nan
        self._alive = ExitStack()

    def keep_alive(self, step: int | None = None, *, at_most_s: float = SETUP_TIMEOUT_S) -> None:
        """Begin a phase, and print heartbeats until it ends.

        A phase is the setup, the first step or a save. It ends at `close`, or at the next call of this method. A
        thread prints the heartbeats.

        Args:
            step: step that the heartbeats name, if any.
            at_most_s: seconds after which the heartbeats end even if the phase continues.
        """
        self.close()
        self._alive.enter_context(self._metrics.kept_alive(step, at_most_s=at_most_s))

    def close(self) -> None:
        """End the heartbeats of the current phase, if any."""
        self._alive.close()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002  # the interface
        **_: Any,
    ) -> None:
        """Write the `start` event, and print heartbeats during the first step, which may compile kernels."""
        self._logged_at, self._logged_step = time.monotonic(), state.global_step
        self._metrics.write(
            "start",
            step=state.global_step,
            world_size=args.world_size,
            global_batch_size=self._hp.global_batch_size,
            num_samples=self._num_samples,
            seed=self._hp.seed,
            max_steps=state.max_steps,
            attempt_id=secrets.token_hex(4),
        )
        self.keep_alive(state.global_step, at_most_s=START_TIMEOUT_S)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Share a received SIGTERM with all ranks, and request a log and a checkpoint at the last step.

        The last step is `max_steps`, or the current step if any rank received SIGTERM. A log is also requested with
        each checkpoint and each evaluation.
        """
        self.is_stopping = agree(self._stop.received, args.device)
        self.close()
        is_last = self.is_stopping or state.global_step >= state.max_steps
        control.should_training_stop |= is_last
        control.should_save |= is_last
        control.should_log |= is_last or control.should_save or control.should_evaluate
        self._metrics.write_alive(state.global_step)
        self._idle_since = time.monotonic()
        if self.is_stopping and state.global_step < state.max_steps:
            log.warning("SIGTERM: stopping after step %d", state.global_step)
        if control.should_save and not control.should_evaluate:  # until `on_save`
            self.keep_alive(state.global_step)

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Report the run as alive after each batch of an evaluation; on a stop, request a checkpoint.

        Raises:
            StoppedError: any rank received SIGTERM. All ranks raise it after the same batch.
        """
        self._metrics.write_alive(state.global_step)
        if not agree(self._stop.received, args.device):
            return
        log.warning("SIGTERM: the validation after step %d is NOT MEASURED", state.global_step)
        self.is_stopping = control.should_training_stop = control.should_save = True
        control.should_evaluate = False
        self._idle_since = time.monotonic()
        self.keep_alive(state.global_step)  # until `on_save`
        raise StoppedError

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002  # the interface
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Write the mean loss of the steps since the Trainer's last log event.

        The Trainer also logs before it saves a checkpoint.

        Raises:
            NonFiniteError: the loss or the gradient norm is NaN or infinite. All ranks raise it.
        """
        if not logs or "loss" not in logs:
            return
        now, tokens = time.monotonic(), self._hp.global_batch_size * self._hp.sequence_length
        rate = (state.global_step - self._logged_step) * tokens / max(1e-9, now - self._logged_at)
        self._metrics.write(
            "step",
            step=state.global_step,
            epoch=int(state.epoch or 0),
            loss=float(logs["loss"]),
            learning_rate=float(logs["learning_rate"]),
            tokens_per_second=rate,
            gradient_norm=float(logs.get("grad_norm", math.nan)),
            max_steps=state.max_steps,
        )
        error = divergence(logs, since=self._logged_step, step=state.global_step, hp=self._hp)
        self._logged_at, self._logged_step, self._idle_since = now, state.global_step, now
        if error:
            raise error

    def on_evaluate(
        self,
        args: TrainingArguments,  # noqa: ARG002  # the interface
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Write the validation loss."""
        self.evaluated_step = state.global_step
        self.validation_loss = float((metrics or {}).get("eval_loss", math.nan))
        self._metrics.write(
            "eval",
            step=state.global_step,
            validation_loss=self.validation_loss,
            validation_tokens=self._num_evaluated * self._hp.sequence_length,
        )
        self._logged_at = self._idle_since = time.monotonic()
        if control.should_save:  # a save follows, until `on_save`
            self.keep_alive(state.global_step)

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002  # the interface
        **_: Any,
    ) -> None:
        """Complete the checkpoint on rank 0, and report it to the retention policy.

        The policy deletes older checkpoints after this checkpoint has arrived in S3.
        """
        if state.is_world_process_zero:
            folder = Path(str(args.output_dir), f"checkpoint-{state.global_step}")
            size = checkpoint_files.complete(
                folder, identity=self._identity, history=self._metrics.history()
            )
            self._retention.note_durable(state.global_step)
            seconds = time.monotonic() - self._idle_since
            self._metrics.write("checkpoint", step=state.global_step, stall_seconds=seconds)
            self._metrics.write("durable", step=state.global_step, seconds=seconds, bytes=size)
            self._limit.note_checkpoint(seconds=seconds, num_bytes=size)
        self.close()
        self._logged_at = time.monotonic()

    def obstacle_to_model(self, num_bytes: int) -> str | None:
        """Return the reason not to write a model of `num_bytes` after a stop, or None.

        Only rank 0 calls it, because rank 0 writes the model. If only other ranks received the SIGTERM, the grace
        period is assumed to have begun at the last step.
        """
        left = min(
            self._stop.seconds_left, self._idle_since + self._stop.grace_s - time.monotonic()
        )
        return self._limit.obstacle(num_bytes, seconds_left=left, grace_s=self._stop.grace_s)


def agree(stops: bool, device: torch.device) -> bool:
    """Return whether any rank was asked to stop; the result is the same on all ranks."""
    if not dist.is_initialized():
        return stops
    flag = torch.tensor(float(stops), device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag.item())
