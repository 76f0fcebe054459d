"""Operations on training plans: search of offers, purchase, extension, and descriptions.

A plan is paid at once, so it is never Pending or Failed. Plans run on a clock of their own, which can be
ahead of the clients' clocks (see `plans.clock`). Times in requests and responses are those of the clients'
clocks.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sagemaker_engine.plans.catalogue import (
    DAY_H,
    extension_days,
    price_of,
    search,
)
from sagemaker_engine.plans.plan import (
    CURRENCY,
    HOUR_S,
    Reservation,
    duration_members,
    fee_text,
    zone_id,
)
from sagemaker_engine.plans.tables import (
    MissingPlanError,
    PlanNameTakenError,
    StoredPlan,
)
from sagemaker_engine.wire.errors import (
    ResourceInUseError,
    ResourceNotFoundError,
    ValidationError,
)
from sagemaker_engine.wire.paging import page_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.plans.clock import PlanClock
    from sagemaker_engine.plans.plan import ReservedWindow
    from sagemaker_engine.plans.tables import PlanTables
    from sagemaker_engine.wire.json_service import Call, Handler

KIND, CAPACITY_KIND = "training-plan", "reserved-capacity"
_OFFER_LASTS_S = 24 * HOUR_S
_EXTENSION_LEAD_S = HOUR_S
"""An extension can be bought from 56 days until one hour before the end of the plan."""
_EXTENSION_EARLIEST_S = 56 * 24 * HOUR_S
_PAID = "Completed"


@dataclass(frozen=True, slots=True)
class TrainingPlans:
    """Handlers of the operations on training plans and their reserved capacities."""

    context: ApiContext

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "SearchTrainingPlanOfferings": self.search,
            "CreateTrainingPlan": self.create,
            "DescribeTrainingPlan": self.describe,
            "ListTrainingPlans": self.list,
            "ExtendTrainingPlan": self.extend,
            "DescribeTrainingPlanExtensionHistory": self.extensions,
            "DescribeReservedCapacity": self.describe_capacity,
            "ListUltraServersByReservedCapacity": self.list_ultra_servers,
        }

    def search(self, call: Call) -> dict[str, Any]:
        """Return the offers for a request, or the possible extensions of the plan that it names.

        Raises:
            ValidationError: A request without a plan has contradictory times, or it does not have
                exactly one of InstanceType and UltraServerType.
            ResourceNotFoundError: The plan does not exist.
        """
        request = call.request
        if "TrainingPlanArn" in request:
            plan = self._plan(request["TrainingPlanArn"])
            found = [
                self._offer_extension(plan, days) for days in self._extension_days(plan, request)
            ]
            return {"TrainingPlanOfferings": [], "TrainingPlanExtensionOfferings": found}
        _check_search(request)
        ahead = self._clock.ahead_s()
        times = ("StartTimeAfter", "EndTimeBefore")
        moved = {key: value + ahead if key in times else value for key, value in request.items()}
        offers = search(self._clock.catalogue(), moved, region=call.region, now=self._clock.now())
        return {"TrainingPlanOfferings": [self._offer(each, request) for each in offers]}

    def create(self, call: Call) -> dict[str, Any]:
        """Buy an offer. It can be bought once, and not after its start.

        Raises:
            ResourceNotFoundError: The offer does not exist, or can no longer be bought.
            ResourceInUseError: A plan with this name exists.
            ValidationError: Spare instances are given for a plan without UltraServers, or are too many.
        """
        name, offer_id = call.request["TrainingPlanName"], call.request["TrainingPlanOfferingId"]
        now = self._clock.now()
        offer = self._tables.offer(offer_id, now=now)
        if offer is None or "windows" not in offer:
            raise ResourceNotFoundError(_no_offer(offer_id))
        arn = self.context.arn(call.region, KIND, name)
        reservation = _with_spares(Reservation.from_json(offer), call.request)
        plan = StoredPlan(arn=arn, name=name, reservation=reservation)
        tags = {tag["Key"]: tag["Value"] for tag in call.request.get("Tags", [])}
        try:
            is_bought = self._tables.buy(offer_id, plan, tags=tags, at=now)
        except PlanNameTakenError as error:
            raise ResourceInUseError(
                f"A training plan with this name already exists ({arn})"
            ) from error
        if not is_bought:
            raise ResourceNotFoundError(_no_offer(offer_id))
        return {"TrainingPlanArn": arn}

    def describe(self, call: Call) -> dict[str, Any]:
        """Return a plan by name or ARN.

        Raises:
            ResourceNotFoundError: The plan does not exist.
        """
        given = call.request["TrainingPlanName"]
        arn = given if given.startswith("arn:") else self.context.arn(call.region, KIND, given)
        plan = self._plan(arn)
        servers = plan.reservation.ultra_servers
        spare = (
            {"AvailableSpareInstanceCount": servers.count * servers.spare_each} if servers else {}
        )
        return {**self._summary(plan, call.region), "UnhealthyInstanceCount": 0, **spare}

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of plans; by default the plan with the latest start is first."""
        request = call.request
        plans = self._tables.all(arn_prefix=self.context.arn(call.region, KIND, ""))
        summaries = [self._summary(each, call.region) for each in plans]
        kept = [each for each in summaries if _is_listed(each, request)]
        key = request.get("SortBy", "StartTime")
        is_descending = request.get("SortOrder", "Descending") == "Descending"
        kept.sort(key=lambda each: (each[key], each["TrainingPlanName"]), reverse=is_descending)
        page, token = page_of(kept, request)
        return {"TrainingPlanSummaries": page, "NextToken": token}

    def extend(self, call: Call) -> dict[str, Any]:
        """Buy an extension, which moves the end of the plan's last window.

        Raises:
            ResourceNotFoundError: The offer does not exist, can no longer be bought, or predates a change of the plan.
        """
        offer_id = call.request["TrainingPlanExtensionOfferingId"]
        now = self._clock.now()
        offer = self._tables.offer(offer_id, now=now)
        if offer is None or "extends" not in offer:
            raise ResourceNotFoundError(_no_offer(offer_id))
        extension = {**offer["extension"], "ExtendedAt": now}

        def longer(plan: StoredPlan) -> StoredPlan:
            if plan.reservation.windows[-1].ends_at != extension["StartDate"]:
                raise ResourceNotFoundError(_no_offer(offer_id))
            hours = extension["DurationHours"]
            return replace(
                plan,
                reservation=plan.reservation.extended(hours=hours),
                extensions=(*plan.extensions, extension),
            )

        plan = self._tables.extend(offer_id, offer["extends"], longer)
        if plan is None:
            raise ResourceNotFoundError(_no_offer(offer_id))
        return {"TrainingPlanExtensions": list(self._extensions(plan))}

    def extensions(self, call: Call) -> dict[str, Any]:
        """Return one page of a plan's extensions, oldest first.

        Raises:
            ResourceNotFoundError: The plan does not exist.
        """
        found = list(self._extensions(self._plan(call.request["TrainingPlanArn"])))
        page, token = page_of(found, call.request)
        return {"TrainingPlanExtensions": page, "NextToken": token}

    def describe_capacity(self, call: Call) -> dict[str, Any]:
        """Return a reserved capacity of a plan.

        Raises:
            ResourceNotFoundError: The reserved capacity does not exist.
        """
        plan, window = self._capacity(call)
        found = plan.reservation
        members = self._window_members(plan.reservation, window, call.region)
        used = self._tables.in_use(plan.arn) if members["Status"] == "Active" else 0
        free = found.usable_instances - used if members["Status"] == "Active" else 0
        counts = {"AvailableInstanceCount": free, "InUseInstanceCount": used}
        for name in ("AvailabilityZoneId", "UltraServerType", "UltraServerCount"):
            members.pop(name, None)
        servers = found.ultra_servers
        if servers is None:
            return {**members, **counts}
        summary = {
            "UltraServerType": servers.type,
            "InstanceType": found.instance_type,
            "UltraServerCount": servers.count,
            "AvailableSpareInstanceCount": servers.count * servers.spare_each,
            "UnhealthyInstanceCount": 0,
        }
        return {**members, **counts, "UltraServerSummary": summary}

    def list_ultra_servers(self, call: Call) -> dict[str, Any]:
        """Return one page of the UltraServers of a reserved capacity; empty if it consists of single instances.

        The engine attributes the instances in use to the first servers.
        """
        plan, window = self._capacity(call)
        is_active = window.status(self._clock.now()) == "Active"
        used = self._tables.in_use(plan.arn) if is_active else 0
        page, token = page_of(list(_servers(plan.reservation, window, used)), call.request)
        return {"UltraServers": page, "NextToken": token}

    @property
    def _tables(self) -> PlanTables:
        return self.context.plans

    @property
    def _clock(self) -> PlanClock:
        return self.context.plan_clock

    def _plan(self, arn: str) -> StoredPlan:
        try:
            return self._tables.get(arn)
        except MissingPlanError as error:
            raise ResourceNotFoundError(f"Could not find training plan {arn}.") from error

    def _capacity(self, call: Call) -> tuple[StoredPlan, ReservedWindow]:
        arn = call.request["ReservedCapacityArn"]
        for plan in self._tables.all(arn_prefix=self.context.arn(call.region, KIND, "")):
            for window in plan.reservation.windows:
                if self.context.arn(call.region, CAPACITY_KIND, window.id) == arn:
                    return plan, window
        raise ResourceNotFoundError(f"Could not find reserved capacity {arn}.")

    def _offer(self, offer: Reservation, request: Mapping[str, Any]) -> dict[str, Any]:
        offer_id = f"tpo-{uuid.uuid4().hex}"
        now = self._clock.now()
        expires_at = min(now + _OFFER_LASTS_S, offer.windows[0].starts_at)
        self._tables.add_offer(offer_id, offer.to_json(), expires_at=expires_at)
        asked = {
            f"Requested{key}": request[key]
            for key in ("StartTimeAfter", "EndTimeBefore")
            if key in request
        }
        windows = [
            {
                **_type_members(offer),
                "InstanceType": offer.instance_type,
                "InstanceCount": offer.instances,
                "AvailabilityZone": offer.zone,
                **duration_members(each.hours),
                **self._times(each),
            }
            for each in offer.windows
        ]
        return {
            "TrainingPlanOfferingId": offer_id,
            "TargetResources": list(offer.target_resources),
            **asked,
            **duration_members(offer.hours),
            "UpfrontFee": fee_text(offer.fee_usd),
            "CurrencyCode": CURRENCY,
            "ReservedCapacityOfferings": windows,
        }

    def _extension_days(self, plan: StoredPlan, request: Mapping[str, Any]) -> Sequence[int]:
        left_s = plan.reservation.windows[-1].ends_at - self._clock.now()
        is_open = _EXTENSION_LEAD_S <= left_s <= _EXTENSION_EARLIEST_S
        return extension_days(request) if is_open else ()

    def _offer_extension(self, plan: StoredPlan, days: int) -> dict[str, Any]:
        offer_id, found = f"tpeo-{uuid.uuid4().hex}", plan.reservation
        starts_at, now = found.windows[-1].ends_at, self._clock.now()
        price = price_of(self._clock.catalogue(), found.instance_type) or 0.0
        extension = {
            "TrainingPlanExtensionOfferingId": offer_id,
            "StartDate": starts_at,
            "EndDate": starts_at + days * DAY_H * HOUR_S,
            "AvailabilityZone": found.zone,
            "DurationHours": days * DAY_H,
            "UpfrontFee": fee_text(price * found.instances * days * DAY_H),
            "CurrencyCode": CURRENCY,
        }
        self._tables.add_offer(
            offer_id,
            {"extends": plan.arn, "extension": extension},
            expires_at=min(now + _OFFER_LASTS_S, starts_at - _EXTENSION_LEAD_S),
        )
        return self._in_clients_time(extension)

    def _extensions(self, plan: StoredPlan) -> Iterator[dict[str, Any]]:
        now = self._clock.now()
        for each in plan.extensions:
            is_active = each["StartDate"] <= now
            status = "Expired" if each["EndDate"] <= now else "Active" if is_active else "Scheduled"
            yield {
                **self._in_clients_time(each),
                "Status": status,
                "PaymentStatus": _PAID,
                "AvailabilityZoneId": zone_id(each["AvailabilityZone"]),
            }

    def _in_clients_time(self, extension: Mapping[str, Any]) -> dict[str, Any]:
        ahead, names = self._clock.ahead_s(), ("StartDate", "EndDate", "ExtendedAt")
        return {key: value - ahead if key in names else value for key, value in extension.items()}

    def _times(self, window: ReservedWindow) -> dict[str, float]:
        ahead = self._clock.ahead_s()
        return {"StartTime": window.starts_at - ahead, "EndTime": window.ends_at - ahead}

    def _window_members(
        self, found: Reservation, window: ReservedWindow, region: str
    ) -> dict[str, Any]:
        return {
            "ReservedCapacityArn": self.context.arn(region, CAPACITY_KIND, window.id),
            **_type_members(found),
            "InstanceType": found.instance_type,
            "TotalInstanceCount": found.instances,
            "Status": window.status(self._clock.now()),
            "AvailabilityZone": found.zone,
            "AvailabilityZoneId": zone_id(found.zone),
            **duration_members(window.hours),
            **self._times(window),
        }

    def _summary(self, plan: StoredPlan, region: str) -> dict[str, Any]:
        found, now = plan.reservation, self._clock.now()
        status = found.status(now)
        used = self._tables.in_use(plan.arn) if status == "Active" else 0
        servers = (
            {"TotalUltraServerCount": found.ultra_servers.count} if found.ultra_servers else {}
        )
        return {
            "TrainingPlanArn": plan.arn,
            "TrainingPlanName": plan.name,
            "Status": status,
            **duration_members(found.hours),
            "StartTime": self._times(found.windows[0])["StartTime"],
            "EndTime": self._times(found.windows[-1])["EndTime"],
            "UpfrontFee": fee_text(found.fee_usd),
            "CurrencyCode": CURRENCY,
            "TotalInstanceCount": found.instances,
            "AvailableInstanceCount": found.usable_instances - used if status == "Active" else 0,
            "InUseInstanceCount": used,
            **servers,
            "TargetResources": list(found.target_resources),
            "ReservedCapacitySummaries": [
                self._window_members(found, each, region) for each in found.windows
            ],
        }


def _check_search(request: Mapping[str, Any]) -> None:
    given = [key for key in ("InstanceType", "UltraServerType") if key in request]
    if len(given) != 1:
        raise ValidationError(
            "You must provide exactly one of InstanceType and UltraServerType, or a TrainingPlanArn; got "
            f"{' and '.join(given) or 'none'}."
        )
    after, before = request.get("StartTimeAfter"), request.get("EndTimeBefore")
    if after is not None and before is not None and after >= before:
        raise ValidationError("StartTimeAfter must be earlier than EndTimeBefore.")


def _with_spares(offer: Reservation, request: Mapping[str, Any]) -> Reservation:
    spare, servers = request.get("SpareInstanceCountPerUltraServer"), offer.ultra_servers
    if spare is None:
        return offer
    if servers is None:
        raise ValidationError(
            "SpareInstanceCountPerUltraServer can only be given for an offering of UltraServers."
        )
    if spare >= servers.instances_each:
        raise ValidationError(
            f"SpareInstanceCountPerUltraServer is {spare}; it must be less than the {servers.instances_each} instances "
            "of an UltraServer."
        )
    return replace(offer, ultra_servers=replace(servers, spare_each=spare))


def _is_listed(summary: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    after, before = request.get("StartTimeAfter"), request.get("StartTimeBefore")
    return (
        all(summary["Status"] == each["Value"] for each in request.get("Filters", ()))
        and (after is None or summary["StartTime"] > after)
        and (before is None or summary["StartTime"] < before)
    )


def _type_members(found: Reservation) -> dict[str, Any]:
    servers = found.ultra_servers
    if servers is None:
        return {"ReservedCapacityType": "Instance"}
    return {
        "ReservedCapacityType": "UltraServer",
        "UltraServerType": servers.type,
        "UltraServerCount": servers.count,
    }


def _servers(found: Reservation, window: ReservedWindow, used: int) -> Iterator[dict[str, Any]]:
    servers = found.ultra_servers
    for index in range(servers.count if servers else 0):
        assert servers is not None  # noqa: S101  # the range is empty without servers
        usable = servers.instances_each - servers.spare_each
        used_here = min(usable, max(0, used - index * usable))
        yield {
            "UltraServerId": f"us-{window.id.removeprefix('rc-')}-{index}",
            "UltraServerType": servers.type,
            "AvailabilityZone": found.zone,
            "InstanceType": found.instance_type,
            "TotalInstanceCount": servers.instances_each,
            "ConfiguredSpareInstanceCount": servers.spare_each,
            "AvailableInstanceCount": usable - used_here,
            "InUseInstanceCount": used_here,
            "AvailableSpareInstanceCount": servers.spare_each,
            "UnhealthyInstanceCount": 0,
            "HealthStatus": "OK",
        }


def _no_offer(offer_id: str) -> str:
    return (
        f"Could not find training plan offering {offer_id}: it does not exist, was already bought, or has expired. "
        "Search for offerings again."
    )
