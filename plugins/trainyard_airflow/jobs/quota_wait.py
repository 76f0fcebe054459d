"""Wait for the account's quota before a job is created."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from trainyard_airflow.hooks.known_members import known_members
from trainyard_airflow.triggers.pace import backoff_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWait:
    """Progress of the wait, which is stored in the task's deferral.

    A rung is an entry of `capacity_ladder`.

    Attributes:
        began_at: start of the wait, epoch seconds.
        rung_began_at: start of the wait on the current rung, epoch seconds.
        refusals: number of rejected Create calls over all rungs.
        full_rungs: indexes of the abandoned rungs. The quota of such a rung is too small, or it stayed full
            until the rung's time limit.
        code: the job's uploaded code (`UploadedCode.to_dict`), which later tries reuse; None before an upload.
    """

    began_at: float
    rung_began_at: float
    refusals: int = 0
    full_rungs: Sequence[int] = ()
    code: Mapping[str, str] | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the wait from its fields, which another release may have written."""
        return cls(**known_members(cls, data))

    @classmethod
    def begin(cls, now: float) -> Self:
        """Return a wait that begins now."""
        return cls(began_at=now, rung_began_at=now)

    def is_over(self, max_wait_s: int, *, now: float) -> bool:
        """Return whether the wait on the current rung has lasted at least `max_wait_s` seconds; 0 = no limit."""
        return max_wait_s > 0 and now - self.rung_began_at >= max_wait_s

    def refused(self) -> Self:
        """Return the progress of the wait with one more rejected Create call."""
        return replace(self, refusals=self.refusals + 1)

    def given_up(self, rung: int, *, now: float) -> Self:
        """Return the wait on the next rung after `rung` was abandoned."""
        return replace(self, rung_began_at=now, full_rungs=(*self.full_rungs, rung))

    def pause_s(self, shortest_s: float) -> float:
        """Return the seconds until the next try: `shortest_s`, twice that, ..., at most 5 minutes."""
        return min(
            _LONGEST_PAUSE_S, shortest_s * backoff_s(self.refusals, longest_s=_LONGEST_PAUSE_S)
        )
