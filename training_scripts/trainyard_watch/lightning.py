"""Callback that watches Lightning's Trainer: `Trainer(..., callbacks=[LightningCallback()])`."""

from __future__ import annotations

import logging
import math
import pickletools
import signal
import threading
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

from trainyard_watch.environment import container_paths
from trainyard_watch.run import watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch
    from lightning.pytorch import LightningModule, Trainer

    from trainyard_watch.run import Run

log = logging.getLogger(__name__)

HISTORY = "history"
SHARDED_STATES = ("meta.pt", "checkpoint/*model_states.pt")
"""Files with the step in a folder of shards, as FSDP and DeepSpeed write it (Lightning 2.6)."""
INTEGERS = ("BININT", "BININT1", "BININT2", "LONG1")
"""Names of a pickle's opcodes for integers."""
VALIDATION_LOSSES = ("val_loss", "validation_loss", "valid_loss")
"""Names under which a module may log its validation loss."""


def newest_checkpoint(folder: str | Path | None = None) -> str | None:
    """Return the path of the newest checkpoint for `trainer.fit(ckpt_path=...)`, or None without one.

    The newest checkpoint is the one with the highest step. At a restart the platform copies the same files to
    every host, but with new times. All ranks choose the same file, because the choice does not depend on times.

    Incomplete files are skipped. Lightning writes a checkpoint to the temporary folder and then moves it. A
    move between two file systems is a copy, which an interruption can leave incomplete.

    Args:
        folder: folder with the checkpoints; None = the job's checkpoint folder.
    """
    place = container_paths().default_checkpoint_dir if folder is None else Path(folder)
    steps = {str(path): _step_of(path) for path in place.rglob("*.ckpt")}
    found = [(step, path) for path, step in steps.items() if step is not None]
    return max(found)[1] if found else None


def _step_of(checkpoint: Path) -> int | None:
    """Return the number of optimizer steps before a checkpoint, or None if the checkpoint is incomplete."""
    files: Iterable[Path] = [checkpoint]
    if checkpoint.is_dir():
        files = (each for name in SHARDED_STATES for each in sorted(checkpoint.glob(name)))
        if (checkpoint / "checkpoint").is_dir() and not (checkpoint / "latest").is_file():
            files = []  # DeepSpeed writes `latest` after all states
    step = next((_stored_step(each) for each in files), None)
    if step is None:
        log.warning("CHECKPOINT REJECTED, trying the one before: %s is incomplete", checkpoint)
    return step


def _stored_step(file: Path) -> int | None:
    """Return the `global_step` in a file of `torch.save`, or None if the file is incomplete.

    The file is not loaded, because loading it could take minutes and run code of the script.
    """
    try:
        with zipfile.ZipFile(file) as archive:  # its list of members is at its end
            names = [each for each in archive.namelist() if each.endswith("/data.pkl")]
            tokens = pickletools.genops(archive.read(names[0]) if names else b".")
    except (FileNotFoundError, zipfile.BadZipFile):
        return None
    values = ((kind.name, value) for kind, value, _ in tokens)
    is_found = any(value == "global_step" for _, value in values)
    return next((value for name, value in values if name in INTEGERS), None) if is_found else None


class LightningCallback(Callback):
    """Callback that records each optimizer step, and ends the training with a checkpoint after a SIGTERM.

    The loss is that of `training_step`. The script's checkpoints are the Trainer's own (`ModelCheckpoint`); the one
    after a SIGTERM is `stopped.ckpt` in the job's checkpoint folder. The script must exit with `exit_code`.
    """

    def __init__(self, *, global_batch_size: int | None = None, statistics: str = "on") -> None:
        self._batch, self._statistics = global_batch_size, statistics
        self._history = b""
        self._run: Run | None = None
        self._can_stop_validation = False
        self.exit_code = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the watched run."""
        if threading.current_thread() is threading.main_thread():
            # Lightning's own handler raises an error in the step, without a checkpoint.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        num_steps = trainer.estimated_stepping_batches
        self._run = watch(
            trainer.model or pl_module,
            step=trainer.global_step,
            max_steps=int(num_steps) if 0 < num_steps < float("inf") else None,
            global_batch_size=self._batch,
            statistics=self._statistics,
            history=self._history if trainer.global_step else b"",
        ).__enter__()

    def on_before_optimizer_step(
        self, trainer: Trainer, _module: object, optimizer: torch.optim.Optimizer
    ) -> None:
        """Measure the gradients before the optimizer's step.

        torch's own hook on the step would be too early, because Lightning calls `backward` within the step.
        """
        if len(trainer.optimizers) == 1:
            self.run.before_update(optimizer)

    def on_train_batch_end(self, trainer: Trainer, _module: object, outputs: Any, *_: Any) -> None:
        """Record the optimizer step if this batch completed one."""
        run = self.run
        if trainer.global_step <= run.num_steps or outputs is None:  # gradients are accumulated
            run.alive()
            return
        if len(trainer.optimizers) == 1:
            run.after_update()
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        # Lightning divides the loss by the number of batches of a step.
        loss = loss.detach() * trainer.accumulate_grad_batches
        if run.step(loss=loss, epoch=trainer.current_epoch, number=trainer.global_step):
            self._stop(trainer)

    def on_validation_start(self, trainer: Trainer, _module: object) -> None:
        """Determine whether all ranks can end this validation after the same batch.

        They can if all of them have the same, known number of batches.
        """
        if self._run and trainer.state.fn == "fit" and not trainer.sanity_checking:
            first, *others = self._run.gather(trainer.num_val_batches)
            is_known = not others or math.inf not in first
            self._can_stop_validation = is_known and all(each == first for each in others)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """Report the run as alive during a validation, and end the validation after a SIGTERM.

        If any rank received SIGTERM, save a checkpoint, and end the validation and the training. This requires that
        all ranks can end the validation after the same batch (see `on_validation_start`). Otherwise the validation
        runs to its end, and the training ends after the next optimizer step.

        Raises:
            StopIteration: the validation ends. All ranks raise it after the same batch; Lightning's loop
                catches it.
        """
        if self._run is None:
            return
        self._run.alive()
        if not self._can_stop_validation or not self._run.should_stop():
            return
        log.warning("SIGTERM: the validation after step %d is NOT MEASURED", trainer.global_step)
        self._stop(trainer)
        for each in trainer.checkpoint_callbacks:  # it must not rank the metrics of a part
            each._last_global_step_saved = trainer.global_step  # noqa: SLF001  # there is no public way
        raise StopIteration

    def on_validation_end(self, trainer: Trainer, _module: object) -> None:
        """Record the validation loss if the module logs one."""
        self._can_stop_validation = False
        logged = trainer.callback_metrics
        name = next((each for each in VALIDATION_LOSSES if each in logged), None)
        if self._run and name and not trainer.sanity_checking and not self._run.is_stopping:
            self._run.evaluated(loss=float(logged[name]))

    def on_train_end(self, *_: object) -> None:
        """End the watched run and set `exit_code`."""
        self.run.__exit__(None)
        self.exit_code = self.run.exit_code

    def on_exception(self, _trainer: object, _module: object, exception: BaseException) -> None:
        """End the watched run after an error of the script."""
        if self._run:
            self._run.__exit__(type(exception))

    def state_dict(self) -> dict[str, Any]:
        """Return the run's events so far, for a checkpoint."""
        return {HISTORY: self._run.history() if self._run else self._history}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the events of earlier attempts from a checkpoint."""
        self._history = state_dict[HISTORY]

    @property
    def run(self) -> Run:
        """The watched run, after the training has started.

        Raises:
            RuntimeError: the training has not started.
        """
        if self._run is None:
            raise RuntimeError(
                "the callback has no run before trainer.fit() has started the training; read its `run` later"
            )
        return self._run

    def _stop(self, trainer: Trainer) -> None:
        """Save a checkpoint, and end the training without another step or validation."""
        began, path = time.monotonic(), container_paths().default_checkpoint_dir / "stopped.ckpt"
        with self.run.busy():
            trainer.save_checkpoint(path)
        if trainer.is_global_zero:
            size = path.stat().st_size if path.is_file() else 0
            self.run.saved(trainer.global_step, seconds=time.monotonic() - began, size=size)
        trainer.should_stop = True
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = 0
        trainer.limit_val_batches = 0
