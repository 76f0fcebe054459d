"""Monthly budget of a team: money that its runs spent or reserved, and the check before another run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError, Finding, RejectedRequestError
from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUDGETS = "the connection's extra, trainyard.job_limits.team_month_usd"
ANY_TEAM = "*"
"""Key of the budget of each team that is not listed."""
FORMAT, VERSION = "trainyard-team-spend", 1
_MOST_SPENDERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpend:
    """Money that one run spent or reserved, in USD. It counts in the month in which the run first started.

    Attributes:
        team: team of the run.
        month: month in UTC, such as `2026-11`.
        user: user who started the run; None for a scheduled run.
        reserved_usd: the most that the run may still cost on top of `spent_usd`; 0 once its cost is known.
        spent_usd: sum of the known costs of the run's ledger.
    """

    team: str
    month: str
    dag_id: str
    run_id: str
    user: str | None = None
    reserved_usd: float = 0.0
    spent_usd: float = 0.0

    @property
    def counted_usd(self) -> float:
        """Amount that counts against the budget."""
        return self.spent_usd + self.reserved_usd

    @property
    def spender(self) -> str:
        """Text that names the DAG and, if known, the user who started the run: `dag_id (user)`."""
        return f"{self.dag_id} ({self.user})" if self.user else self.dag_id

    def is_of_same_run(self, other: RunSpend) -> bool:
        """Return whether `other` is the spend of the same run."""
        return (self.dag_id, self.run_id) == (other.dag_id, other.run_id)

    def reserving(self, needed_usd: float) -> Self:
        """Return a copy with this amount reserved, or with the already reserved amount if that is larger."""
        return replace(self, reserved_usd=max(self.reserved_usd, needed_usd))

    def closed(self, spent_usd: float, *, is_final: bool) -> Self:
        """Return a copy for a run that has ended and has a report.

        Args:
            spent_usd: sum of the known costs of its ledger.
            is_final: whether the ledger has every cost. If so, nothing stays reserved; otherwise enough
                stays reserved that `counted_usd` does not decrease.
        """
        open_usd = 0.0 if is_final else max(0.0, self.counted_usd - spent_usd)
        return replace(self, spent_usd=spent_usd, reserved_usd=open_usd)

    def to_json(self) -> str:
        """Return the run's spend document as JSON."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the spend document of a run; unknown keys are ignored.

        A document of an earlier release has no version, and no `spent_usd` until its run has ended.

        Raises:
            ContractError: the text is not the spend document of a run, or has a later version.
        """
        try:
            data = _members(text)
            known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
            amounts = {name: _amount(data.get(name)) for name in ("reserved_usd", "spent_usd")}
            return cls(**{**known, **amounts})
        except (ValueError, TypeError, AttributeError) as error:
            allowed = f"format {FORMAT}, version {VERSION}, reserved_usd and spent_usd of 0 or more"
            raise ContractError(
                "the text is not the spend document of a run",
                got=repr(text[:200]),
                allowed=allowed,
                next_step="correct the document, or delete it if its run has ended",
            ) from error


def _members(text: str | bytes) -> dict[str, Any]:
    """Return the content of a run's spend document by key.

    Raises:
        ValueError: the text is not valid JSON, or the document has a later version than `VERSION`.
    """
    data: dict[str, Any] = json.loads(text)
    if data.get("version", VERSION) > VERSION:
        raise ValueError(f"version {data['version']}")
    return data


def _amount(value: Any) -> float:
    """Return an amount of money from a run's spend document as a number; 0 if `value` is None.

    Raises:
        ValueError: the amount is negative, not finite, or a text that is not a number.
        TypeError: the amount is neither a number nor a text.
    """
    amount = float(value or 0.0)
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(f"{value!r} is not an amount of money")
    return amount


def month_of(moment_s: float) -> str:
    """Return the month of a time in epoch seconds, in UTC: `2026-11`."""
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m}"


def budget_of(team: str, budgets: Mapping[str, float]) -> float | None:
    """Return a team's monthly budget in USD: its own, or that of ANY_TEAM; None without either."""
    return budgets.get(team, budgets.get(ANY_TEAM))


def unnamed_team(tag: str) -> Finding:
    """Return the error for a connection that has team budgets but no team tag."""
    return Finding(
        where="the connection's extra, trainyard.job_defaults.tags",
        what="has no team tag, but job_limits has team budgets",
        allowed=f'a tag {tag!r}, such as {{"{tag}": "research"}}',
        next_step=f"set the tag {tag!r} there, or name another tag in job_limits.team_tag",
    )


def unreadable(uri: str, error: ContractError) -> Finding:
    """Return the finding for an unreadable spend document of a run, at `uri`."""
    return Finding(
        where=uri,
        what="is not the spend document of a run, so the rest of the budget is unknown",
        got=error.got,
        allowed=error.allowed,
        next_step="correct the document, or delete it if its run has ended",
    )


def rejected(error: RejectedRequestError) -> Finding:
    """Return the finding that S3 rejected a request for a team's spend documents."""
    return Finding(
        where=error.where or BUDGETS,
        what=f"S3 rejected {error.operation} on the team's spend documents",
        got=error.got,
        next_step="allow the connection s3:ListBucket, s3:GetObject and s3:PutObject on these documents",
    )


def over_budget(
    counted: Iterable[RunSpend],
    *,
    team: str,
    month: str,
    budget_usd: float,
    needed_usd: float | None,
) -> Finding | None:
    """Return an error if a run's cost is unknown or could exceed the rest of its team's monthly budget, otherwise None.

    Args:
        counted: spend of the team's other runs of the month, and earlier spend of the run itself.
        team: team of the run.
        month: month of the run.
        budget_usd: the team's budget of the month.
        needed_usd: the most that the run is estimated to cost; None if its price is not known.
    """
    runs = [each for each in counted if each.counted_usd]
    used = sum(each.counted_usd for each in runs)
    left = max(0.0, budget_usd - used)
    if needed_usd is not None and needed_usd <= left:
        return None
    needed = (
        "an unknown cost" if needed_usd is None else f"a cost of up to {format_usd(needed_usd)}"
    )
    cheaper = "use instances with a known price" if needed_usd is None else _cheaper(left)
    return Finding(
        where=BUDGETS,
        what=f"the budget of team {team} for {month} has too little left for this run",
        got=f"{needed} for this run{_spent(runs)}",
        allowed=f"{format_usd(left)} left of {format_usd(budget_usd)}",
        next_step=f"{cheaper}, start the run next month, or ask for a higher budget",
    )


def _cheaper(left: float) -> str:
    return f"set max_cost_usd to at most {format_usd(left)}" if left else "wait for runs to end"


def _spent(runs: list[RunSpend]) -> str:
    """Return a text to append to the run's cost: the spent and reserved amounts, and the largest spenders."""
    if not runs:
        return "; nothing spent yet"
    spent = sum(each.spent_usd for each in runs)
    reserved = sum(each.reserved_usd for each in runs)
    parts = [f"{format_usd(spent)} spent"]
    parts += [f"{format_usd(reserved)} reserved by unfinished runs"] if reserved else []
    return f", in addition to {' and '.join(parts)}, namely {_spenders(runs)}"


def _spenders(runs: list[RunSpend]) -> str:
    amounts: dict[str, list[float]] = {}
    for each in runs:
        amounts.setdefault(each.spender, []).append(each.counted_usd)
    largest = sorted(amounts.items(), key=lambda each: -sum(each[1]))
    parts = [
        f"{format_usd(sum(usd))} in {len(usd)} run{'' if len(usd) == 1 else 's'} of DAG {name}"
        for name, usd in largest[:_MOST_SPENDERS]
    ]
    more = len(largest) - _MOST_SPENDERS
    rest = [f"the rest by {more} other spender{'' if more == 1 else 's'}"] if more > 0 else []
    return ", ".join([*parts, *rest])
