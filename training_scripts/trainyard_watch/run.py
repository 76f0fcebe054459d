"""`watch`: observation and resume of one rank of any training loop."""

from __future__ import annotations

import atexit
import logging
import math
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainyard_watch.background_saver import ABANDONED_AFTER_S, BackgroundSaver
from trainyard_watch.distributed import OPEN_MPI, Ranks
from trainyard_watch.environment import JOB_VARIABLE, OWN_FOLDER, container_paths
from trainyard_watch.errors import CheckpointError
from trainyard_watch.metrics import SETUP_TIMEOUT_S, START_TIMEOUT_S, MetricsWriter
from trainyard_watch.model_limit import NO_MODEL, ModelLimit, ending_together
from trainyard_watch.retention import ManifestLayout, Retention, remove
from trainyard_watch.shard_folder import SHARDS, ShardFolder
from trainyard_watch.statistics.checksums import ReplicaChecksums
from trainyard_watch.statistics.opening import (
    ProcessStart,
    close_each,
    open_headlines,
    open_statistics,
)
from trainyard_watch.statistics.tensors import ModelTensors
from trainyard_watch.stopping import EXIT_CODE_TERMINATED, StopRequest, grace_of
from trainyard_watch.tensor_tree import CpuBuffers, broadcast_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    from trainyard_watch.checkpoint_folder import Checkpoint
    from trainyard_watch.sharded_state import Part

T = TypeVar("T")

log = logging.getLogger(__name__)

UNREAD = (
    "the checkpoint folder has a checkpoint that the script has not loaded: call run.resume() and load the returned "
    "state, or use another checkpoint folder for this training"
)
NO_GROUP = (
    "this process is one of several ranks, but there is no process group: call torch.distributed.init_process_group "
    "before watch(), with Horovod too (backend gloo)"
)
LINE_EVERY_S = 1.0
"""Minimum seconds between two step lines; the statistics have every step."""
LOADABLE = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
)
STATE = "state"
"""Name of the script's own object in a checkpoint."""
PARTS = "parts"
"""Name of the list of the models and optimizers whose shards a checkpoint has."""
ZERO_3 = (
    "DeepSpeed's ZeRO-3 keeps the shards of this model, and only its engine can save them: call "
    "engine.save_checkpoint(...), then run.saved(...), and pass the step of a resume to watch(step=...)"
)
SKIPPED = (
    "the checkpoint of step %d is SKIPPED, and so are later ones until S3 has one of the four that are being uploaded; "
    "call run.checkpoint less often"
)


@contextmanager
def setting_up(*, at_most_s: float = SETUP_TIMEOUT_S) -> Iterator[None]:
    """Report a job as alive while its script loads models and data before `watch`.

    The reports are heartbeats: log lines that begin with `trainyard `. They end after at most `at_most_s`
    seconds. The limit `heartbeat_timeout_s` on the time between two heartbeats applies only after the job's
    first one. This function prints a heartbeat at once, so the limit also covers the loading. Without this
    function, `watch` prints the first heartbeat. No process group is needed.
    """
    metrics = MetricsWriter(
        container_paths().output_data_dir / OWN_FOLDER,
        enabled=_launched("RANK", default=0) == 0,
    )
    with metrics.setting_up(at_most_s=at_most_s):
        yield


class Run:
    """One rank's run of a training loop. Every rank must call the same methods in the same order.

    A script creates the run by `watch` after the process group is initialized. The script uses the run in a
    `with` statement, or adds two lines: `run = watch(model, optimizer).start()`, and `run.step(loss=loss)` in
    its loop.

    Args:
        model: model whose weights, gradients and activations are measured; None measures none of them. Sharded
            models are measured if they are sharded over all ranks by FSDP2 or tensor parallelism. For other
            ones (FSDP1, ZeRO-3, pipelines) only the steps are written.
        optimizer: optimizer at whose step gradients and weights are measured; None measures neither.
        step: optimizer steps already done, if the script writes its own checkpoints.
        max_steps: optimizer steps of the whole training; None if it is not limited by steps.
        global_batch_size: samples of one optimizer step, over all ranks.
        statistics: `on`, `off`, or JSON of collections and their parameters (docs/rules.md).
        keep_checkpoints: number of newest checkpoints to keep; 0 keeps two, or only one if it is large and
            complete in S3.
        history: events of earlier starts, as `history` returned them, if the script writes its own checkpoints.

    Attributes:
        num_steps: optimizer steps done.
        is_stopping: whether any rank had received SIGTERM at the last step; the same on all ranks.

    Raises:
        RuntimeError: the process is one of several ranks, and there is no process group.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        step: int = 0,
        max_steps: int | None = None,
        global_batch_size: int | None = None,
        statistics: str = "on",
        keep_checkpoints: int = 0,
        history: bytes = b"",
    ) -> None:
        self.num_steps, self.is_stopping = step, False
        self._max_steps, self._batch, self._setting = max_steps, global_batch_size, statistics
        self._model, self._optimizer = model, optimizer
        self._paths = container_paths()
        self._ranks = current_ranks(model)
        self._stop, self._has_handler = StopRequest(grace_s=grace_of(os.environ)), False
        self._keep, self._earlier = keep_checkpoints, history
        self._buffers, self._shard_buffers = CpuBuffers(), CpuBuffers()
        self._found: Checkpoint | None = None
        self._saved_parts: list[str] = []
        self._num_writers, self._is_restoring = 1, False
        self._was_behind = False
        self._hooks: list[Any] = []
        self._state: Any = None
        self._is_of_process = False
        self._num_starts = 1
        self._gradient_norm: float | None = None
        self._learning_rate: float | None = None
        self._validation_loss: float | None = None

    def start(self) -> Self:
        """Begin the run now and end it with the process, instead of by a `with` statement; return the run.

        The script's own handling of SIGTERM stays in force.
        """
        self._is_of_process = True
        atexit.register(self._end_with_process)
        return self.__enter__()

    def __enter__(self) -> Self:
        if (
            not self._is_of_process
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) in {signal.SIG_DFL, None}
        ):
            self._stop.install()
            self._has_handler = True
        self._metrics = MetricsWriter(
            self._paths.output_data_dir / OWN_FOLDER, enabled=self._ranks.is_main
        )
        self._metrics.restore(self._earlier)
        # A separate folder, since other files in the checkpoint folder are the script's.
        folder = self._paths.default_checkpoint_dir / OWN_FOLDER
        retention = Retention.of_job(
            ManifestLayout(folder), keep=self._keep, paths=self._paths, below=OWN_FOLDER
        )
        self._folder = ShardFolder(folder, retention, ranks=self._ranks)
        self._saver = BackgroundSaver(self._folder, self._metrics)
        self._limit = ModelLimit(self._ranks, retention)
        self._find_state()
        self._begin()
        return self

    def resume(self, parts: Mapping[str, Part] | None = None) -> Any:
        """Return the state of the newest valid checkpoint, with its tensors on the CPU, or None without one.

        The start of the run has already read it on rank 0, broadcast it, and set `num_steps`. A second call returns
        None.

        Args:
            parts: the models and optimizers in the state, by name. They are restored in place. The number of ranks
                may differ from the number that saved them. Every rank must pass them.

        Raises:
            CheckpointError: the parts are not those of the checkpoint, or their shards cannot be read.
        """
        (state, self._state), found = (self._state, None), self._found
        if state is None:
            return None
        saved, given = self._saved_parts, sorted(parts or ())
        if saved != given:
            raise CheckpointError(
                f"the checkpoint of step {self.num_steps} has the models and optimizers {saved}, but run.resume got "
                f"{given}; pass the same ones as to run.checkpoint, by the same names, or use another checkpoint "
                "folder for this training"
            )
        if parts and found:
            from trainyard_watch.sharded_state import resume_parts  # noqa: PLC0415  # seconds

            with self.busy(), self._unobserved():
                resume_parts(found, parts, self._ranks)
            return {**state, **parts}
        return state

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield the loader's batches, and measure the time spent waiting for them."""
        iterator = iter(loader)
        while True:
            began = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._data_wait_s += time.perf_counter() - began
            yield batch

    def step(
        self,
        *,
        loss: float | Tensor,
        lr: float | None = None,
        epoch: int | None = None,
        gradient_norm: float | None = None,
        number: int | None = None,
    ) -> bool:
        """Record the optimizer step that was just taken; return whether to stop now. Every rank must call it.

        Args:
            loss: loss of this rank's batch; the mean over the ranks is written.
            lr: learning rate; None = that of the optimizer's first parameter group.
            epoch: epoch, counted from 0.
            gradient_norm: gradient norm before clipping; None = as measured at the optimizer's step.
            number: number of the step, if it is not the next one.

        Raises:
            RuntimeError: a checkpoint was found, and the script has not called `resume`.
        """
        if self._state is not None:
            raise RuntimeError(UNREAD)
        self._end_start()
        mean_loss = self._sync(float(loss.detach() if isinstance(loss, Tensor) else loss))
        now = time.perf_counter()
        steps = 1 if number is None else number - self.num_steps
        self.num_steps += steps
        seconds = max(1e-9, (now - self._stepped_at) / max(1, steps))
        norm = self._gradient_norm if gradient_norm is None else float(gradient_norm)
        rate_now = self._current_rate() if lr is None else float(lr)
        observed = {
            "epoch": epoch,
            "loss": mean_loss,
            "learning_rate": rate_now,
            "gradient_norm": norm,
        }
        rate = None if self._batch is None else self._batch / seconds
        if self._begun != self.num_steps:
            self.begin_step(self.num_steps)
        self._emitter.end_step(
            **observed,
            units_per_second=rate,
            step_seconds=seconds,
            data_wait_seconds=self._data_wait_s / max(1, steps),
        )
        self._log_step(observed, rate, seconds=seconds)
        self._stepped_at, self._data_wait_s = now, 0.0
        self._gradient_norm = self._learning_rate = None
        self.begin_step(self.num_steps + 1)
        return self.is_stopping

    def evaluated(self, *, loss: float, accuracy: float | None = None) -> None:
        """Record an evaluation of the validation split: the mean loss, and the accuracy (0 to 1)."""
        self._validation_loss = float(loss)
        self._metrics.write(
            "eval",
            step=self.num_steps,
            validation_loss=self._validation_loss,
            validation_accuracy=None if accuracy is None else float(accuracy),
        )
        self._restart_clock()

    def begin_step(self, number: int) -> None:
        """Begin the observation of step `number`.

        The call is necessary only if the step does not directly follow the last recorded one. Otherwise the
        observation has already begun. A call before the step begins is then unnecessary, but harmless.
        """
        self._begun = number
        self._emitter.begin_step(number)

    def alive(self, number: int | None = None) -> None:
        """Report the run as alive if nothing was written for a while; cheap to call often.

        Args:
            number: optimizer steps done, if not all were recorded; None = the recorded ones.
        """
        self._metrics.write_alive(self.num_steps if number is None else number)

    def should_stop(self) -> bool:
        """Return whether any rank has received SIGTERM; for use between steps. Every rank must call it."""
        self._sync(0.0)
        return self.is_stopping

    def wait_for_all(self) -> None:
        """Wait until every rank has called this."""
        self._ranks.barrier()

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's `value` (picklable), in rank order. Every rank must call it."""
        return self._ranks.gather(value)

    def saved(self, number: int, *, seconds: float, size: int) -> None:
        """Record a complete checkpoint that the script wrote itself.

        Args:
            number: step of the checkpoint.
            seconds: time that writing it took.
            size: its size in bytes.
        """
        self._metrics.write("checkpoint", step=number, stall_seconds=seconds)
        self._metrics.write("durable", step=number, seconds=seconds, bytes=size)
        self._limit.note_checkpoint(seconds=seconds, num_bytes=size)
        self._restart_clock()

    def has_time_for(self, num_bytes: int) -> bool:
        """Return whether there is time to write a model of `num_bytes` now; always True without a stop.

        After a SIGTERM the checkpoint has priority. The result is then True only under these conditions:

        - The model can be written in the rest of the grace period, by the measured speed of the checkpoints.
        - If the write would take more than 2 s, the last checkpoint has arrived in S3.

        If the result is False, the log has the reason. Call this method after the last checkpoint, within or after
        the `with` statement. Every rank must call it; all return the same.
        """
        written = self._saver.finish()
        if written is not None:
            num_bytes_each = written.num_bytes // self._num_writers
            self._limit.note_checkpoint(seconds=written.seconds, num_bytes=num_bytes_each)
        obstacle = self._limit.obstacle(
            num_bytes, seconds_left=self._stop.seconds_left, grace_s=self._stop.grace_s
        )
        if obstacle is not None and self._ranks.is_main:
            log.warning(NO_MODEL, self.num_steps, obstacle)
            self._metrics.write("no_model", step=self.num_steps, reason=obstacle)
        return obstacle is None

    @contextmanager
    def writing_model(self, folder: str | Path) -> Iterator[None]:
        """Run the body of a `with` statement, in which rank 0 writes the model to `folder`.

        Every rank must enter the `with` statement, before the process group is destroyed.

        After a stop, the body has only the rest of the grace period. If this period is almost over, the content of
        `folder` is removed and the process ends with exit code 143, so no incomplete model is uploaded.

        After a stop, all ranks leave the body together. If they did not, torchrun would kill the other ranks of a
        host 30 s after the first one has exited with code 143.
        """

        def give_up() -> None:
            if self._ranks.is_main:
                remove(Path(folder).glob("*"))
                log.warning(NO_MODEL, self.num_steps, "the stop's grace period is almost over")

        with (
            ending_together(self._ranks, self._stop, is_stopping=self.is_stopping),
            self._stop.bounded(give_up),
        ):
            yield

    def history(self) -> bytes:
        """Return all events so far as JSON lines, for a checkpoint that the script writes; empty except on rank 0."""
        return self._metrics.history()

    @contextmanager
    def busy(self, *, at_most_s: float = SETUP_TIMEOUT_S) -> Iterator[None]:
        """Report the run as alive during work outside of steps, for at most `at_most_s` seconds.

        Use it in a `with` statement. The time of its block does not count for a step.
        """
        with self._metrics.kept_alive(self.num_steps, at_most_s=at_most_s):
            yield
        self._restart_clock()

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Copy the state and write it atomically in the background, with checksums. Every rank must call it.

        While four checkpoints are being uploaded to S3, further ones are skipped, because they would fill the disk. The
        checkpoint after a stop and that of step `max_steps` are always written.

        Args:
            state: tensors, numbers, texts, and containers of them, such as `state_dict()` returns. The script must put
                everything into it that an exact resume needs: model, optimizer, schedule, scaler, position in the
                data, random states. Rank 0's state is written. A value can also be a model or an optimizer: every rank
                then writes its part of it. Sharded models (FSDP, tensor parallelism) need this.

        Raises:
            TypeError: an object in the state is a shard, or cannot be loaded later without running code.
            CheckpointError: DeepSpeed's ZeRO-3 has sharded the model.
        """
        parts: dict[str, Part] = {
            name: each
            for name, each in state.items()
            if isinstance(each, nn.Module | torch.optim.Optimizer)
        }
        rest = {name: each for name, each in state.items() if name not in parts}
        self._check_state(rest, parts)
        if not self._ranks.is_main and not parts:
            return
        if self._is_behind(of_all_ranks=bool(parts)):
            return
        began = time.monotonic()
        self._saver.finish()
        content = {
            STATE: self._buffers.copy(rest),
            PARTS: sorted(parts),
            "step": self.num_steps,
            "num_starts": self._num_starts,
        }
        num_bytes = self._metrics.num_bytes()
        self._saver.start(
            self.num_steps,
            objects={STATE: content, **self._copied_shards(parts)},
            files={"metrics.jsonl": lambda: self._metrics.history(num_bytes)},
            facts={"world_size": self._ranks.world_size},
        )
        self._metrics.write(
            "checkpoint", step=self.num_steps, stall_seconds=time.monotonic() - began
        )
        self._restart_clock()

    @property
    def exit_code(self) -> int:
        """The exit code for the process: 0, or 143 if SIGTERM ended the training before `max_steps`."""
        return EXIT_CODE_TERMINATED if self.is_stopping and not self._is_finished else 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_start()
        if kind is None:
            self._saver.finish()
            if not self.exit_code:
                self._metrics.write(
                    "done",
                    step=self.num_steps,
                    validation_loss=self._validation_loss,
                    seconds=time.monotonic() - self._began_at,
                )
            self._live_on()
        else:
            self._saver.wait(ABANDONED_AFTER_S if self._num_writers > 1 else None)
        for each in self._hooks:
            each.remove()
        if self._has_handler and not self._stop.received:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        close_each(self._emitter, self._headlines)
        # If the script deletes its model, DDP's Reducer must end before the process group: as the group's last owner it
        # could wait for gloo's threads forever (pytorch/pytorch#56297).
        self._model = self._optimizer = None

    def _end_with_process(self) -> None:
        """End a run that `start` began, when the process ends.

        After an uncaught exception (`sys.last_type`), the training is not recorded as done.
        """
        self.__exit__(getattr(sys, "last_type", None))

    def _live_on(self) -> None:
        """Report the run as alive from the end of the training until the process ends.

        In this time a script may merge or write a model, for example. The reports end after at most
        `SETUP_TIMEOUT_S` seconds.

        Nothing is reported if the process does not belong to a training job, or if `start` began the run. A run
        that `start` began ends only when the process ends.
        """
        if JOB_VARIABLE not in os.environ or self._is_of_process:  # no training job, or its end
            return
        ending = self._metrics.kept_alive(self.num_steps, at_most_s=SETUP_TIMEOUT_S)
        ending.__enter__()
        atexit.register(ending.__exit__, None, None, None)

    @property
    def _is_finished(self) -> bool:
        return self._max_steps is not None and self.num_steps >= self._max_steps

    def _is_behind(self, *, of_all_ranks: bool) -> bool:
        """Return whether to skip a checkpoint because S3 lags behind; the last one of a run is never skipped.

        Of consecutive skipped checkpoints, the log reports only the first.

        Args:
            of_all_ranks: whether all ranks write the checkpoint. All ranks must then call this method, and
                the result is that of rank 0.
        """
        is_needed = self.is_stopping or self._is_finished
        is_behind = not is_needed and self._folder.is_congested
        if of_all_ranks:
            is_behind = self._ranks.broadcast(is_behind)
        if is_behind and not self._was_behind and self._ranks.is_main:
            log.warning(SKIPPED, self.num_steps)
        self._was_behind = is_behind
        return is_behind

    def _check_state(self, rest: Mapping[str, Any], parts: Mapping[str, Part]) -> None:
        """Check that the state can be saved; `rest` is the state without `parts`.

        Raises:
            TypeError: as in `checkpoint`.
            CheckpointError: as in `checkpoint`.
        """
        models = [self._model, *(each for each in parts.values() if isinstance(each, nn.Module))]
        if any(is_zero_3(each) for each in models if each is not None):
            raise CheckpointError(ZERO_3)
        check_loadable(rest)
        if self._model is not None and is_fsdp1(self._model):
            refuse_flat_shards(rest)

    def _copied_shards(self, parts: Mapping[str, Part]) -> dict[str, Any]:
        """Return copies of this rank's shards of `parts` (models and optimizers); empty without parts."""
        if not parts:
            return {}
        from trainyard_watch.sharded_state import copied_shards, shards_of  # noqa: PLC0415  # seconds

        self._folder.connect()
        self._num_writers = self._ranks.world_size
        with self._unobserved():
            return {SHARDS: copied_shards(shards_of(parts), self._shard_buffers)}

    @contextmanager
    def _unobserved(self) -> Iterator[None]:
        """Exclude the optimizer steps in the `with` block from the measurements.

        torch runs optimizer steps to create the state of a new optimizer. These are not steps of the training.
        """
        self._is_restoring = True
        try:
            yield
        finally:
            self._is_restoring = False

    def _find_state(self) -> None:
        """Find the newest checkpoint that is complete on every host, read it on rank 0, and broadcast its state."""
        content: Any = None
        with self._metrics.kept_alive():
            found = self._found = self._folder.newest_good()
            with self._ranks.all_or_none():
                if found is not None and self._ranks.is_main:
                    self._metrics.restore(found.read("metrics.jsonl"))
                    content = found.load(STATE)
        content = broadcast_tree(content, self._ranks)
        if found is not None:
            self._state, self._saved_parts = content[STATE], content.get(PARTS, [])
            self.num_steps, self._num_starts = content["step"], content["num_starts"] + 1
            self._metrics.write("resume", step=self.num_steps, checkpoint=str(found.path))

    def _begin(self) -> None:
        """Write the `start` event, and open the statistics."""
        self._began_at = time.monotonic()
        self._metrics.write(
            "start",
            step=self.num_steps,
            world_size=self._ranks.world_size,
            global_batch_size=self._batch,
            max_steps=self._max_steps,
            attempt_id=secrets.token_hex(4),
        )
        self._open_statistics()
        self._logged_at = -math.inf
        self._starting = self._metrics.kept_alive(self.num_steps, at_most_s=START_TIMEOUT_S)
        self._starting.__enter__()
        self._has_started = False
        self._restart_clock()
        self.begin_step(self.num_steps + 1)

    def _open_statistics(self) -> None:
        model = self._model
        if isinstance(model, DistributedDataParallel):
            model = model.module
        tensors = self._tensors(model)
        measured = model if tensors.names else None
        is_compiled = measured is not None and hasattr(measured, "_orig_mod")
        self._emitter = open_statistics(
            self._setting,
            self._paths,
            self._ranks,
            tensors=tensors,
            model=None if is_compiled else measured,
            start=ProcessStart(
                number=self._num_starts,
                step=self.num_steps,
                max_steps=self._max_steps,
                global_batch_size=self._batch,
            ),
            checksums=self._checksums(tensors),
        )
        self._headlines = open_headlines(
            self._paths, self._ranks, tensorboard_dir=None, settings={}
        )
        self._emitter.listeners.append(self._headlines.on_record)
        self._metrics.listeners += [self._emitter.on_record, self._headlines.on_record]
        if self._optimizer is not None and hasattr(self._optimizer, "register_step_pre_hook"):
            self._hooks = [
                self._optimizer.register_step_pre_hook(self.before_update),
                self._optimizer.register_step_post_hook(self.after_update),
            ]
        self._is_measured = bool(tensors.names)

    def _tensors(self, model: nn.Module | None) -> ModelTensors:
        """Return the trainable parameters of the model; the result is empty without a model.

        It is also empty if the parameters are sharded in a way that cannot be measured, such as FSDP1 or ZeRO-3.
        """
        if model is None or not is_sharded(model):
            return ModelTensors(model or nn.Module())
        from trainyard_watch.statistics.sharded_tensors import (  # noqa: PLC0415  # seconds
            ShardedTensors,
            can_measure,
        )

        num_ranks = self._ranks.world_size
        if is_fsdp1(model) or is_zero_3(model) or not can_measure(model, num_ranks):
            return ModelTensors(nn.Module())
        return ShardedTensors(model, device=self._ranks.device, num_ranks=num_ranks)

    def _current_rate(self) -> float | None:
        """Return the learning rate of the last step, or None without an optimizer.

        If a scaler found an overflow and the optimizer took no step, the current learning rate is returned.
        """
        if self._learning_rate is not None or self._optimizer is None:
            return self._learning_rate
        return float(self._optimizer.param_groups[0]["lr"])

    def _end_start(self) -> None:
        """End the periodic reports that the run is alive, if they have not ended yet.

        They last from the beginning of the run to the end of its first step, because this step may compile the
        model. They end after at most `START_TIMEOUT_S` seconds.
        """
        if not self._has_started:
            self._has_started = True
            self._starting.__exit__(None, None, None)

    def _checksums(self, tensors: ModelTensors) -> ReplicaChecksums | None:
        """Return the object that compares parameters between the ranks, or None without DDP over all ranks."""
        model = self._model
        if not isinstance(model, DistributedDataParallel) or not tensors.names:
            return None
        if self._ranks.world_size == 1:
            return None
        if model.process_group.size() != self._ranks.world_size:  # replicas of a part of the ranks
            return None
        return ReplicaChecksums(tensors.names, rank=self._ranks.rank, size=self._ranks.world_size)

    def before_update(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Measure the gradients before the optimizer's step.

        A trainer's callback may call this method from one of its hooks.
        """
        if self._is_restoring:
            return
        self._learning_rate = float(optimizer.param_groups[0]["lr"])
        # A scaler passes scaled gradients to a fused optimizer, which unscales them itself.
        is_scaled = getattr(optimizer, "grad_scale", None) is not None
        if not self._is_measured or self._emitter.has_stopped or is_scaled:
            return
        try:
            _, self._gradient_norm = self._emitter.measure()
        except Exception as error:  # noqa: BLE001 the boundary between observing a run and the run
            self._emitter.degrade(error)
        self._emitter.before_update()

    def after_update(self, *_: object) -> None:
        """Measure the weights after the optimizer's step.

        If the script passed a PyTorch optimizer to `watch`, the run registers this method as a hook of the
        optimizer. A callback of a trainer, such as Lightning's, can call it directly instead.
        """
        if not self._is_restoring:
            self._emitter.after_update()

    def _sync(self, loss: float) -> float:
        """Return the mean loss of all ranks; set `is_stopping` if any rank has received SIGTERM."""
        mine = [loss, float(self._stop.received), float(self._emitter.is_degraded)]
        total, stops, degraded = self._ranks.sum(mine)
        self.is_stopping = stops > 0
        if degraded:  # before the next exchange of checksums, a collective of all ranks
            self._emitter.degrade()
        return total / self._ranks.world_size

    def _log_step(self, observed: Mapping[str, Any], rate: float | None, *, seconds: float) -> None:
        now = time.monotonic()
        if now - self._logged_at < LINE_EVERY_S and not self.is_stopping and not self._is_finished:
            return
        self._logged_at = now
        left = None if self._max_steps is None else self._max_steps - self.num_steps
        self._metrics.write(
            "step",
            step=self.num_steps,
            **observed,
            samples_per_second=rate,
            eta_seconds=None if left is None else max(0, left) * seconds,
            max_steps=self._max_steps,
        )

    def _restart_clock(self) -> None:
        """Restart the time measurement of the next step, and of its wait for data."""
        self._stepped_at, self._data_wait_s = time.perf_counter(), 0.0


watch = Run
"""Name of `Run` in scripts: `with watch(model, optimizer) as run`."""


def check_loadable(state: Any, place: str = "state") -> None:
    """Check that `torch.load` can read a state without running code: tensors, numbers, texts and containers only.

    Raises:
        TypeError: the state has another object; the message has its place in the state.
    """
    if isinstance(state, Mapping):
        for key, value in state.items():
            check_loadable(key, f"a key of {place}")
            check_loadable(value, f"{place}[{key!r}]")
    elif isinstance(state, list | tuple | set):
        for number, value in enumerate(state):
            check_loadable(value, f"{place}[{number}]")
    elif hasattr(state, "_local_tensor") or type(state).__name__ == "ShardedTensor":
        raise TypeError(
            f"{place} is this rank's shard of a tensor ({type(state).__name__}); pass the model and the optimizer "
            'themselves, run.checkpoint({"model": model, "optimizer": optimizer}), and every rank writes its shards'
        )
    elif type(state) not in LOADABLE and not isinstance(state, Tensor):
        raise TypeError(
            f"{place} is a {type(state).__module__}.{type(state).__name__}, which a resume cannot load; store tensors, "
            "numbers, texts, lists and dicts in a checkpoint, for example torch.from_numpy(...) of an array"
        )


def current_ranks(model: nn.Module | None) -> Ranks:
    """Return this process's rank in the script's process group. Without a group, return a single rank.

    Raises:
        RuntimeError: the process was launched as one of several ranks, and there is no group.
    """
    parameter = next(model.parameters(), None) if model is not None else None
    device = torch.device("cpu") if parameter is None else parameter.device
    if not (dist.is_available() and dist.is_initialized()):
        if _launched("WORLD_SIZE", default=1) > 1:
            raise RuntimeError(NO_GROUP)
        return Ranks(device=device)
    if device.type == "cpu" and dist.get_backend() == "nccl":
        device = torch.device("cuda", torch.cuda.current_device())
    return Ranks(
        rank=dist.get_rank(),
        local_rank=_launched("LOCAL_RANK", default=0),
        world_size=dist.get_world_size(),
        local_world_size=_launched("LOCAL_WORLD_SIZE", default=1),
        device=device,
        backend=dist.get_backend(),
    )


def _launched(name: str, *, default: int) -> int:
    """Return the number in the launcher's variable `name` (or mpirun's equivalent), or `default` without one."""
    return int(os.environ.get(name) or os.environ.get(OPEN_MPI[name]) or default)


def refuse_flat_shards(state: Any, place: str = "state") -> None:
    """Reject an optimizer's `state_dict()` under FSDP1: it has this rank's part only, in ordinary tensors.

    Raises:
        TypeError: the state has a `state_dict()` of this kind; the message has its place.
    """
    if not isinstance(state, Mapping):
        return
    if (
        "state" in state
        and "param_groups" in state
        and any(type(key) is int for key in state["state"])
    ):
        raise TypeError(
            f"{place} is an optimizer's state_dict() under FSDP, which has the shards of one rank; pass the optimizer "
            'itself, run.checkpoint({"model": model, "optimizer": optimizer})'
        )
    for key, value in state.items():
        refuse_flat_shards(value, f"{place}[{key!r}]")


def is_fsdp1(model: nn.Module) -> bool:
    """Return whether FullyShardedDataParallel wraps the model or a part of it."""
    return any(type(each).__name__ == "FullyShardedDataParallel" for each in model.modules())


def is_zero_3(model: nn.Module) -> bool:
    """Return whether DeepSpeed's ZeRO-3 has sharded the model."""
    return any(hasattr(each, "ds_id") for each in model.parameters())


def is_sharded(model: nn.Module) -> bool:
    """Return whether the model's parameters are sharded: FSDP, tensor parallelism or DeepSpeed's ZeRO-3."""
    has_shards = any(hasattr(each, "_local_tensor") for each in model.parameters())
    return has_shards or is_fsdp1(model) or is_zero_3(model)
