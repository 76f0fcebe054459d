"""Training of the decoder with TensorFlow: setup, resume, steps, evaluation, checkpoints."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import secrets
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorflow_trainer import checkpoint_files
from tensorflow_trainer.decoder import DecoderShape, initial_weights, loss_of
from tensorflow_trainer.hyperparameters import check_batch
from tensorflow_trainer.token_samples import TokenSamples, digest_of, order
from trainer.batching import num_evaluated
from trainer.data.shard_index import ChannelIndex
from trainer.schedule import make_schedule
from trainyard_watch.errors import NonFiniteError
from trainyard_watch.metrics import START_TIMEOUT_S, MetricsWriter
from trainyard_watch.retention import LocalLayout, Retention
from trainyard_watch.stopping import EXIT_CODE_TERMINATED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from tensorflow_trainer.hyperparameters import TensorFlowHyperparameters
    from tensorflow_trainer.strategies import TensorFlowStrategy
    from trainyard_watch.environment import ContainerPaths
    from trainyard_watch.stopping import StopRequest

log = logging.getLogger(__name__)


class TensorFlowTraining:
    """Training process of one host, from step 0 or a checkpoint to the last step or a stop."""

    def __init__(
        self,
        hp: TensorFlowHyperparameters,
        paths: ContainerPaths,
        strategy: TensorFlowStrategy,
        stop: StopRequest,
    ) -> None:
        """Open the data and create or restore the variables.

        Raises:
            TrainerError: the data, the batch sizes or the checkpoint do not match the run.
        """
        self._hp, self._paths, self._strategy, self._stop = hp, paths, strategy, stop
        self._metrics = MetricsWriter(paths.output_data_dir, enabled=strategy.is_chief)
        with self._metrics.setting_up():
            index = ChannelIndex.load(paths.channels.get("index"))
            self._train, self._validation = (
                TokenSamples.open(
                    index,
                    split,
                    paths.channels.get(split),
                    sequence_length=hp.sequence_length,
                    verify=hp.verify_shards,
                )
                for split in ("train", "validation")
            )
        self._shape = DecoderShape(
            vocab_size=index.vocab_size,
            sequence_length=hp.sequence_length,
            num_layers=hp.num_layers,
            num_heads=hp.num_heads,
            hidden_size=hp.hidden_size,
        )
        self._identity = {
            "model": dataclasses.asdict(self._shape),
            "data_fingerprint": index.fingerprint,
            "seed": hp.seed,
            "global_batch_size": hp.global_batch_size,
        }
        check_batch(hp, num_replicas=strategy.num_replicas, num_samples=len(self._train))
        self._max_steps = hp.num_steps(num_samples=len(self._train))
        self._schedule = make_schedule(hp, max_steps=self._max_steps)
        self._folder = (
            Path(hp.checkpoint_dir) if hp.checkpoint_dir else paths.default_checkpoint_dir
        )
        self._retention = Retention.of_job(
            LocalLayout(self._folder), keep=hp.keep_checkpoints, paths=paths
        )
        self._step, self._validation_loss = 0, math.nan
        # The same on all hosts; `stop` may change at any time, on some hosts only.
        self._is_stopping, self._has_stepped = False, False
        self._is_evaluation_stopped = False  # on the first host
        with self._metrics.kept_alive():
            self._state = self._resume()
        strategy.compile(
            self._loss, self._state, clip_norm=hp.clip_norm, weight_decay=hp.weight_decay
        )

    def run(self) -> int:
        """Train to the last step or a SIGTERM; return the exit code.

        Raises:
            NonFiniteError: the loss became NaN or infinite.
        """
        began = self._logged_at = time.monotonic()
        self._logged_step, self._digest = self._step, 0
        self._metrics.write(
            "start",
            step=self._step,
            world_size=self._strategy.num_replicas,
            global_batch_size=self._hp.global_batch_size,
            num_samples=len(self._train),
            seed=self._hp.seed,
            max_steps=self._max_steps,
            attempt_id=secrets.token_hex(4),
        )
        while self._step < self._max_steps and not self._is_stopping:
            self._make_step()
        if self._step == self._max_steps and math.isnan(self._validation_loss):
            self._evaluate()
        if self._step < self._max_steps or self._is_evaluation_stopped:
            log.warning("SIGTERM: stopping after step %d", self._step)
            self._save()
            self._strategy.leave()
            return EXIT_CODE_TERMINATED
        with self._metrics.kept_alive(self._step):
            self._end(seconds=time.monotonic() - began)
        self._strategy.leave()
        return 0

    def _loss(self, weights: Mapping[str, Any], block: Any) -> Any:
        return loss_of(self._shape, weights, block)

    def _resume(self) -> dict[str, dict[str, Any]]:
        weights = initial_weights(self._shape, seed=self._hp.seed)
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        arrays = {"weights": weights, "first": zeros, "second": zeros}
        found = checkpoint_files.newest(self._folder)
        if found is not None:
            path, self._step, saved = found
            checkpoint_files.check_identity(path, saved, self._identity)
            arrays = {part: {name: saved[f"{part}/{name}"] for name in weights} for part in arrays}
            self._metrics.restore(bytes(saved["history"]))
            self._retention.note_found(self._step)
            self._metrics.write("resume", step=self._step, checkpoint=str(path))
        # New variables get the chief's values, so a host with another checkpoint resumes from the chief's.
        self._step = int(self._strategy.hold({"step": np.array(self._step)})["step"].numpy())
        return {part: self._strategy.hold(values) for part, values in arrays.items()}

    def _make_step(self) -> None:
        hp = self._hp
        start = self._step * hp.global_batch_size
        samples = order(
            start, start + hp.global_batch_size, num_samples=len(self._train), seed=hp.seed
        )
        learning_rate = self._schedule.at(self._step)
        with self._starting():
            made = self._strategy.step(
                self._train[samples],
                learning_rate=learning_rate,
                number=self._step + 1,
                stops=self._stop.received,
            )
        self._has_stepped = True
        if not math.isfinite(made.loss):
            raise NonFiniteError(
                f"in step {self._step + 1} (samples {start} to {start + len(samples) - 1} of the run's sample order) "
                f"the loss is {made.loss}; lower learning_rate or set clip_norm"
            )
        self._step += 1
        self._is_stopping = made.is_stopping
        self._digest += digest_of(samples)
        is_last = self._step == self._max_steps
        is_evaluated = is_last or (hp.eval_interval and self._step % hp.eval_interval == 0)
        is_saved = is_last or self._is_checkpoint_due()
        is_logged = self._step == 1 or self._step % hp.log_interval == 0 or self._is_stopping
        if is_logged or is_evaluated or is_saved:
            self._log_step(made.loss, learning_rate, made.norm)
        self._metrics.write_alive(self._step)
        if is_evaluated:
            self._evaluate()
        if is_saved:
            self._save()

    def _starting(self) -> AbstractContextManager[None]:
        """Return a context that reports the run as alive in the first step, which traces and compiles the model."""
        if self._has_stepped:
            return nullcontext()
        return self._metrics.kept_alive(self._step, at_most_s=START_TIMEOUT_S)

    def _is_checkpoint_due(self) -> bool:
        every = self._hp.save_every
        return every is not None and self._step % every == 0

    def _log_step(self, loss: float, learning_rate: float, norm: float) -> None:
        now, steps = time.monotonic(), self._step - self._logged_step
        batch = self._hp.global_batch_size
        rate = steps * batch * self._hp.sequence_length / max(1e-9, now - self._logged_at)
        self._metrics.write(
            "step",
            step=self._step,
            epoch=(self._step * batch - 1) // len(self._train),
            loss=loss,
            learning_rate=learning_rate,
            tokens_per_second=rate,
            gradient_norm=norm,
            max_steps=self._max_steps,
            samples=f"{self._logged_step * batch}:{self._step * batch}",
            digest=f"{self._digest & (2**64 - 1):016x}",
        )
        self._logged_at, self._logged_step, self._digest = now, self._step, 0

    def _evaluate(self) -> None:
        """Measure the validation loss on the first host; the other hosts store 0.

        After a SIGTERM on the first host, the evaluation ends without a loss.
        """
        if not self._strategy.is_chief:
            self._validation_loss = 0.0
            return
        batch = self._hp.global_batch_size
        wanted = num_evaluated(self._hp, num_samples=len(self._validation))
        chosen = np.arange(wanted) * len(self._validation) // wanted
        losses = []
        for part in np.split(chosen, range(batch, wanted, batch)):
            if self._stop.received:
                log.warning("SIGTERM: the validation after step %d is NOT MEASURED", self._step)
                self._is_evaluation_stopped = True
                return
            losses.append(float(self._loss(self._state["weights"], self._validation[part])))
            self._metrics.write_alive(self._step)
        sizes = [min(batch, wanted - at) for at in range(0, wanted, batch)]
        self._validation_loss = float(np.average(losses, weights=sizes))
        self._metrics.write(
            "eval",
            step=self._step,
            validation_loss=self._validation_loss,
            validation_tokens=wanted * self._hp.sequence_length,
        )

    def _save(self) -> None:
        if self._strategy.is_chief:
            with self._metrics.kept_alive(self._step):
                self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        began = time.monotonic()
        arrays = {
            f"{part}/{name}": variable.numpy()
            for part, variables in self._state.items()
            for name, variable in variables.items()
        }
        arrays[checkpoint_files.IDENTITY] = np.array(json.dumps(self._identity))
        arrays["history"] = np.frombuffer(self._metrics.history(), np.uint8)
        if self._step in LocalLayout(self._folder).steps():
            self._retention.distrust(self._step)
        try:
            size = checkpoint_files.save(self._folder, self._step, arrays)
        except OSError as error:
            self._metrics.write("checkpoint_failed", step=self._step, reason=str(error))
            return
        self._retention.note_durable(self._step)
        seconds = time.monotonic() - began
        self._metrics.write("checkpoint", step=self._step, stall_seconds=seconds)
        self._metrics.write("durable", step=self._step, seconds=seconds, bytes=size)

    def _end(self, *, seconds: float) -> None:
        if not self._strategy.is_chief:
            return
        weights = {name: each.numpy() for name, each in self._state["weights"].items()}
        self._metrics.write(
            "done",
            step=self._step,
            validation_loss=self._validation_loss,
            seconds=seconds,
            weights_sha256=_sha256_of(weights),
        )
        self._metrics.write_summary(
            validation_loss=self._validation_loss,
            step=self._step,
            seconds=seconds,
            world_size=self._strategy.num_replicas,
            num_parameters=sum(each.size for each in weights.values()),
        )
        _save_model(self._paths.model_dir, weights, self._shape)


def _save_model(folder: Path, weights: Mapping[str, np.ndarray], shape: DecoderShape) -> None:
    """Write weights and sizes of the model into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "model.npz", **weights)
    sizes = dataclasses.asdict(shape)
    (folder / "model.json").write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")


def _sha256_of(weights: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 (hex) of the weights, with which two runs are compared."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].tobytes())
    return digest.hexdigest()
