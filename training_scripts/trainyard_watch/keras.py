"""Callback that watches `fit` of Keras 3: `model.fit(..., callbacks=[callback])`. It needs no torch.

    callback = KerasCallback()
    first = callback.resume(model)
    model.fit(data, initial_epoch=first, epochs=10, callbacks=[callback])
    raise SystemExit(callback.exit_code)

It works with Keras on TensorFlow and on torch, in one process, which can have several replicas (MirroredStrategy).
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import secrets
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from trainyard_watch.background_saver import BackgroundSaver
from trainyard_watch.checkpoint_folder import CheckpointFolder
from trainyard_watch.environment import OWN_FOLDER, container_paths
from trainyard_watch.errors import CheckpointError
from trainyard_watch.metrics import LINE_KEYS, START_TIMEOUT_S, MetricsWriter
from trainyard_watch.retention import ManifestLayout, Retention
from trainyard_watch.stopping import EXIT_CODE_TERMINATED, StopRequest, grace_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)
STATE = "state.npz"
"""File of a checkpoint with all variables of the model and of its optimizer."""
RANDOM = "random"
"""Name of the object with the process's random states; on torch, layers without a seed draw from torch's own stream."""
LINE_EVERY_S = 1.0
"""Minimum seconds between two step lines."""
SEVERAL = (
    "this process is one of several of a training ({found}), which KerasCallback does not support: train on one host, "
    "whose accelerators MirroredStrategy can use, or write the loop with trainyard_watch.watch or "
    "training_scripts/tensorflow_trainer"
)


class KerasCallback(keras.callbacks.Callback):
    """Callback that reports steps, saves and resumes checkpoints, and ends `fit` early after a SIGTERM.

    After a SIGTERM, it saves a checkpoint first. A checkpoint has the variables of the model and of the
    optimizer, the random states of layers, the epoch and the step. Put the callback last in the list, so that a
    checkpoint includes the changes by the other callbacks.

    A stop or `save_every` can save a checkpoint within an epoch. After a resume from such a checkpoint, Keras
    begins this epoch again, so some batches are repeated.

    Args:
        save_every: steps between two checkpoints within an epoch; None saves at the end of epochs only.
        global_batch_size: samples of one step, over all replicas; None writes no throughput.
        keep_checkpoints: number of newest checkpoints to keep; 0 keeps two, or only one if it is large and
            complete in S3.

    Attributes:
        num_steps: optimizer steps done.
        is_stopping: whether the training is ending because the process has received SIGTERM.
        exit_code: exit code for the process after `fit`: 0, or 143 if SIGTERM ended the training early.

    Raises:
        RuntimeError: the training has several processes.
    """

    def __init__(
        self,
        *,
        save_every: int | None = None,
        global_batch_size: int | None = None,
        keep_checkpoints: int = 0,
    ) -> None:
        super().__init__()
        refuse_several_processes(os.environ)
        self._save_every, self._batch = save_every, global_batch_size
        paths = container_paths()
        self._stop = StopRequest(grace_s=grace_of(os.environ))
        self._metrics = MetricsWriter(paths.output_data_dir / OWN_FOLDER, enabled=True)
        folder = paths.default_checkpoint_dir / OWN_FOLDER
        retention = Retention.of_job(
            ManifestLayout(folder), keep=keep_checkpoints, paths=paths, below=OWN_FOLDER
        )
        self._folder = CheckpointFolder(folder, retention)
        self._saver = BackgroundSaver(self._folder, self._metrics)
        with self._metrics.kept_alive():
            self._found = self._folder.newest_good()
        self.num_steps, self.is_stopping, self.exit_code = 0, False, 0
        self._epoch, self._num_saved, self._is_fitting = 0, -1, False
        self._random_states: Any = None

    def resume(self, model: keras.Model) -> int:
        """Restore the newest valid checkpoint into a built and compiled model.

        Return the `initial_epoch` to pass to `fit`. Without a checkpoint the result is 0, and the model is
        unchanged.

        Raises:
            CheckpointError: the checkpoint is that of another model or optimizer, or the model is
                not built or not compiled.
        """
        found, self._found = self._found, None
        if found is None:
            return 0
        with self._metrics.kept_alive(), np.load(io.BytesIO(found.read(STATE))) as saved:
            restore(model, saved, place=str(found.path))
            self._epoch = int(saved["epoch"])
        if _uses_torch():
            self._random_states = found.load(RANDOM)
        self._metrics.restore(found.read("metrics.jsonl"))
        self.num_steps = self._num_saved = found.step
        self._metrics.write("resume", step=found.step, checkpoint=str(found.path))
        return self._epoch

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Start the watched run.

        Raises:
            RuntimeError: a checkpoint was found, and the script has not called `resume`.
        """
        if self._found is not None:
            raise RuntimeError(
                f"the checkpoint folder has {self._found.path}, which the script has not loaded: call "
                "callback.resume(model) before model.fit(), and pass its result as initial_epoch, or use another "
                "checkpoint folder"
            )
        is_main_thread = threading.current_thread() is threading.main_thread()
        if is_main_thread and signal.getsignal(signal.SIGTERM) in {signal.SIG_DFL, None}:
            self._stop.install()
        if self._random_states is not None:
            _restore_random_states(self._random_states)
        self.num_steps = steps_of(self.model)
        per_epoch, epochs = self.params.get("steps"), self.params.get("epochs")
        self._max_steps = (
            self.num_steps + (epochs - self._epoch) * per_epoch if per_epoch and epochs else None
        )
        self._began_at, self._logged_at = time.monotonic(), -math.inf
        self._metrics.write(
            "start",
            step=self.num_steps,
            world_size=1,
            global_batch_size=self._batch,
            max_steps=self._max_steps,
            attempt_id=secrets.token_hex(4),
        )
        self._starting = self._metrics.kept_alive(self.num_steps, at_most_s=START_TIMEOUT_S)
        self._starting.__enter__()
        self._has_started, self._validation_loss = False, None
        self._is_fitting = True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Record the epoch's number, and restart the time measurement of its steps."""
        self._epoch, self._next_epoch, self._totals = epoch, epoch + 1, (0.0, 0.0)
        self._stepped_at = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Record the learning rate that this step uses, before a schedule changes it."""
        self._learning_rate = float(_array(self.model.optimizer.learning_rate))

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Record the step; save a checkpoint if it is due.

        After a SIGTERM, save a checkpoint and end the training.
        """
        if not self._has_started:
            self._has_started = True
            self._starting.__exit__(None, None, None)
        before, self.num_steps = self.num_steps, steps_of(self.model)
        loss = self._loss_of_step(logs or {})
        now = time.perf_counter()
        seconds = max(1e-9, (now - self._stepped_at) / max(1, self.num_steps - before))
        self._stepped_at = now
        self.is_stopping = self._stop.received and self.num_steps != self._max_steps
        self._write_step(loss, logs or {}, seconds=seconds)
        self._metrics.write_alive(self.num_steps)
        every = self._save_every
        if batch + 1 == self.params.get("steps"):
            self._epoch = self._next_epoch  # the epoch that a resume begins with
        if self.is_stopping:
            self.model.stop_training = True
            self._save(self._epoch)
        elif every and self.num_steps // every > before // every and not self._is_busy:
            self._save(self._epoch)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Report the run as alive during a validation.

        After a SIGTERM, save a checkpoint, and end the validation and the training.
        """
        self._metrics.write_alive(self.num_steps)
        if self._stop.received and self._is_fitting and not self.is_stopping:
            log.warning("SIGTERM: the validation after step %d is NOT MEASURED", self.num_steps)
            self.is_stopping = self.model.stop_training = True
            self._save(self._next_epoch)
        if self.is_stopping:
            self.model.stop_evaluating = True

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Record the validation, and save a checkpoint if none is being written or uploaded."""
        if self.is_stopping:
            return
        logs = logs or {}
        accuracy = next((name for name in logs if _is_accuracy(name)), None)
        if "val_loss" in logs:
            self._validation_loss = float(logs["val_loss"])
            self._metrics.write(
                "eval",
                step=self.num_steps,
                validation_loss=self._validation_loss,
                validation_accuracy=None if accuracy is None else float(logs[accuracy]),
            )
        self._epoch = epoch + 1
        if not self._is_busy:
            self._save(self._epoch)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Save the last checkpoint, wait until it is written, and set `exit_code`."""
        self._starting.__exit__(None, None, None)
        if self.num_steps != self._num_saved:
            self._save(self._epoch)
        self._saver.finish()
        self._is_fitting = False
        is_early = self.is_stopping and self.num_steps != self._max_steps
        self.exit_code = EXIT_CODE_TERMINATED if is_early else 0
        if not is_early:
            seconds = time.monotonic() - self._began_at
            loss = self._validation_loss
            self._metrics.write("done", step=self.num_steps, validation_loss=loss, seconds=seconds)
        if signal.getsignal(signal.SIGTERM) == self._stop._remember and not self._stop.received:  # noqa: SLF001
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @property
    def _is_busy(self) -> bool:
        return self._saver.is_writing or self._folder.is_congested

    def _loss_of_step(self, logs: Mapping[str, Any]) -> float:
        """Return the loss of the last step; Keras logs the mean over the epoch so far."""
        tracker = next((each for each in self.model.metrics if each.name == "loss"), None)
        if not isinstance(tracker, keras.metrics.Mean):
            return float(logs.get("loss", math.nan))
        before, self._totals = (
            self._totals,
            (float(_array(tracker.total)), float(_array(tracker.count))),
        )
        count = self._totals[1] - before[1]
        return (self._totals[0] - before[0]) / count if count > 0 else math.nan

    def _write_step(self, loss: float, logs: Mapping[str, Any], *, seconds: float) -> None:
        now = time.monotonic()
        is_last = self.num_steps == self._max_steps
        if now - self._logged_at < LINE_EVERY_S and not self.is_stopping and not is_last:
            return
        self._logged_at = now
        left = None if self._max_steps is None else max(0, self._max_steps - self.num_steps)
        self._metrics.write(
            "step",
            **{
                name: float(each)
                for name, each in logs.items()
                if name not in {*LINE_KEYS["step"], "event", "time"} and np.ndim(each) == 0
            },
            step=self.num_steps,
            epoch=self._epoch,
            loss=loss,
            learning_rate=self._learning_rate,
            samples_per_second=None if self._batch is None else self._batch / seconds,
            eta_seconds=None if left is None else left * seconds,
            max_steps=self._max_steps,
        )

    def _save(self, epoch: int) -> None:
        """Copy the state and write it in the background; `epoch` is the one that a resume begins with."""
        began = time.monotonic()
        self._saver.finish()
        arrays = {**state_of(self.model), "epoch": np.array(epoch)}
        history = partial(self._metrics.history, self._metrics.num_bytes())
        files = {STATE: partial(_packed, arrays), "metrics.jsonl": history}
        objects = {RANDOM: _random_states()} if _uses_torch() else {}
        self._saver.start(self.num_steps, objects=objects, files=files, facts={"epoch": epoch})
        self._num_saved = self.num_steps
        stall_s = time.monotonic() - began
        self._metrics.write("checkpoint", step=self.num_steps, stall_seconds=stall_s)


def steps_of(model: keras.Model) -> int:
    """Return the number of optimizer steps that a model has been trained with."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return int(_array(optimizer.iterations))


def state_of(model: keras.Model) -> dict[str, np.ndarray]:
    """Return copies of the variables of a model and its optimizer.

    The keys are `variable-0`, `variable-1` and so on, and `paths`: the variables' paths as JSON.
    """
    variables = _variables(model)
    return {
        "paths": np.array(json.dumps([each.path for each in variables])),
        **{f"variable-{number}": _array(each) for number, each in enumerate(variables)},
    }


def restore(model: keras.Model, saved: Mapping[str, np.ndarray], *, place: str) -> None:
    """Assign the result of `state_of` to the variables of a model and its optimizer.

    Args:
        model: the model, built and compiled.
        saved: the result of `state_of`.
        place: path of the checkpoint, for error messages.

    Raises:
        CheckpointError: the number of variables or the shape of one differs, or the model is not built or not
            compiled.
    """
    variables, paths = _variables(model), json.loads(str(saved["paths"]))
    if len(paths) != len(variables):
        raise CheckpointError(
            f"{place} has {len(paths)} variables, but the model and its optimizer have {len(variables)}: build and "
            "compile the model that wrote it before callback.resume(model), or set a new checkpoint_s3_uri"
        )
    values = [saved[f"variable-{number}"] for number in range(len(paths))]
    for variable, path, value in zip(variables, paths, values, strict=True):
        if tuple(variable.shape) != value.shape:
            raise CheckpointError(
                f"{place} is a checkpoint of another model: its variable {path} has shape {value.shape}, but "
                f"{variable.path} has {tuple(variable.shape)}; resume with the model that wrote it, or set a new "
                "checkpoint_s3_uri"
            )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def refuse_several_processes(environ: Mapping[str, str]) -> None:
    """Raise an error if TF_CONFIG or a launcher's WORLD_SIZE describes a training of several processes.

    Raises:
        RuntimeError: one of the variables describes more than one process.
    """
    cluster = json.loads(environ.get("TF_CONFIG") or "{}").get("cluster", {})
    num_hosts = sum(len(hosts) for hosts in cluster.values())
    if num_hosts > 1:
        raise RuntimeError(SEVERAL.format(found=f"TF_CONFIG has {num_hosts} tasks"))
    if int(environ.get("WORLD_SIZE") or 1) > 1:
        raise RuntimeError(SEVERAL.format(found=f"WORLD_SIZE is {environ['WORLD_SIZE']}"))


def _variables(model: keras.Model) -> Sequence[keras.Variable]:
    """Return the variables of a model (weights and random states) and of its optimizer, each once.

    Raises:
        CheckpointError: the model is not built or not compiled.
    """
    optimizer = getattr(model, "optimizer", None)
    if not model.built or optimizer is None:
        raise CheckpointError(
            f"the model {model.name} has no variables or no optimizer yet: call model.build(input_shape) and "
            "model.compile(...) before callback.resume(model)"
        )
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    inner = getattr(optimizer, "inner_optimizer", None)
    found = [*model.variables, *optimizer.variables, *(inner.variables if inner else ())]
    return list({id(each): each for each in found}.values())


def _uses_torch() -> bool:
    return bool(keras.backend.backend() == "torch")


def _random_states() -> dict[str, Any]:
    """Return the random states of a process with Keras on torch."""
    import torch  # noqa: PLC0415  # absent from images of TensorFlow

    from trainyard_watch.random_states import random_states  # noqa: PLC0415

    return random_states(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def _restore_random_states(states: Mapping[str, Any]) -> None:
    """Restore the random states that `_random_states` returned."""
    import torch  # noqa: PLC0415

    from trainyard_watch.random_states import restore_random_states  # noqa: PLC0415

    restore_random_states(states, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def _array(value: Any) -> np.ndarray:
    """Return a copy of a variable or tensor as an array. bfloat16 becomes float32, because numpy lacks it."""
    array = np.array(keras.ops.convert_to_numpy(value))
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _is_accuracy(name: str) -> bool:
    return name.startswith("val_") and name.endswith(("accuracy", "_acc"))
