"""Metric records of a run, written by rank 0: setup, start, steps, end."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

import torch

from trainer.data.sample_digest import MASK
from trainer.measurements import Meter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainer.batching import BatchPlan
    from trainer.data.mixture import MixedSamples
    from trainer.data.shard_index import ChannelIndex
    from trainer.tasks import Task
    from trainer.training_state import TrainingState
    from trainyard_watch.distributed import Ranks
    from trainyard_watch.metrics import MetricsWriter

log = logging.getLogger(__name__)


class RunReport:
    """Writer of the metric records of one training process.

    On ranks other than 0 it writes nothing, and only counts steps and samples.
    """

    def __init__(
        self,
        metrics: MetricsWriter,
        *,
        state: TrainingState,
        plan: BatchPlan,
        num_steps: int,
        task: Task,
        num_samples: int,
        num_parameters: int,
        mixture: MixedSamples | None = None,
    ) -> None:
        self.meter = Meter()
        self._metrics, self._state, self._plan, self._task = metrics, state, plan, task
        self._num_steps, self._num_samples = num_steps, num_samples
        self._num_parameters = num_parameters
        self._mixture = mixture
        self._account = SampleAccount(0)

    def log_setup(self, index: ChannelIndex, ranks: Ranks) -> None:
        """Log the setup: ranks, device, parameters, samples and batches."""
        if ranks.is_main:
            log.info(
                "%d rank(s) on %s (%s), %d thread(s) each; %d parameters; %s of %d samples; "
                "global batch %d = %d ranks x %d accumulation x %d; %d steps",
                ranks.world_size, ranks.device, ranks.backend,
                torch.get_num_threads(), self._num_parameters, index.kind, self._num_samples,
                self._plan.global_batch_size, ranks.world_size,
                self._plan.gradient_accumulation_steps, self._plan.micro_batch_size,
                self._num_steps,
            )  # fmt: skip
            for name, share, passes in self._shares():
                log.info(
                    "source %s: %.2f %% of the samples, %.2f passes in all",
                    name,
                    100 * share,
                    passes,
                )

    def _shares(self) -> Iterator[tuple[str, float, float]]:
        """Yield each source of a mixture, its share, and how often the whole training passes over its samples."""
        sources = self._mixture.sources if self._mixture else ()
        num_samples = self._num_steps * self._plan.global_batch_size
        for each in sources:
            share = each.parts / sum(other.parts for other in sources)
            yield each.name, share, num_samples * share / len(each)

    def log_start(self, *, ranks: Ranks, seed: int) -> None:
        """Write the record of this start, after the resume; its random `attempt_id` identifies the start."""
        progress = self._state.progress
        self.meter, self._account = Meter(), SampleAccount(progress.samples_consumed)
        self._metrics.write(
            "start",
            step=progress.step,
            world_size=ranks.world_size,
            global_batch_size=self._plan.global_batch_size,
            num_samples=self._num_samples,
            seed=seed,
            max_steps=self._num_steps,
            attempt_id=secrets.token_hex(4),
            mixture=self._mixture.describe() if self._mixture else None,
        )

    def count_step(self, digest: int) -> None:
        """Count the samples of a step; `digest` is that of the samples that all ranks read."""
        self._account.add(self._plan.global_batch_size, digest)

    def log_step(self, *, loss: float, learning_rate: float, gradient_norm: float) -> None:
        """Write the metrics of the last step; rates and samples cover the time since the previous line."""
        progress = self._state.progress
        steps, seconds, data_wait_seconds = self.meter.read()
        units = steps * self._plan.global_batch_size * self._task.units_per_sample
        self._metrics.write(
            "step",
            step=progress.step,
            epoch=(progress.samples_consumed - 1) // self._num_samples,
            loss=loss,
            learning_rate=learning_rate,
            gradient_norm=gradient_norm,
            eta_seconds=self.meter.seconds_per_step() * (self._num_steps - progress.step),
            max_steps=self._num_steps,
            data_wait_seconds=data_wait_seconds,
            **self._account.read(),
            **{f"{self._task.unit}_per_second": units / seconds},
        )

    def log_end(
        self,
        facts: Mapping[str, Any],
        *,
        seconds: float,
        index: ChannelIndex,
        ranks: Ranks,
    ) -> None:
        """Write the last metric line and the run's summary; ranks other than 0 write nothing.

        `facts` are members of the summary, as `Training.write_results` returned them. `seconds` is the duration of
        the run in this process.
        """
        if not ranks.is_main:
            return
        progress = self._state.progress
        self._metrics.write(
            "done",
            step=progress.step,
            validation_loss=progress.validation_loss,
            seconds=seconds,
            weights_sha256=facts.get("weights_sha256"),
        )
        self._metrics.write_summary(
            **facts,
            unigram_loss=index.unigram_loss,
            seconds=seconds,
            world_size=ranks.world_size,
            num_parameters=self._num_parameters,
        )


class SampleAccount:
    """Range of positions and digest of the samples consumed since the last call of `read`.

    Positions are those of the run's sample order. The first range begins at position `start`.
    """

    def __init__(self, start: int) -> None:
        self._first = self._end = start
        self._digest = 0

    def add(self, num_samples: int, digest: int) -> None:
        """Count the samples of one step; `digest` is that of the samples that all ranks read."""
        self._end += num_samples
        self._digest = (self._digest + digest) & MASK

    def read(self) -> dict[str, str]:
        """Return the metric values `samples` ("first:end") and `digest` (16 hex digits), and reset the account."""
        values = {"samples": f"{self._first}:{self._end}", "digest": f"{self._digest:016x}"}
        self._first, self._digest = self._end, 0
        return values
