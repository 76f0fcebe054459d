"""Catalogue of reservable instances, and the offers that a search finds in it.

PUT /_engine/training-plans replaces it (docs/faults.md).
"""

from __future__ import annotations

import math
import uuid
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sagemaker_engine.plans.plan import (
    HOUR_S,
    Reservation,
    ReservedWindow,
    UltraServers,
)
from sagemaker_engine.wire.model import load_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LEAD_S = 1800.0
"""Seconds between a search and the earliest start of an offer ("as soon as 30 minutes from now")."""
DAY_H = 24
MOST_DAYS = 182
COUNTS = (1, 2, 4, 8, 16, 32, 64)
SPLIT_DISCOUNT = 0.05
"""Share of the price by which the engine makes an offer of two windows cheaper than one of a single window."""
_DAY_ENDS = (11, 30)
"""Hour and minute (UTC) at which reservations begin and end."""
_LATER_STARTS_DAYS = (0, 1, 7)
_EXTENSION_DAYS = (*range(1, 15), *range(21, MOST_DAYS + 1, 7))


class CatalogueError(ValueError):
    """A malformed document of training plans; the message states the field, its value and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservableType:
    """One instance type of the catalogue.

    - `usd_per_hour`: price of one instance.
    - `counts`: numbers of instances that can be reserved.
    - `ultra_servers`: UltraServer type -> number of its instances; None for an instance type without UltraServers.
    """

    instance_type: str
    usd_per_hour: float
    counts: tuple[int, ...] = COUNTS
    ultra_servers: Mapping[str, int] | None = None


DEFAULT_CATALOGUE = (
    ReservableType(instance_type="ml.p4d.24xlarge", usd_per_hour=11.80),
    ReservableType(instance_type="ml.p4de.24xlarge", usd_per_hour=14.75),
    ReservableType(instance_type="ml.p5.4xlarge", usd_per_hour=3.93),
    ReservableType(instance_type="ml.p5.48xlarge", usd_per_hour=31.46),
    ReservableType(instance_type="ml.p5e.48xlarge", usd_per_hour=34.61),
    ReservableType(instance_type="ml.p5en.48xlarge", usd_per_hour=36.18),
    ReservableType(instance_type="ml.p6-b200.48xlarge", usd_per_hour=74.88),
    ReservableType(instance_type="ml.p6-b300.48xlarge", usd_per_hour=93.60),
    ReservableType(instance_type="ml.trn1.32xlarge", usd_per_hour=9.53),
    ReservableType(instance_type="ml.trn2.48xlarge", usd_per_hour=35.76),
    ReservableType(
        instance_type="ml.p6e-gb200.36xlarge",
        usd_per_hour=42.34,
        counts=(),
        ultra_servers={"ml.u-p6e-gb200x36": 9, "ml.u-p6e-gb200x72": 18},
    ),
)
"""Prices close to those of AWS in 2025; they are not a price list."""


def read_catalogue(document: object) -> tuple[ReservableType, ...]:
    """Return the catalogue that a JSON document describes: a list of instance types.

    Raises:
        CatalogueError: The document is malformed.
    """
    known = {each.name for each in fields(ReservableType)}
    if not isinstance(document, list) or not all(isinstance(each, dict) for each in document):
        raise CatalogueError(
            f"catalogue: got {document!r}; write a list of objects with {', '.join(sorted(known))}"
        )
    return tuple(_read_type(each, index, known) for index, each in enumerate(document))


def _read_type(entry: dict[str, Any], index: int, known: set[str]) -> ReservableType:
    where = f"catalogue[{index}]"
    if unknown := sorted(set(entry) - known):
        raise CatalogueError(
            f"{where}: got the unknown keys {', '.join(unknown)}; allowed: {', '.join(sorted(known))}"
        )
    types = load_model("sagemaker").shapes["ReservedCapacityInstanceType"]["enum"]
    if entry.get("instance_type") not in types:
        raise CatalogueError(
            f"{where}.instance_type: got {entry.get('instance_type')!r}; allowed: {', '.join(types)}"
        )
    price = entry.get("usd_per_hour")
    if not is_amount(price):
        raise CatalogueError(f"{where}.usd_per_hour: got {price!r}; write a number of 0 or more")
    counts = entry.get("counts", list(COUNTS))
    if not isinstance(counts, list) or not all(map(_is_count, counts)):
        raise CatalogueError(
            f"{where}.counts: got {counts!r}; write a list of whole numbers of 1 or more"
        )
    servers = entry.get("ultra_servers")
    if servers is not None and not (
        isinstance(servers, dict) and all(map(_is_count, servers.values()))
    ):
        raise CatalogueError(
            f"{where}.ultra_servers: got {servers!r}; write an object that maps each UltraServer type to its "
            "number of instances, a whole number of 1 or more"
        )
    return ReservableType(**{**entry, "counts": tuple(counts)})


def is_amount(value: object) -> bool:
    """Return whether a JSON value is a finite number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < math.inf


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def as_json(catalogue: Sequence[ReservableType]) -> list[dict[str, Any]]:
    """Return a catalogue in the form that `read_catalogue` reads."""
    return [asdict(each) for each in catalogue]


def search(
    catalogue: Sequence[ReservableType], request: Mapping[str, Any], *, region: str, now: float
) -> list[Reservation]:
    """Return the offers for a search: offers with one window, earliest first, then at most one offer with two windows.

    Reservations begin and end at 11:30 UTC and last whole days: a request for 30 hours gets two days.

    Args:
        catalogue: The reservable types.
        request: Members of SearchTrainingPlanOfferings with times in epoch seconds.
        region: Region of the zones.
        now: The current time, epoch seconds.
    """
    kind = next((each for each in catalogue if _matches(each, request)), None)
    days = -(-int(request.get("DurationHours", DAY_H)) // DAY_H)
    if kind is None or days > MOST_DAYS:
        return []
    first = _next_start(max(now + LEAD_S, request.get("StartTimeAfter", 0.0)))
    latest = request.get("EndTimeBefore", float("inf"))
    found = [
        _offer(kind, request, region, [(start, days)])
        for later in _LATER_STARTS_DAYS
        if (start := first + later * DAY_H * HOUR_S) + days * DAY_H * HOUR_S <= latest
    ]
    if days > 1:  # Two windows with a free day between them.
        half = days // 2
        second = first + (half + 1) * DAY_H * HOUR_S
        if second + (days - half) * DAY_H * HOUR_S <= latest:
            found.append(_offer(kind, request, region, [(first, half), (second, days - half)]))
    return found


def extension_days(request: Mapping[str, Any]) -> Sequence[int]:
    """Return the lengths in days of the extensions on offer.

    If the request has DurationHours, only the extension of exactly that length is on offer.
    """
    hours = request.get("DurationHours")
    return [each for each in _EXTENSION_DAYS if hours is None or each * DAY_H == hours]


def price_of(catalogue: Sequence[ReservableType], instance_type: str) -> float | None:
    """Return the price of one instance per hour in USD; None for a type that is not in the catalogue."""
    return next(
        (each.usd_per_hour for each in catalogue if each.instance_type == instance_type), None
    )


def _matches(kind: ReservableType, request: Mapping[str, Any]) -> bool:
    if "UltraServerType" in request:
        return request["UltraServerType"] in (kind.ultra_servers or {})
    return (
        kind.instance_type == request.get("InstanceType")
        and request.get("InstanceCount", 1) in kind.counts
    )


def _offer(
    kind: ReservableType,
    request: Mapping[str, Any],
    region: str,
    spans: Sequence[tuple[float, int]],
) -> Reservation:
    servers = _servers(kind, request)
    instances = (
        servers.count * servers.instances_each if servers else request.get("InstanceCount", 1)
    )
    hours = sum(days for _, days in spans) * DAY_H
    discount = SPLIT_DISCOUNT if len(spans) > 1 else 0.0
    return Reservation(
        instance_type=kind.instance_type,
        instances=instances,
        zone=f"{region}a",
        target_resources=tuple(request.get("TargetResources", ("training-job",))),
        fee_usd=round(kind.usd_per_hour * instances * hours * (1 - discount), 2),
        windows=tuple(_windows(spans)),
        ultra_servers=servers,
    )


def _windows(spans: Sequence[tuple[float, int]]) -> Iterator[ReservedWindow]:
    for start, days in spans:
        end = start + days * DAY_H * HOUR_S
        yield ReservedWindow(id=f"rc-{uuid.uuid4().hex[:16]}", starts_at=start, ends_at=end)


def _servers(kind: ReservableType, request: Mapping[str, Any]) -> UltraServers | None:
    name = request.get("UltraServerType")
    if name is None:
        return None
    return UltraServers(
        type=name,
        count=request.get("UltraServerCount", 1),
        instances_each=(kind.ultra_servers or {})[name],
    )


def _next_start(earliest: float) -> float:
    """Return the first 11:30 UTC at or after `earliest`, epoch seconds."""
    moment = datetime.fromtimestamp(earliest, tz=UTC)
    hour, minute = _DAY_ENDS
    start = moment.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (start if start >= moment else start + timedelta(days=1)).timestamp()
