"""Measures of one training: speed, memory, communication and losses, from the files in its output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trainyard.runs.builder import json_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WARM_UP_SHARE = 0.1
"""Share of the steps left out as warm-up: compilation, first allocations and cold caches distort the speed."""
_METRICS_FILE, _SUMMARY_FILE = "metrics.jsonl", "summary.json"
_RATES = {"tokens_per_second": "tokens", "samples_per_second": "samples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Measures of one training. A measure that its files lack is None or empty.

    Attributes:
        samples_per_second: over all ranks, after the warm-up and before the profiled steps, without evaluations and
            checkpoints.
        slowest, fastest: lowest and highest samples/s that a step line in metrics.jsonl has in the same period.
        units_per_second: `samples_per_second`, converted to the task's `unit`, tokens or samples.
        steps_measured: number of steps over which `samples_per_second` was measured.
        losses: training loss by step.
        samples_per_epoch: number of samples in the train split.
        peak_memory_bytes: peak memory by rank; `memory_kind` names the kind of memory.
        state_bytes: bytes of parameters, gradients and optimizer states by rank.
        communication_share: share of the profiled steps' time during which a collective runs, whether the rank
            computes meanwhile or waits; 0 to 1, the mean over ranks.
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
    """Return the measures in the files of a training's output archive.

    Args:
        files: the lines of each file, by its path in the archive.
        units_per_sample: tokens per sample, if the speed is logged in tokens.
    """
    by_name = {path.rpartition("/")[2]: lines for path, lines in files.items()}
    summaries = list(json_objects(["".join(by_name.get(_SUMMARY_FILE, ()))]))
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
    """Return the measures in a training's `metrics.jsonl` and `summary.json`.

    If an interruption made the training repeat a step, the last repetition counts.

    Args:
        metric_lines: the lines of `metrics.jsonl`; lines that are not a JSON object are skipped.
        summary: the content of `summary.json`; None if the training did not complete.
        units_per_sample: tokens per sample, if the speed is logged in tokens.
    """
    events = list(json_objects(metric_lines))
    starts = [each for each in events if each.get("event") == "start"]
    start = starts[-1] if starts else {}
    steps = {each["step"]: each for each in events if each.get("event") == "step"}
    results = summary or {}
    batch = start.get("global_batch_size")
    return Measures(
        **_speed(
            [steps[each] for each in sorted(steps)],
            start,
            units_per_sample,
            profiled_from=min(results.get("profiled_steps") or [math.inf]),
        ),
        losses=tuple(
            (step, steps[step]["loss"])
            for step in sorted(steps)
            if isinstance(steps[step].get("loss"), (int, float))
        ),
        validation_loss=results.get("validation_loss"),
        samples_per_epoch=start.get("num_samples"),
        global_batch_size=batch,
        num_parameters=results.get("num_parameters"),
        peak_memory_bytes=tuple(results.get("peak_memory_bytes") or ()),
        memory_kind=results.get("memory_kind"),
        state_bytes=tuple(results.get("state_bytes") or ()),
        communication_share=_mean(results.get("collectives_share") or ()),
    )


def _speed(
    steps: list[dict[str, Any]],
    start: Mapping[str, Any],
    tokens_per_sample: int,
    *,
    profiled_from: float,
) -> dict[str, Any]:
    """Return the fields of `Measures` about speed, by name; empty if the speed is unknown.

    The speed is measured after the warm-up and before the profiled steps, because profiled steps are slower.

    A step line has the rate since the previous line, so each line is weighted by its duration. Worked: 5 steps
    of 16 samples take 1.0 s at 80 samples/s, and 5 more take 0.5 s at 160 samples/s. These are 160 samples in
    1.5 s, or 106.7 samples/s, not 120.
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


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [each for each in shares if each is not None]
    return sum(known) / len(known) if known else None
