"""Check of a run's needs against the account's service quotas, before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding, Severity, SpecError, ThrottledError
from trainyard.planning.quota_needs import LONGEST_RUN, SERVICE_CODE
from trainyard_airflow.hooks.account_check import asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.planning.quota_needs import QuotaNeed
    from trainyard_airflow.hooks.aws_clients import AwsClients

_MOST_PAGES = 100
"""Largest number of pages, of 100 quotas each; SageMaker has a few thousand quotas."""


def quota_findings(clients: AwsClients, needs: Sequence[QuotaNeed]) -> Iterator[Finding]:
    """Yield a finding for each quota that is too small or not listed, and a warning if the quotas cannot be read.

    The finding for a quota that is too small is usually an error. It is only a warning if the quota belongs to
    an entry of `capacity_ladder` and another entry fits its own quota.

    The finding for a quota that the service does not list is a warning. The region may lack the instance type,
    but this is not certain: Service Quotas omits some quotas that were never changed.
    """
    try:
        values = asked(
            lambda: _values(clients, {each.name for each in needs}),
            where="service quotas",
            got=SERVICE_CODE,
        )
    except (SpecError, ConnectionError, ThrottledError) as error:
        reason = error.findings[0].what if isinstance(error, SpecError) else None
        yield Finding(
            where="service quotas",
            what=reason or f"cannot be checked: {error}",
            next_step="allow servicequotas:ListServiceQuotas, or check the quotas in the console",
            severity=Severity.WARNING,
        )
        return
    for each in needs:
        if each.name not in values:
            yield _unlisted(each, region=clients.region)
    small = [each for each in needs if each.amount > values.get(each.name, each.amount)]
    others = [each for each in needs if each.is_alternative and each not in small]
    for each in small:
        yield Finding(
            where=each.where,
            what="needs more than the account's quota",
            got=f"{each.amount} of {each.name!r}",
            allowed=f"at most {values[each.name]:g} in {clients.region}",
            next_step=f"request an increase in Service Quotas, or {_instead(each)}",
            severity=Severity.WARNING if each.is_alternative and others else Severity.ERROR,
        )


def _unlisted(need: QuotaNeed, *, region: str) -> Finding:
    if need.name == LONGEST_RUN:
        cause, other = ", so it cannot be checked", ""
    else:
        cause = "; the region may not offer the instance type"
        other = f", or {need.next_step or 'use another type'}"
    return Finding(
        where=need.where,
        what=f"needs a quota that Service Quotas does not list in {region}{cause}",
        got=f"{need.amount} of {need.name!r}",
        next_step=f"check the quota in the console{other}",
        severity=Severity.WARNING,
    )


def _instead(need: QuotaNeed) -> str:
    return need.next_step or "use fewer instances or another type"


def _values(clients: AwsClients, names: set[str]) -> dict[str, float]:
    """Return the values of the named quotas; the listing ends once all of them are found.

    The first call fails within seconds if there is no network route to the service. The next calls
    have more retries, because the service throttles the listings of many runs at the same time.
    """
    client = clients.impatient_client("service-quotas")
    found: dict[str, float] = {}
    after: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        page = client.list_service_quotas(ServiceCode=SERVICE_CODE, **after)
        found |= {q["QuotaName"]: q["Value"] for q in page["Quotas"] if q["QuotaName"] in names}
        if len(found) == len(names) or "NextToken" not in page:
            break
        client, after = clients.client("service-quotas"), {"NextToken": page["NextToken"]}
    return found
