"""Service Quotas API for SageMaker's quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.wire.errors import ServiceError, ValidationError
from sagemaker_engine.wire.json_service import NotOursError
from sagemaker_engine.wire.paging import page_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.services.quotas import Quota, Quotas
    from sagemaker_engine.wire.json_service import Call, Handler

SERVICE = "sagemaker"
PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceQuotas:
    """Handlers of Service Quotas for SageMaker; moto serves the quotas of other services."""

    quotas: Quotas
    account: str

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "ListServiceQuotas": self.list_values,
            "GetServiceQuota": self.get,
            "ListAWSDefaultServiceQuotas": self.list_defaults,
        }

    def list_values(self, call: Call) -> dict[str, Any]:
        """Return one page of the current values."""
        return self._page(
            call, [self._described(call, each, each.value) for each in self._all(call)]
        )

    def list_defaults(self, call: Call) -> dict[str, Any]:
        """Return one page of the default values."""
        return self._page(
            call, [self._described(call, each, each.default) for each in self._all(call)]
        )

    def get(self, call: Call) -> dict[str, Any]:
        """Return one quota by its code.

        Raises:
            ServiceError: NoSuchResourceException: the quota does not exist.
        """
        code = call.request["QuotaCode"]
        for each in self._all(call):
            if each.code == code:
                return {"Quota": self._described(call, each, each.value)}
        raise ServiceError("NoSuchResourceException", f"No quota has the code {code}.")

    def _all(self, call: Call) -> list[Quota]:
        if call.request["ServiceCode"] != SERVICE:
            raise NotOursError
        return self.quotas.all(call.region)

    def _page(self, call: Call, found: list[dict[str, Any]]) -> dict[str, Any]:
        try:
            page, token = page_of(found, call.request, default=PAGE)
        except ValidationError as error:
            raise ServiceError("InvalidPaginationTokenException", error.message) from error
        return {"Quotas": page, "NextToken": token}

    def _described(self, call: Call, quota: Quota, value: float) -> dict[str, Any]:
        return {
            "ServiceCode": SERVICE,
            "ServiceName": "Amazon SageMaker",
            "QuotaArn": f"arn:aws:servicequotas:{call.region}:{self.account}:{SERVICE}/{quota.code}",
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "Value": value,
            "Unit": "None" if quota.unit == "Instances" else quota.unit,
            "Adjustable": True,
            "GlobalQuota": False,
        }
