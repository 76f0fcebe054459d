"""The ledger of a run: every paid resource. Pure.

An entry is one JSON document, `<run>/ledger/<kind>-<name>.json`. It is written twice: before the Create call (an
intent), and when the resource has ended (settled, with its cost). If a ledger has no unsettled entry, no resource of
the run still costs money. If a process dies between intent and Create, the ledger has one entry too many; it never
lacks one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from trainyard.cost.job_cost import job_cost, known_total
from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NEVER_CREATED = "NeverCreated"
CREATE_LIMIT_S = 300.0
"""If an intent is older than this and the service has no such resource, the Create call never arrived: the hook's
retries pause for at most 231 s in total. Each reconciliation with the service checks such an entry again."""


class PaidKind(StrEnum):
    """Kinds of resources that cost money while they exist."""

    TRAINING = "training"
    PROCESSING = "processing"
    TUNING = "tuning"
    AUTOML = "automl"
    ENDPOINT = "endpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One paid resource. Times are epoch seconds.

    Attributes:
        name: name of the resource in the service; unique per kind.
        intended_at: time just before the Create call.
        status: final status of the resource. It is `NeverCreated` if the Create call never arrived, and None
            until the entry is settled.
        billable_seconds: billed seconds per instance, including the seconds of a training job's warm pool.
        cost_usd: cost at the catalogue's price; None until the entry is settled, or if the price is unknown.
        training_plan: ARN of the training plan that paid for the job up front, so that the job itself costs 0
            USD; None if no plan paid for it.
    """

    kind: PaidKind
    name: str
    task_id: str
    intended_at: float
    status: str | None = None
    settled_at: float | None = None
    billable_seconds: int | None = None
    cost_usd: float | None = None
    training_plan: str | None = None

    @property
    def is_settled(self) -> bool:
        """True if the resource no longer costs money."""
        return self.settled_at is not None

    @property
    def file_name(self) -> str:
        """Name of the entry's document in the ledger's folder."""
        return f"{self.kind}-{self.name}.json"

    def reopened(self) -> Self:
        """Return this entry as unsettled, without status, billed seconds and cost.

        This is for an entry that was settled as `NeverCreated` although its resource was created after all, and
        for the entry of a job whose warm pool still costs money.
        """
        return replace(self, status=None, settled_at=None, billable_seconds=None, cost_usd=None)

    def settled(self, snapshot: Mapping[str, Any] | None, *, at: float) -> Self:
        """Return this entry, settled with the final status and cost of its resource.

        Args:
            snapshot: the ended job (`JobSnapshot.to_dict`); None if the service has no such job.
            at: time of the observation, epoch seconds.
        """
        if snapshot is None:
            return replace(
                self, status=NEVER_CREATED, settled_at=at, billable_seconds=0, cost_usd=0.0
            )
        cost = job_cost(with_warm_pool(snapshot))
        return replace(
            self,
            status=str(snapshot["status"]),
            settled_at=at,
            billable_seconds=cost.billable_seconds,
            cost_usd=cost.cost_usd,
            training_plan=snapshot.get("training_plan"),
        )

    def to_json(self) -> str:
        """Return the entry's document."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, uri: str | None = None) -> Self:
        """Return the entry that a document describes.

        Args:
            text: the document.
            uri: the address of the document, for the error.

        Raises:
            ContractError: the document is not an entry.
        """
        try:
            members = json.loads(text)
            return cls(**{**members, "kind": PaidKind(members["kind"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ContractError(
                "the document is not a ledger entry",
                where=uri,
                got=repr(text[:200]),
                allowed=f"JSON with the keys {', '.join(each.name for each in fields(cls))}",
                next_step="restore the document, or delete it once the resource in its file name has ended",
            ) from error


def with_warm_pool(snapshot: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a job's snapshot with the seconds of its warm pool added to its billable seconds.

    Worked: 60 billable seconds and a warm pool that was held for 600 s give 660 s.
    """
    billed, held = snapshot.get("billable_seconds"), snapshot.get("warm_pool_seconds")
    return (
        snapshot if billed is None or not held else {**snapshot, "billable_seconds": billed + held}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All entries of one run, oldest first."""

    entries: tuple[LedgerEntry, ...]

    @classmethod
    def of(cls, entries: Iterable[LedgerEntry]) -> Self:
        """Return the ledger of these entries, which may be in any order."""
        return cls(entries=tuple(sorted(entries, key=lambda each: (each.intended_at, each.name))))

    @property
    def unsettled(self) -> tuple[LedgerEntry, ...]:
        """Entries that may still cost money."""
        return tuple(each for each in self.entries if not each.is_settled)

    @property
    def is_settled(self) -> bool:
        """True if no resource of the run still costs money."""
        return not self.unsettled

    @property
    def total_usd(self) -> float | None:
        """Total cost of the settled entries; None if one of them has no known cost."""
        return known_total(each.cost_usd for each in self.entries if each.is_settled)

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger in the form of report.json."""
        return {
            "entries": [asdict(each) for each in self.entries],
            "unsettled": [each.name for each in self.unsettled],
            "total_usd": self.total_usd,
        }
