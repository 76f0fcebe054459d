"""Training plan: its windows of reserved instances, and its status at a given time.

Pure. Times are epoch seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

TERMINATION_LEAD_S = 1800.0
"""The service begins to terminate running instances 30 minutes before the end of a reserved capacity."""
TRAINING = "training-job"
CURRENCY = "USD"
HOUR_S = 3600.0
_ZONES = "abcdef"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedWindow:
    """One reserved capacity of a plan; `id` is the last part of its ARN."""

    id: str
    starts_at: float
    ends_at: float

    @property
    def hours(self) -> float:
        """Return the length in hours."""
        return (self.ends_at - self.starts_at) / HOUR_S

    def status(self, now: float) -> str:
        """Return the status of the reserved capacity at `now`."""
        if now < self.starts_at:
            return "Scheduled"
        return "Active" if now < self.ends_at else "Expired"

    def takes_jobs(self, now: float) -> bool:
        """Return whether instances of this window may run at `now`."""
        return self.starts_at <= now < self.ends_at - TERMINATION_LEAD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class UltraServers:
    """The UltraServers of a plan. Each server has `instances_each` instances, of which `spare_each` are spare."""

    type: str
    count: int
    instances_each: int
    spare_each: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Instances of one type in one or more windows: an offer before it is bought, a plan afterwards.

    `fee_usd` is the price of all windows, paid up front. `instances` is the number in each window.
    """

    instance_type: str
    instances: int
    zone: str
    target_resources: tuple[str, ...]
    fee_usd: float
    windows: tuple[ReservedWindow, ...]
    ultra_servers: UltraServers | None = None

    @property
    def hours(self) -> float:
        """Return the hours of all windows together."""
        return sum(each.hours for each in self.windows)

    @property
    def usable_instances(self) -> int:
        """Return the number of instances for jobs, without the spare instances of UltraServers."""
        servers = self.ultra_servers
        return self.instances - (servers.count * servers.spare_each if servers else 0)

    def status(self, now: float) -> str:
        """Return the status: Active in a window, Scheduled before and between windows, Expired after the last."""
        statuses = {each.status(now) for each in self.windows}
        return next(each for each in ("Active", "Scheduled", "Expired") if each in statuses)

    def window_for_jobs(self, now: float) -> ReservedWindow | None:
        """Return the window whose instances a job can have at `now`, or None."""
        return next((each for each in self.windows if each.takes_jobs(now)), None)

    def has_window_after(self, now: float) -> bool:
        """Return whether a job can have instances at `now` or later."""
        return any(now < each.ends_at - TERMINATION_LEAD_S for each in self.windows)

    def extended(self, *, hours: float) -> Self:
        """Return a copy of the reservation whose last window ends `hours` later."""
        last = self.windows[-1]
        longer = replace(last, ends_at=last.ends_at + hours * HOUR_S)
        return replace(self, windows=(*self.windows[:-1], longer))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON; `from_json` reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the reservation that `to_json` wrote."""
        ultra = fields["ultra_servers"]
        lists = {
            "target_resources": tuple(fields["target_resources"]),
            "windows": tuple(ReservedWindow(**each) for each in fields["windows"]),
            "ultra_servers": UltraServers(**ultra) if ultra else None,
        }
        return cls(**{**fields, **lists})


def duration_members(hours: float) -> dict[str, int]:
    """Return DurationHours and DurationMinutes. Worked example: 47.5 hours are 47 and 30."""
    minutes = round(hours * 60)
    return {"DurationHours": minutes // 60, "DurationMinutes": minutes % 60}


def fee_text(usd: float) -> str:
    """Return an UpfrontFee: the amount in USD, rounded to two decimals. Worked example: 755.136 gives `755.14`."""
    return f"{usd:.2f}"


def zone_id(zone: str) -> str:
    """Return a made-up AvailabilityZoneId. Worked example: us-east-1b is use1-az2."""
    area, direction, number = zone[:-1].split("-")[-3:]
    return f"{area}{direction[0]}{number}-az{_ZONES.index(zone[-1]) + 1}"
