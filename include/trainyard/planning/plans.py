"""Ranked plans for a training, and rejected clusters, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import Hardware, hardware
from trainyard.errors import Finding, PlanError
from trainyard.planning.activations import Recompute
from trainyard.planning.candidates import PlanCandidate, candidates
from trainyard.planning.compute import Cluster
from trainyard.units import format_bytes, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainyard.planning.plan_request import PlanRequest

AS_FAST = 1.10
"""Per cluster, the planner chooses the simplest layout with a step time of at most this multiple of the lowest one.
Modeled step times are not more exact (tests/planning/test_published.py)."""
AS_CHEAP = 1.05
"""The first plan has the fewest instances of all plans with a cost (or time) of at most this multiple of the lowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A candidate within all limits, its rank (1 = best), and the reason for its rank and layout."""

    rank: int
    candidate: PlanCandidate
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-safe data."""
        return {"rank": self.rank, "reason": self.reason, **self.candidate.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A cluster without a valid plan, and the reason."""

    cluster: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """All plans, best first, and all rejected clusters."""

    plans: tuple[Plan, ...]
    rejected: tuple[Rejection, ...]

    def to_dict(self, *, most: int = 10) -> dict[str, Any]:
        """Return the first `most` plans and all rejections as JSON-safe data."""
        return {
            "plans": [each.to_dict() for each in self.plans[:most]],
            "num_plans": len(self.plans),
            "rejected": [
                {"cluster": each.cluster, "reason": each.reason} for each in self.rejected
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Best candidate plan for one cluster, and the reason for the candidate's layout."""

    candidate: PlanCandidate
    layout: str


def _anything(_: PlanCandidate) -> bool:
    return True


def make_plans(
    request: PlanRequest, *, allowed: Callable[[PlanCandidate], bool] = _anything, since: str = ""
) -> Plans:
    """Return the best allowed candidate per cluster, ranked.

    - With a deadline, the cheapest plan that meets it is first.
    - With a budget and no deadline, the fastest plan within it is first.
    - Otherwise the cheapest plan is first.
    - Among plans within 5 % of the best, the first is the one with the fewest instances, then the simplest parallelism.

    Args:
        request: the training.
        allowed: returns whether a candidate may be chosen.
        since: the reason why other candidates are not allowed, for the texts of plans and rejections.

    Raises:
        PlanError: there is no plan; the findings have the reason per cluster.
    """
    kept: list[_Choice] = []
    rejected: list[Rejection] = []
    for cluster in clusters(request):
        found = _best_of_cluster(request, cluster, allowed=allowed, since=since)
        if isinstance(found, _Choice):
            kept.append(found)
        else:
            rejected.append(found)
    if not kept:
        raise PlanError(
            [Finding(where=each.cluster, what=each.reason) for each in rejected], subject="plan"
        )
    return Plans(plans=tuple(_ranked(request, kept)), rejected=tuple(rejected))


def clusters(request: PlanRequest) -> Iterator[Cluster]:
    """Yield the clusters to choose from: one instance of every type, and several of the largest type of each family.

    Several smaller instances are not tried, because one larger instance has the same accelerators without a network.
    If the request has an `instance_count`, only that number of instances is tried for each type.
    """
    known = hardware()
    chosen = [known[name] for name in request.instance_types] or list(known.values())
    for each in chosen:
        counts = [1]
        if request.instance_count is not None:
            counts = [request.instance_count]
        elif _is_largest(each):
            counts += [count for count in _powers_of_two(request.max_instances) if count > 1]
        yield from (Cluster(hardware=each, instance_count=count) for count in counts)


def _is_largest(one: Hardware) -> bool:
    family = one.instance.name.split(".")[1]
    kin = [each for name, each in hardware().items() if name.split(".")[1] == family]
    most = max((each.instance.num_accelerators, each.network_gbps) for each in kin)
    return (one.instance.num_accelerators, one.network_gbps) == most


def _powers_of_two(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def _best_of_cluster(
    request: PlanRequest, cluster: Cluster, *, allowed: Callable[[PlanCandidate], bool], since: str
) -> _Choice | Rejection:
    """Return the best allowed candidate that fits into the cluster, or the reason why the cluster is rejected.

    The best is the simplest candidate with a step time of at most AS_FAST times the lowest one.
    """
    instance = cluster.hardware.instance
    name = f"{cluster.instance_count} x {instance.name}"
    if cluster.hardware.peak_tflops(request.precision) is None:
        return Rejection(
            cluster=name,
            reason=f"{instance.accelerator} has no {request.precision} in its hardware",
        )
    if cluster.instance_count > 1 and not instance.has_efa:
        return Rejection(
            cluster=name, reason="the type has no EFA, which a cluster of several instances needs"
        )
    possible = list(candidates(request, cluster))
    every = [each for each in possible if allowed(each)]
    fitting = [each for each in every if each.fits]
    if not every:
        return Rejection(
            cluster=name,
            reason=f"a global batch of {request.global_batch_size} cannot be divided evenly over "
            f"{cluster.num_ranks} ranks{f', and {since}' if possible else ''}",
        )
    if not fitting:
        return Rejection(cluster=name, reason=_too_large(every))
    best_s = min(each.step.total for each in fitting)
    near = [each for each in fitting if each.step.total <= AS_FAST * best_s]
    best = min(near, key=_simplicity)
    broken = _broken_limit(request, best)
    if broken:
        return Rejection(cluster=name, reason=broken)
    refused = [each for each in possible if each.fits and not allowed(each)]
    layout = _why_layout(best, fitting, refused, fastest_s=best_s, since=since)
    return _Choice(candidate=best, layout=layout)


def _simplicity(each: PlanCandidate) -> tuple[int, int, int, int, float]:
    """Return the sort key by simplicity.

    The members are, in this order: complexity of the mesh (kinds of parallelism), tp x pp, recomputation, micro
    batch size (larger first), and seconds per step. Larger micro batches use the hardware better, which the
    model of a step's time does not include. With pipeline stages, the micro batch size is ignored, because many
    micro batches make the bubble smaller.
    """
    recomputed = list(Recompute).index(each.batching.recompute)
    return (
        each.mesh.complexity,
        each.mesh.tp * each.mesh.pp,
        recomputed,
        -each.batching.micro_batch_size if each.mesh.pp == 1 else 0,
        each.step.total,
    )


def _too_large(every: list[PlanCandidate]) -> str:
    in_steps = [each for each in every if each.memory.total <= each.usable_bytes]
    if in_steps:
        nearest = min(in_steps, key=lambda each: each.worst.num_bytes - each.worst.usable_bytes)
        return f"fits only during the steps: {nearest.worst}, with {nearest.mesh}"
    least = min(every, key=lambda each: each.memory.total)
    states = least.memory.parameters + least.memory.gradients + least.memory.optimizer
    return (
        f"cannot hold the model, because each accelerator has {format_bytes(least.usable_bytes)} but needs at least "
        f"{format_bytes(least.memory.total)} ({format_bytes(states)} of it for weights, gradients and optimizer state; "
        f"{least.mesh}, recompute {least.batching.recompute})"
    )


def _broken_limit(request: PlanRequest, best: PlanCandidate) -> str | None:
    """Return why a cluster's best layout misses the deadline or the budget; None if it meets both."""
    if request.deadline_h is not None and best.hours > request.deadline_h:
        return f"takes {best.hours:,.1f} h, and the deadline is {request.deadline_h:,.1f} h"
    if request.budget_usd is None:
        return None
    if best.cost_usd is None:
        return "its price is not in the catalogue, so the budget cannot be checked"
    if best.cost_usd > request.budget_usd:
        return (
            f"costs {format_usd(best.cost_usd)}, and the budget is {format_usd(request.budget_usd)}"
        )
    return None


def _ranked(request: PlanRequest, kept: list[_Choice]) -> Iterator[Plan]:
    is_by_time = request.budget_usd is not None and request.deadline_h is None

    def worth(each: _Choice) -> float:
        one = each.candidate
        if is_by_time:
            return one.hours
        return float("inf") if one.cost_usd is None else one.cost_usd

    ordered = sorted(kept, key=lambda each: (worth(each), each.candidate.hours))
    near = [each for each in ordered if worth(each) <= AS_CHEAP * worth(ordered[0])]
    first = min(near, key=lambda each: (*_fewest(each.candidate), worth(each)))
    why = _why_first(request, first.candidate, is_by_time=is_by_time)
    yield Plan(rank=1, candidate=first.candidate, reason=f"{why}; {first.layout}")
    others = (each for each in ordered if each is not first)
    for rank, each in enumerate(others, 2):
        why = _against(each.candidate, first.candidate, is_by_time=is_by_time)
        yield Plan(rank=rank, candidate=each.candidate, reason=f"{why}; {each.layout}")


def _fewest(each: PlanCandidate) -> tuple[int, int]:
    return each.cluster.instance_count, each.mesh.complexity


def _why_first(request: PlanRequest, first: PlanCandidate, *, is_by_time: bool) -> str:
    if is_by_time:
        return f"fastest within {format_usd(request.budget_usd)}"
    unpriced = " of unknown price" if first.cost_usd is None else ""
    if request.deadline_h is not None:
        return f"cheapest{unpriced} within {request.deadline_h:,.1f} h"
    return f"cheapest{unpriced}"


def _against(each: PlanCandidate, first: PlanCandidate, *, is_by_time: bool) -> str:
    """Return time and cost of a plan relative to the first plan's, in words."""
    if is_by_time:
        return f"{each.hours / first.hours:.2f} x the time"
    if each.cost_usd is None or first.cost_usd is None:
        return "its price is not in the catalogue"
    return f"{each.cost_usd / first.cost_usd:.2f} x the cost, {each.hours / first.hours:.2f} x the time"


def _why_layout(
    best: PlanCandidate,
    fitting: list[PlanCandidate],
    refused: list[PlanCandidate],
    *,
    fastest_s: float,
    since: str,
) -> str:
    """Return the reason for the layout of the best plan on a cluster.

    The layout is compared with simpler ones that fit into memory. The request allows some of them (`fitting`)
    and does not allow others (`refused`, for the reason `since`).
    """
    mesh = best.mesh
    if mesh.num_ranks == 1:
        return "one accelerator holds it"
    if mesh.strategy == "ddp":
        return "each accelerator holds the whole model, so data parallel"
    simpler = [each for each in fitting if each.mesh.complexity < mesh.complexity]
    if simpler:
        fastest = min(simpler, key=lambda each: each.step.total)
        times = fastest.step.total / fastest_s
        return f"{mesh.strategy}, since {fastest.mesh.strategy} takes {times:.2f} x the time of the fastest"
    if any(each.mesh.complexity < mesh.complexity for each in refused):
        return f"{mesh.strategy}, since {since}"
    states = 16 * best.shape.num_parameters
    return (
        f"{mesh.strategy}, since nothing simpler fits: weights, gradients and optimizer state alone are "
        f"{format_bytes(states)}, and an accelerator holds {format_bytes(best.usable_bytes)}"
    )
