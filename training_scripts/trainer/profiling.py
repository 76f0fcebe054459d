"""Profiles by torch.profiler: traces of the steps in `trace_steps`, and the share of time spent in collectives.

The share is measured over the last steps of the training.

A trace is one file per rank and span, in the statistics' folder. A traced step is slower (some percent with CPU
activities, more on a GPU). A trace is large: 0.1 MB per step for a small MLP, 1.4 MB for a small GPT. By default
nothing is traced.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torch import profiler
from torch.autograd import DeviceType

from trainer.step_spans import read_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import torch

    from trainer.hyperparameters import Hyperparameters
    from trainyard_watch.distributed import Ranks
    from trainyard_watch.environment import ContainerPaths

log = logging.getLogger(__name__)
Span = tuple[float, float]
_STEP = "trainyard step"
_ON_CPU, _ON_GPU = "gloo:", "nccl"
NO_TRACE = "steps %d to %d have no trace: %s"


class StepTraces:
    """Tracer of the steps in `spans`; other steps are not traced.

    The step before a span, if there is one, is the profiler's warm-up. A failed trace is logged as a warning.

    Args:
        spans: spans of step numbers.
        is_gpu: whether to trace CUDA activities, too.
        path_of: function that returns the path of a span's trace.
    """

    def __init__(
        self, spans: Sequence[range], *, is_gpu: bool, path_of: Callable[[range], Path]
    ) -> None:
        self._spans, self._path_of = tuple(spans), path_of
        self._kinds = [profiler.ProfilerActivity.CPU]
        self._kinds += [profiler.ProfilerActivity.CUDA] if is_gpu else []
        self._running: profiler.profile | None = None
        self._span = range(0)

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Trace the training step that the `with` body runs, if its `number` is in one of the spans."""
        if self._running is None:
            with self._logging_errors():
                self._begin(number)
        yield
        if self._running is not None:
            with self._logging_errors():
                self._end(self._running, number)

    def close(self) -> None:
        """Discard an unfinished trace."""
        with self._logging_errors():
            self._discard()

    @contextmanager
    def _logging_errors(self) -> Iterator[None]:
        """Catch an error of the `with` body, log it, and drop the current span.

        A profiler error must not end the training.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 as above
            log.warning(NO_TRACE, self._span[0], self._span[-1], f"{type(error).__name__}: {error}")
            self._spans = tuple(each for each in self._spans if each[-1] != self._span[-1])
            with suppress(Exception):
                self._discard()

    def _discard(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.on_trace_ready = None
            running.stop()

    def _begin(self, number: int) -> None:
        span = next((each for each in self._spans if number in each or number + 1 == each[0]), None)
        if span is None:
            return
        self._span = range(max(number, span[0]), span[-1] + 1)
        warm_up, total = self._span[0] - number, self._span[-1] + 1 - number

        def action(at: int) -> profiler.ProfilerAction:
            if at < warm_up:
                return profiler.ProfilerAction.WARMUP
            if at < total - 1:
                return profiler.ProfilerAction.RECORD
            is_last = at == total - 1
            return (
                profiler.ProfilerAction.RECORD_AND_SAVE if is_last else profiler.ProfilerAction.NONE
            )

        self._running = profiler.profile(
            activities=self._kinds, schedule=action, on_trace_ready=self._export
        )
        self._running.start()

    def _end(self, running: profiler.profile, number: int) -> None:
        running.step()
        if number == self._span[-1]:
            running.stop()
            self._running = None

    def _export(self, finished: profiler.profile) -> None:
        path = self._path_of(self._span)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix="trace-") as folder:
                whole = Path(folder) / path.name
                finished.export_chrome_trace(str(whole))
                # The folder may be synced at any time: the final name must never have half a trace.
                hidden = path.with_name(f".{path.name}")
                shutil.copyfile(whole, hidden)
                os.replace(hidden, path)  # noqa: PTH105 the two calls belong together
        except (OSError, RuntimeError) as error:
            log.warning(NO_TRACE, self._span[0], self._span[-1], error)


def open_traces(
    hp: Hyperparameters, paths: ContainerPaths, ranks: Ranks, *, num_starts: int
) -> StepTraces:
    """Return the tracer of the steps in `trace_steps`; its files go into the statistics' folder."""
    spans, hook = read_spans(hp.trace_steps), None
    try:
        hook = paths.read_config("debughookconfig")
    except Exception as error:  # noqa: BLE001 as in StepTraces
        for span in spans:
            log.warning(NO_TRACE, span[0], span[-1], f"{type(error).__name__}: {error}")
        spans = ()

    def path_of(span: range) -> Path:
        folder = paths.statistics_dir(hook, is_shipped=True)
        if not folder.is_dir():  # this host uploads no statistics to S3
            folder = paths.statistics_dir(hook, is_shipped=False)
        name = f"trace-rank-{ranks.rank:05d}.attempt-{max(1, num_starts):04d}"
        return folder / f"{name}.steps-{span[0]}-{span[-1]}.json.gz"

    return StepTraces(spans, is_gpu=ranks.device.type == "cuda", path_of=path_of)


class CollectiveProfile:
    """Profiler of the last `num_steps` of `max_steps`; other steps are not profiled.

    A collective counts from its start to its end, whether the rank computes in the meantime or waits for it.
    """

    def __init__(self, *, num_steps: int, max_steps: int, device: torch.device) -> None:
        self.first, self.last = max(1, max_steps - num_steps + 1), max_steps
        self._num_steps, self._is_gpu = num_steps, device.type == "cuda"
        self._under_way = self._whole = 0.0

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Profile the step that runs in this context, if `number` is one of the last `num_steps` steps."""
        if number < self.first or not self._num_steps:
            yield
            return
        kinds = [profiler.ProfilerActivity.CPU]
        kinds += [profiler.ProfilerActivity.CUDA] if self._is_gpu else []
        with profiler.profile(activities=kinds) as profile, profiler.record_function(_STEP):
            yield
        self._count(profile.events())

    def summary(self, ranks: Ranks) -> dict[str, Any]:
        """Return `profiled_steps` (first, last) and `collectives_share` (one share per rank).

        A share is the part of the profiled time that the rank spent in collectives, from 0 to 1. The share is
        None if the rank profiled no step. The result is empty if no steps are to be profiled. Every rank must
        call this method.
        """
        if not self._num_steps:
            return {}
        shares = ranks.gather(self._under_way / self._whole if self._whole else None)
        return {"profiled_steps": [self.first, self.last], "collectives_share": shares}

    def _count(self, events: Iterable[Any]) -> None:
        spans, step = [], (0.0, 0.0)
        for each in events:
            span = (each.time_range.start, each.time_range.end)
            if each.name == _STEP and each.device_type == DeviceType.CPU:
                step = span
            elif each.name.startswith(_ON_CPU) or (
                each.name.startswith(_ON_GPU) and each.device_type == DeviceType.CUDA
            ):
                spans.append(span)
        self._under_way += covered(spans, within=step)
        self._whole += step[1] - step[0]


def covered(spans: Iterable[Span], *, within: Span) -> float:
    """Return the length of the part of `within` that the spans cover; overlaps count once.

    Example: `within` is (0, 5) and the spans are (1, 4) and (3, 6). They cover the part from 1 to 5, so the
    result is 4.
    """
    total, end = 0.0, within[0]
    for begin, until in sorted(spans):
        begin, until = max(begin, end), min(until, within[1])  # noqa: PLW2901  # clipped
        if until > begin:
            total, end = total + until - begin, until
    return total
