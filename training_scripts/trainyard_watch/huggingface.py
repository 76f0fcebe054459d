"""Callback that watches Hugging Face's Trainer: `Trainer(..., callbacks=[WatchCallback()])`."""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from trainyard_watch.environment import JOB_VARIABLE
from trainyard_watch.file_list import file_sizes, newest_whole, write_file_list
from trainyard_watch.retention import remove, step_folders
from trainyard_watch.run import setting_up, watch
from trainyard_watch.stopping import StoppedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from trainyard_watch.run import Run

log = logging.getLogger(__name__)

BEGIN = "checkpoint-"
"""Beginning of the names of the Trainer's checkpoint folders."""
HISTORY = "trainyard_history.jsonl"
"""File in each checkpoint with the run's events so far."""


def newest_checkpoint(folder: str | Path) -> str | None:
    """Return the Trainer's newest complete checkpoint for `trainer.train(resume_from_checkpoint=...)`, or None.

    A checkpoint is complete if a `WatchCallback` wrote its file list, and all listed files are present with their
    sizes. With several hosts the list has the files of each. The platform copies all of them to every host at a
    restart.
    """
    newest = newest_whole(Path(folder), BEGIN)
    return None if newest is None else str(newest)


class StoppableEvaluation:
    """Mixin that allows a `WatchCallback` to end a Trainer's evaluation early.

    Use it as `class OwnTrainer(StoppableEvaluation, Trainer)`. After a SIGTERM in an evaluation
    during the training, the Trainer saves its checkpoint without a result of the evaluation. A
    Trainer without this mixin first completes the evaluation.
    """

    control: TrainerControl

    def _maybe_log_save_evaluate(self, *args: Any, **members: Any) -> None:
        """Do the same as the Trainer; after a stop in the evaluation, also save the checkpoint."""
        self.control.can_stop_evaluation = True  # for `WatchCallback`
        try:
            super()._maybe_log_save_evaluate(*args, **members)
        except StoppedError:
            super()._maybe_log_save_evaluate(*args, **members)
        finally:
            self.control.can_stop_evaluation = False


class WatchCallback(TrainerCallback):
    """Callback that records the Trainer's logs as steps, and stops the Trainer with a checkpoint after a SIGTERM.

    Each log of the Trainer is one step for the rules, so `logging_steps` sets their resolution. The last step before a
    stop is always logged. An evaluation ends early if the Trainer is a `StoppableEvaluation`. The script must exit with
    `exit_code`.
    """

    def __init__(self, *, statistics: str = "on") -> None:
        self._statistics = statistics
        self._starting, self._saving = ExitStack(), ExitStack()
        self._run: Run | None = None
        self._save_began, self._has_stopped = 0.0, False
        self.exit_code = 0

    def on_init_end(self, *_: Any, **__: Any) -> None:
        """Report the training job as alive until `on_train_begin`; do nothing outside of a training job.

        In this time the Trainer reads its checkpoint, which can take long.
        """
        if JOB_VARIABLE in os.environ:
            self._starting.enter_context(setting_up())

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: Any,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **__: Any,
    ) -> None:
        """Start the watched run."""
        self._starting.close()
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
        earlier = _checkpoint(args, state) / HISTORY
        self._run = watch(
            model,
            getattr(optimizer, "optimizer", optimizer),  # accelerate wraps it
            step=state.global_step,
            max_steps=state.max_steps,
            global_batch_size=batch * args.world_size,
            statistics=self._statistics,
            history=earlier.read_bytes() if state.global_step and earlier.is_file() else b"",
        ).__enter__()

    def on_step_begin(self, _args: object, state: TrainerState, *_: Any, **__: Any) -> None:
        """Begin the observation of the next step."""
        self.run.begin_step(state.global_step + 1)

    def on_prediction_step(
        self, _args: object, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report the run as alive; end a running evaluation early if any rank received SIGTERM.

        Only the evaluation of a `StoppableEvaluation` ends early. The Trainer then saves a checkpoint and
        ends the training.

        Raises:
            StoppedError: the evaluation ends early. All ranks raise it after the same batch.
        """
        if self._run is None:
            return
        self._run.alive(state.global_step)
        if not getattr(control, "can_stop_evaluation", False) or not self._run.should_stop():
            return
        log.warning("SIGTERM: the validation after step %d is NOT MEASURED", state.global_step)
        self._stop(control)
        self._save_began = time.monotonic()
        self._saving.enter_context(self._run.busy())  # until `on_save`
        raise StoppedError

    def on_step_end(
        self, _args: object, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report the run as alive; end the training with a checkpoint if any rank received SIGTERM."""
        run = self.run
        run.alive(state.global_step)
        if run.should_stop():
            self._stop(control)
        self._save_began = time.monotonic()
        if control.should_save:  # until `on_save`
            self._saving.enter_context(run.busy())

    def on_epoch_end(
        self, _args: object, _state: object, control: TrainerControl, **_: Any
    ) -> None:
        """Skip the evaluation and the checkpoint at the end of an epoch that a stop cut short."""
        if self._has_stopped:
            control.should_evaluate = control.should_save = False

    def on_log(
        self,
        _args: object,
        state: TrainerState,
        *_: Any,
        logs: Mapping[str, Any] | None = None,
        **__: Any,
    ) -> None:
        """Write the mean loss of the steps since the last log."""
        if logs and "loss" in logs:
            norm = logs.get("grad_norm")
            self.run.step(
                loss=float(logs["loss"]),
                lr=logs.get("learning_rate"),
                epoch=int(state.epoch or 0),
                gradient_norm=None if norm is None else float(norm),
                number=state.global_step,
            )

    def on_evaluate(self, *_: Any, metrics: Mapping[str, float] | None = None, **__: Any) -> None:
        """Write the validation loss."""
        self._save_began = time.monotonic()  # an evaluation precedes the save
        if self._run and metrics and "eval_loss" in metrics:
            self._run.evaluated(loss=metrics["eval_loss"], accuracy=metrics.get("eval_accuracy"))

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        """Mark the checkpoint as complete after every rank has written its part.

        The Trainer deletes old checkpoints on the first host only. Each other host deletes its files of the same
        checkpoints here.
        """
        run, folder = self.run, _checkpoint(args, state)
        self._saving.close()
        run.wait_for_all()
        steps = {step for step, _ in step_folders(folder.parent, BEGIN)}
        sizes = file_sizes(folder) if state.is_local_process_zero else {}
        (kept, _), *others = run.gather((steps, sizes))
        if state.is_world_process_zero:
            (folder / HISTORY).write_bytes(run.history())
            rest = {name: size for _, each in others for name, size in each.items()}
            size = write_file_list(folder, others=rest)
            seconds = time.monotonic() - self._save_began
            run.saved(state.global_step, seconds=seconds, size=size)
        elif state.is_local_process_zero:
            remove(path for step, path in step_folders(folder.parent, BEGIN) if step not in kept)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the watched run and set `exit_code`."""
        run = self.run
        run.__exit__(None)
        self.exit_code = run.exit_code

    @property
    def run(self) -> Run:
        """The watched run, after the training has started.

        Raises:
            RuntimeError: the training has not started.
        """
        if self._run is None:
            raise RuntimeError(
                "the callback has no run before trainer.train() has started the training; read its `run` later"
            )
        return self._run

    def _stop(self, control: TrainerControl) -> None:
        """Request the last log and a checkpoint, and end the training.

        An evaluation is not done: it would use up the time for the checkpoint.
        """
        self._has_stopped = True
        control.should_training_stop = control.should_save = control.should_log = True
        control.should_evaluate = False


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    """Return the folder of the Trainer's checkpoint for the current step."""
    return Path(str(args.output_dir), f"{BEGIN}{state.global_step}")
