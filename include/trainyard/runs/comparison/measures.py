"""Measures of one training: speed, memory, communication and losses, from the files in its output."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

WARM_UP_SHARE = 0.1
"""Of the steps: compilation, first allocations and cold caches are no speed of the strategy."""
_METRICS_FILE, _SUMMARY_FILE = "metrics.jsonl", "summary.json"
_RATES = {"tokens_per_second": "tokens", "samples_per_second": "samples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """One training, measured. None and empty if its files do not say.

    Attributes:
        samples_per_second: over all ranks, after the warm-up, without evaluations and checkpoints.
        slowest, fastest: the least and most of it over the lines that say it.
        units_per_second: the same in the task's own `unit`, tokens or samples.
        steps_measured: how many steps these speeds are of.
        losses: training loss by step.
        samples_per_epoch: of the train split.
        peak_memory_bytes: the most of each rank, by rank; `memory_kind` says of what.
        state_bytes: parameters, gradients and optimizer states that each rank holds, by rank.
        communication_share: of the profiled steps' time with a collective under way, whether the rank computes
            meanwhile or waits for it; 0 to 1, the mean over ranks.
    """

    samples_per_second: float | None = None
    slowest: float | None = None
    fastest: float | None = None
    unit: str | None = None
    units_per_second: float | None = None
    step_seconds: float | None = None
    steps_measured: int = 0
    losses: tuple[tuple[int, float], ...] = ()
    validation_loss: float | None = None
    samples_per_epoch: int | None = None
    global_batch_size: int | None = None
    num_parameters: int | None = None
    peak_memory_bytes: tuple[int, ...] = ()
    memory_kind: str | None = None
    state_bytes: tuple[int, ...] = ()
    communication_share: float | None = None


def measures_in(files: Mapping[str, Sequence[str]], *, units_per_sample: int) -> Measures:
    """Return what the files in a training's output archive say.

    Args:
        files: the lines of each, by its path in the archive.
        units_per_sample: see `measures_of`.
    """
    by_name = {path.rpartition("/")[2]: lines for path, lines in files.items()}
    summaries = list(_objects(["".join(by_name.get(_SUMMARY_FILE, ()))]))
    return measures_of(
        by_name.get(_METRICS_FILE, ()),
        summaries[0] if summaries else None,
        units_per_sample=units_per_sample,
    )


def measures_of(
    metric_lines: Iterable[str],
    summary: Mapping[str, Any] | None = None,
    *,
    units_per_sample: int = 1,
) -> Measures:
    """Return what a training's `metrics.jsonl` and `summary.json` say.

    A step that was taken twice, since the training was interrupted, counts as it was taken last.

    Args:
        metric_lines: lines that are no JSON object (a torn one) are passed over.
        summary: None if there is none: the training did not come to its end.
        units_per_sample: tokens of one sample, where the speed is told in tokens.
    """
    events = list(_objects(metric_lines))
    starts = [each for each in events if each.get("event") == "start"]
    start = starts[-1] if starts else {}
    steps = {each["step"]: each for each in events if each.get("event") == "step"}
    told = summary or {}
    batch = start.get("global_batch_size")
    return Measures(
        **_speed(
            [steps[each] for each in sorted(steps)],
            start,
            units_per_sample,
            profiled_from=min(told.get("profiled_steps") or [math.inf]),
        ),
        losses=tuple(
            (step, steps[step]["loss"])
            for step in sorted(steps)
            if isinstance(steps[step].get("loss"), (int, float))
        ),
        validation_loss=told.get("validation_loss"),
        samples_per_epoch=start.get("num_samples"),
        global_batch_size=batch,
        num_parameters=told.get("num_parameters"),
        peak_memory_bytes=tuple(told.get("peak_memory_bytes") or ()),
        memory_kind=told.get("memory_kind"),
        state_bytes=tuple(told.get("state_bytes") or ()),
        communication_share=_mean(told.get("collectives_share") or ()),
    )


def _speed(
    steps: list[dict[str, Any]],
    start: Mapping[str, Any],
    tokens_per_sample: int,
    *,
    profiled_from: float,
) -> dict[str, Any]:
    """Return the speed over the lines after the warm-up, and before the steps that a profiler slowed down.

    A line's rate is that since the line before. Worked: 5 steps of 16 samples at 80 samples/s and 5 at 160 take
    1.0 s and 0.5 s: 160 samples in 1.5 s are 106.7 samples/s, not 120.
    """
    batch, warm = start.get("global_batch_size"), WARM_UP_SHARE * (start.get("max_steps") or 0)
    rate = next((each for each in _RATES if steps and steps[-1].get(each)), None)
    if rate is None or not batch:
        return {}
    per_sample = tokens_per_sample if _RATES[rate] == "tokens" else 1
    lines = [
        (after["step"] - before["step"], after[rate] / per_sample)
        for before, after in pairwise(steps)
        if before["step"] >= warm and after["step"] < profiled_from and after.get(rate)
    ]
    if not lines:
        return {}
    count = sum(each for each, _ in lines)
    seconds = sum(each * batch / samples_per_second for each, samples_per_second in lines)
    return {
        "samples_per_second": count * batch / seconds,
        "slowest": min(each for _, each in lines),
        "fastest": max(each for _, each in lines),
        "unit": _RATES[rate],
        "units_per_second": count * batch * per_sample / seconds,
        "step_seconds": seconds / count,
        "steps_measured": count,
    }


def _objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [each for each in shares if each is not None]
    return sum(known) / len(known) if known else None
