"""Monthly budget of a team: money that its runs spent or reserved, and the check of another run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from trainyard.errors import ContractError, Finding
from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUDGETS = "the connection's extra, trainyard.job_limits.team_month_usd"
ANY_TEAM = "*"
"""Key of the budget of each team that is not listed."""
_MOST_SPENDERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpend:
    """Money of one run in the month in which it started, in USD.

    Attributes:
        team: team of the run.
        month: month in UTC, such as `2026-11`.
        user: user who started the run; None for a scheduled run.
        reserved_usd: high of the run's estimate, which counts until the run has ended.
        spent_usd: sum of the run's ledger; None until the run has ended.
    """

    team: str
    month: str
    dag_id: str
    run_id: str
    user: str | None = None
    reserved_usd: float = 0.0
    spent_usd: float | None = None

    @property
    def counted_usd(self) -> float:
        """Amount that counts against the budget."""
        return self.reserved_usd if self.spent_usd is None else self.spent_usd

    @property
    def spender(self) -> str:
        """DAG, with the user who started the run."""
        return f"{self.dag_id} ({self.user})" if self.user else self.dag_id

    def to_json(self) -> str:
        """Return the run's money as a JSON document."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the run's money of a JSON document.

        Raises:
            ContractError: the document has another format.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ContractError("this is no run's money", got=repr(text[:200])) from error


def month_of(moment_s: float) -> str:
    """Return the month of a time in epoch seconds, in UTC: `2026-11`."""
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m}"


def budget_of(team: str, budgets: Mapping[str, float]) -> float | None:
    """Return a team's monthly budget in USD: its own, or that of ANY_TEAM; None without either."""
    return budgets.get(team, budgets.get(ANY_TEAM))


def unnamed_team(tag: str) -> Finding:
    """Return the error that a connection with team budgets has no team tag."""
    return Finding(
        where="the connection's extra, trainyard.job_defaults.tags",
        what="names no team, and job_limits has budgets of teams",
        allowed=f'a tag {tag!r}, such as {{"{tag}": "research"}}',
        next_step=f"set the tag {tag!r} there, or name another one in job_limits.team_tag",
    )


def over_budget(
    others: Iterable[RunSpend],
    *,
    team: str,
    month: str,
    budget_usd: float,
    needed_usd: float | None,
) -> Finding | None:
    """Return the error that a run does not fit into the rest of its team's monthly budget; None if it fits.

    Args:
        others: the team's other runs of the month.
        team: team of the run.
        month: month of the run.
        budget_usd: monthly budget of the team.
        needed_usd: high of the run's estimate; None if its price is unknown.
    """
    runs = list(others)
    used = sum(each.counted_usd for each in runs)
    left = max(0.0, budget_usd - used)
    if needed_usd is not None and needed_usd <= left:
        return None
    needed = "an unknown price" if needed_usd is None else f"up to {format_usd(needed_usd)}"
    cheaper = "take instances with a known price" if needed_usd is None else _cheaper(left)
    return Finding(
        where=BUDGETS,
        what=f"leaves too little to team {team} in {month}",
        got=f"{needed} for this run; {_spent(runs)}",
        allowed=f"{format_usd(left)} left of {format_usd(budget_usd)}",
        next_step=f"{cheaper}, start it next month, or ask for a higher budget",
    )


def _cheaper(left: float) -> str:
    return f"set max_cost_usd to at most {format_usd(left)}" if left else "wait for runs to end"


def _spent(runs: list[RunSpend]) -> str:
    """Return the spent and reserved amounts and the largest spenders, in words."""
    if not runs:
        return "nothing spent yet"
    spent = sum(each.spent_usd or 0.0 for each in runs)
    reserved = sum(each.reserved_usd for each in runs if each.spent_usd is None)
    parts = [f"{format_usd(spent)} spent"]
    parts += [f"{format_usd(reserved)} reserved by runs that are not over"] if reserved else []
    return f"{' and '.join(parts)}: {_spenders(runs)}"


def _spenders(runs: list[RunSpend]) -> str:
    amounts: dict[str, list[float]] = {}
    for each in runs:
        amounts.setdefault(each.spender, []).append(each.counted_usd)
    largest = sorted(amounts.items(), key=lambda each: -sum(each[1]))
    parts = [
        f"{format_usd(sum(usd))} by {name}, {len(usd)} run{'' if len(usd) == 1 else 's'}"
        for name, usd in largest[:_MOST_SPENDERS]
    ]
    more = len(largest) - _MOST_SPENDERS
    return "; ".join([*parts, *([f"{more} more"] if more > 0 else [])])
