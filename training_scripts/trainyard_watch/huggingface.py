"""Hugging Face's Trainer, watched: `Trainer(..., callbacks=[WatchCallback()])`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from trainyard_watch.file_list import is_whole, write_file_list
from trainyard_watch.run import watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from trainyard_watch.run import Run


HISTORY = "trainyard_history.jsonl"
"""The run's events so far, in each checkpoint."""


def newest_checkpoint(folder: str | Path) -> str | None:
    """Return the Trainer's newest whole checkpoint, for `trainer.train(resume_from_checkpoint=...)`; None if none is.

    Whole is one that a `WatchCallback` was there for, and of which all files of the first host have arrived. If hosts
    write files of their own (FSDP, DeepSpeed), those of the others are not looked for.
    """
    found = [
        path
        for path in Path(folder).glob("checkpoint-*")
        if path.name.rpartition("-")[2].isdigit() and is_whole(path)
    ]
    newest = max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    return None if newest is None else str(newest)


class WatchCallback(TrainerCallback):
    """Writes what the Trainer logs as the run's steps, and stops it with a checkpoint after a SIGTERM.

    Every log of the Trainer is a step, so `logging_steps` decides how finely the rules see; the last one before the
    stop is written in any case. `exit_code` is what the process owes its platform.
    """

    def __init__(self, *, statistics: str = "on") -> None:
        self._statistics = statistics
        self._saving = ExitStack()
        self._run: Run | None = None
        self.exit_code = 0

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002  # the interface
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **_: Any,
    ) -> None:
        """Begin to watch."""
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

    def on_step_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Look at the step that begins."""
        self._watched().begin_step(state.global_step + 1)

    def on_prediction_step(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Give a sign of life in an evaluation."""
        if self._run:
            self._run.alive(state.global_step)

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Give a sign of life; agree on a stop."""
        run = self._watched()
        run.alive(state.global_step)
        if run.should_stop():
            control.should_training_stop = control.should_save = control.should_log = True
            control.should_evaluate = False  # it would take the time that the checkpoint needs
        if control.should_save:  # as long as `on_save` has not come
            self._saving.enter_context(run.busy())

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Write the mean loss of the steps since the last log."""
        if logs and "loss" in logs:
            norm = logs.get("grad_norm")
            self._watched().step(
                loss=float(logs["loss"]),
                lr=logs.get("learning_rate"),
                epoch=int(state.epoch or 0),
                gradient_norm=None if norm is None else float(norm),
                number=state.global_step,
            )

    def on_evaluate(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        metrics: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Write the validation loss."""
        if self._run and metrics and "eval_loss" in metrics:
            self._run.evaluated(loss=metrics["eval_loss"], accuracy=metrics.get("eval_accuracy"))

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Mark the checkpoint as whole, once every rank has written its part."""
        run, folder = self._watched(), _checkpoint(args, state)
        self._saving.close()
        run.wait_for_all()
        if state.is_world_process_zero:
            began = time.monotonic()
            (folder / HISTORY).write_bytes(run.history())
            size = write_file_list(folder)
            run.saved(state.global_step, seconds=time.monotonic() - began, size=size)

    def on_train_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """End the watching."""
        run = self._watched()
        run.__exit__(None)
        self.exit_code = run.exit_code

    def _watched(self) -> Run:
        if self._run is None:
            raise RuntimeError("the Trainer has not begun")
        return self._run


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    """Return the Trainer's checkpoint of the step that it is at."""
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}")
