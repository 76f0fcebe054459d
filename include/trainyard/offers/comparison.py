"""Costs of a training in training plans, on spot and on demand. Pure; times are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard.planning.estimate.run_estimate import SPOT_SAVED
from trainyard.sagemaker_api.training_plan import TERMINATION_LEAD_S
from trainyard.units import SECONDS_PER_HOUR, format_duration, format_usd, format_utc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOffer:
    """An offer of SearchTrainingPlanOfferings.

    Attributes:
        windows: start and end of each window of reserved capacity.
        fee_usd: upfront fee for all windows; None if the offer has no fee in USD.
    """

    id: str
    windows: tuple[tuple[float, float], ...]
    fee_usd: float | None

    @classmethod
    def from_wire(cls, offer: Mapping[str, Any]) -> Self:
        """Build the offer from an element of `TrainingPlanOfferings`."""
        is_usd = offer.get("CurrencyCode", "USD") == "USD" and "UpfrontFee" in offer
        return cls(
            id=offer["TrainingPlanOfferingId"],
            windows=tuple(
                (each["StartTime"].timestamp(), each["EndTime"].timestamp())
                for each in offer.get("ReservedCapacityOfferings", ())
            ),
            fee_usd=float(offer["UpfrontFee"]) if is_usd else None,
        )

    @property
    def usable_hours(self) -> float:
        """Hours in which jobs can run: the service ends them 30 minutes before the end of a window."""
        return (
            sum(end - start - TERMINATION_LEAD_S for start, end in self.windows) / SECONDS_PER_HOUR
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChoice:
    """One way to get the instances: its cost for the planned hours, and remarks.

    `cost_usd` is None if the price is unknown. A plan costs its whole fee.
    """

    name: str
    cost_usd: float | None
    remark: str


def compare(
    offers: Sequence[PlanOffer],
    *,
    hours: float,
    instance_count: int,
    price_usd_per_hour: float | None,
) -> tuple[CapacityChoice, ...]:
    """Return the choices for a training: on demand, spot and each plan offer, in this order.

    Spot is assumed to save SPOT_SAVED (60 %).

    Worked: 40 hours on 2 instances at 30 USD/h: 2,400 USD on demand, 960 USD on spot.

    Args:
        offers: the service's offers.
        hours: planned hours of the training.
        instance_count: number of instances.
        price_usd_per_hour: on-demand price of one instance; None if unknown.
    """
    price = price_usd_per_hour
    demand = None if price is None else price * instance_count * hours
    spot = None if demand is None else demand * (1 - SPOT_SAVED)
    return (
        CapacityChoice(name="on demand", cost_usd=demand, remark="when there is capacity"),
        CapacityChoice(
            name="spot",
            cost_usd=spot,
            remark=f"assuming {SPOT_SAVED:.0%} off and no interruptions; when there is capacity",
        ),
        *(
            CapacityChoice(
                name=f"plan {each.id}", cost_usd=each.fee_usd, remark=_remark(each, hours)
            )
            for each in offers
        ),
    )


def table(choices: Sequence[CapacityChoice]) -> Iterator[str]:
    """Yield the lines of a table of choices."""
    width = max(len(each.name) for each in choices)
    for each in choices:
        cost = "unknown price" if each.cost_usd is None else format_usd(each.cost_usd)
        yield f"{each.name:<{width}}  {cost:>13}  {each.remark}"


def _remark(offer: PlanOffer, hours: float) -> str:
    windows = " and ".join(
        f"{format_utc(start)} to {format_utc(end)}" for start, end in offer.windows
    )
    usable = f"{format_duration(offer.usable_hours * SECONDS_PER_HOUR)} usable"
    is_short = offer.usable_hours < hours
    return f"{windows} UTC, {usable}{', too short' if is_short else ''}"
