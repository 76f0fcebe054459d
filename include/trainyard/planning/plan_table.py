"""Plans as lines of text.

The lines show the ranked plans, then the first plan's memory and step time by part, and last the rejected clusters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.catalog.hardware import speeds_date
from trainyard.catalog.instances import catalogue
from trainyard.units import BYTES_PER_GIB, format_bytes, format_count, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.planning.candidates import PlanCandidate
    from trainyard.planning.plan_request import PlanRequest
    from trainyard.planning.plans import Plan, Plans, Rejection

MOST_PLANS = 10
MOST_REASONS = 12
MOST_CLUSTERS = 4
_HEADINGS = (
    "#", "cluster", "strategy", "mesh", "micro x acc", "recompute", "GiB/rank", "step s", "MFU", "comm", "scaling",
    "hours", "cost", "reason",
)  # fmt: skip


def plan_table(request: PlanRequest, plans: Plans) -> list[str]:
    """Return the lines that `make plan` and the DAG `plan_training` print."""
    shape, first = request.shape, plans.plans[0].candidate
    model = (
        f"model: {format_count(shape.num_parameters)} parameters ({shape.num_layers} layers of {shape.hidden_size}, "
        f"sequence {shape.sequence_length}, vocabulary {shape.vocab_size})"
    )
    training = (
        f"training: {format_count(request.tokens)} tokens in {request.num_steps:,.0f} steps of "
        f"{request.global_batch_size} sequences, {request.precision}"
    )
    lines = [
        model,
        training,
        "",
        *_columns([_HEADINGS, *(_row(each) for each in plans.plans[:MOST_PLANS])]),
    ]
    if len(plans.plans) > MOST_PLANS:
        lines.append(f"and {len(plans.plans) - MOST_PLANS} more that keep the limits")
    lines += ["", *_parts(first), "", *_rejected(plans.rejected), "", _sources()]
    return lines


def _row(plan: Plan) -> tuple[str, ...]:
    each = plan.candidate
    return (
        str(plan.rank),
        each.name,
        each.mesh.strategy,
        str(each.mesh),
        f"{each.batching.micro_batch_size} x {each.batching.num_micro_batches}",
        each.batching.recompute.value,
        f"{each.memory.total / BYTES_PER_GIB:.1f} of {each.usable_bytes / BYTES_PER_GIB:.1f}",
        f"{each.step.total:.3g}",
        f"{each.step.mfu:.0%}",
        f"{each.step.communication_share:.0%}",
        f"{each.step.scaling_efficiency:.0%}",
        f"{each.hours:,.1f}",
        format_usd(each.cost_usd),
        plan.reason,
    )


def _parts(first: PlanCandidate) -> Iterator[str]:
    """Yield two lines on the first plan: a rank's memory and the seconds of a step, each by part."""
    memory = {name: value for name, value in first.memory.to_dict().items() if name != "total"}
    yield "memory of a rank in plan 1: " + ", ".join(
        f"{n} {format_bytes(v)}" for n, v in memory.items()
    )
    step = first.step
    seconds = {
        "computation": step.compute,
        "pipeline bubble": step.bubble,
        "tensor-parallel communication": step.tensor,
        "data-parallel communication not hidden": step.data,
        "stage to stage": step.pipeline,
        "optimizer": step.optimizer,
    }
    yield "seconds of a step in plan 1: " + ", ".join(
        f"{n} {v:.3g}" for n, v in seconds.items() if v > 0
    )


def _rejected(rejected: Sequence[Rejection]) -> Iterator[str]:
    """Yield one line per reason, with the clusters that are rejected for it."""
    by_reason: dict[str, list[str]] = {}
    for each in rejected:
        by_reason.setdefault(each.reason, []).append(each.cluster)
    for reason, names in list(by_reason.items())[:MOST_REASONS]:
        more = f" and {len(names) - MOST_CLUSTERS} more" if len(names) > MOST_CLUSTERS else ""
        yield f"out: {', '.join(names[:MOST_CLUSTERS])}{more}: {reason}"
    if len(by_reason) > MOST_REASONS:
        yield f"out for {len(by_reason) - MOST_REASONS} more reasons; name instance_types to see them"


def _sources() -> str:
    prices = catalogue()
    return (
        f"Modeled, not measured. Speeds of {speeds_date()}, prices of {prices.date} in {prices.region}, on demand; "
        "formulas and their comparison with published figures: docs/distribution.md."
    )


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows with aligned columns; the last column is not padded."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
