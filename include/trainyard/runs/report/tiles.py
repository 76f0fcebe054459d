"""Key numbers of a run: losses, cost, time, throughput and steps. Unknown ones are omitted."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from trainyard.runs.report.figures import points_of
from trainyard.runs.report.views import Tile
from trainyard.units import format_count, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import RunRecord


def tiles(record: RunRecord) -> list[Tile]:
    """Return the known key numbers: losses (or metrics of the user's evaluation), cost, time, throughput and steps."""
    found = [
        _validation_tile(record),
        _test_tile(record),
        _cost_tile(record),
        _time_tile(record),
        _throughput_tile(record),
        _steps_tile(record),
    ]
    return [tile for tile in found if tile is not None]


def last_validation_loss(record: RunRecord) -> float | None:
    """Return the last validation loss that the script logged, or the service's final metric; None without either."""
    evals = points_of(record, "eval", "validation_loss")
    if evals:
        return evals[-1][1]
    job = record.job_of("train")
    value = job.final_metrics.get("validation:loss") if job else None
    return None if value is None else float(value)


def _validation_tile(record: RunRecord) -> Tile | None:
    loss = last_validation_loss(record)
    if loss is None:
        return None
    unigram = record.dataset.unigram_loss if record.dataset else None
    if not unigram:
        return Tile(name="Validation loss", value=f"{loss:.4f}")
    gain = 1 - loss / unigram
    note = f"unigram baseline {unigram:.3f}: {abs(gain):.0%} {'below' if gain > 0 else 'above'} it"
    tone = "good" if gain > 0 else "bad"
    return Tile(
        name="Validation loss", value=f"{loss:.3f}", unit="nats/token", note=note, tone=tone
    )


def _test_tile(record: RunRecord) -> Tile | None:
    metrics = record.evaluation.get("metrics", {})
    if metrics.get("test_loss") is None:
        return _own_metric_tile(metrics)
    notes = []
    if metrics.get("test_perplexity") is not None:
        notes.append(f"perplexity {metrics['test_perplexity']:.2f}")
    if metrics.get("test_accuracy") is not None:
        notes.append(f"accuracy {metrics['test_accuracy']:.1%}")
    if metrics.get("unigram_loss"):
        notes.append(f"unigram {metrics['unigram_loss']:.3f}")
    return Tile(name="Test loss", value=f"{metrics['test_loss']:.3f}", note=", ".join(notes))


def _own_metric_tile(metrics: Mapping[str, Any]) -> Tile | None:
    """Return a tile with the first metric of a user's evaluation; None without metrics.

    The tile's note has the next two metrics.
    """
    found = [(name, value) for name, value in metrics.items() if value is not None]
    if not found:
        return None
    (name, value), *others = found
    note = ", ".join(f"{other} {figure:.4g}" for other, figure in others[:2])
    return Tile(name=name, value=f"{value:.4g}", note=note)


def _cost_tile(record: RunRecord) -> Tile | None:
    cost = record.cost
    if not record.is_billed:
        return None
    total = cost.get("total_usd")
    notes = []
    if not cost.get("is_complete", True):
        notes.append("some costs are unknown" if total else cost.get("note") or "")
    if cost.get("ceiling_usd") is not None:
        notes.append(f"ceiling {format_usd(cost['ceiling_usd'])}")
    if cost.get("saved_usd"):
        notes.append(f"spot saved {format_usd(cost['saved_usd'])}")
    return Tile(name="Cost", value=format_usd(total), note=", ".join(n for n in notes if n))


def _time_tile(record: RunRecord) -> Tile | None:
    if record.wall_seconds is None:
        return None
    job = record.job_of("train")
    seconds = job.training_seconds if job else None
    note = "" if seconds is None else f"training job {format_duration(seconds)}"
    return Tile(name="Wall time", value=format_duration(record.wall_seconds), note=note)


def _throughput_tile(record: RunRecord) -> Tile | None:
    for key, unit in (("tokens_per_second", "tokens/s"), ("samples_per_second", "samples/s")):
        speeds = [y for _, y in points_of(record, "step", key)]
        if speeds:
            note = f"median; highest {format_count(max(speeds))}"
            return Tile(name="Throughput", value=format_count(median(speeds)), unit=unit, note=note)
    return None


def _steps_tile(record: RunRecord) -> Tile | None:
    steps = [int(x) for x, _ in points_of(record, "step", "loss")]
    if not steps:
        return None
    done = max([*steps, *(int(e["step"]) for e in record.history if e.get("event") == "done")])
    wanted = record.conf.get("max_steps")
    resumes = sum(event.get("event") == "resume" for event in record.history)
    notes = [f"of {wanted:,}"] if isinstance(wanted, int) else []
    notes += [f"{resumes} resume{'s' if resumes > 1 else ''}"] if resumes else []
    return Tile(name="Steps", value=f"{done:,}", note=", ".join(notes))
