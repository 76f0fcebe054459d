"""Database tables: training plans, offers, and the number of instances that each job uses in its plan.

Times are on the plans' clock, which can be ahead of the machine's clock (`sagemaker_engine.plans.clock`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.plans.plan import Reservation
from sagemaker_engine.state.jobs import TERMINAL_STATUSES
from sagemaker_engine.state.store import put_tags

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from sagemaker_engine.state.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS training_plans (
    arn TEXT PRIMARY KEY, name TEXT NOT NULL, created_at REAL NOT NULL, document TEXT NOT NULL
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS training_plan_offers (
    id TEXT PRIMARY KEY, expires_at REAL NOT NULL, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS training_plan_uses (
    job_arn TEXT PRIMARY KEY, plan_arn TEXT NOT NULL, instances INTEGER NOT NULL) WITHOUT ROWID
"""
_ENDED = ", ".join(f"'{each}'" for each in sorted(TERMINAL_STATUSES))


class MissingPlanError(Exception):
    """No plan has this ARN."""


class PlanNameTakenError(Exception):
    """A plan with this ARN exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan that was bought.

    `extensions` are JSON objects with the member names of the API. Their times are on the plans' clock.
    """

    arn: str
    name: str
    reservation: Reservation
    extensions: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        reservation, extensions = self.reservation.to_json(), list(self.extensions)
        return {"reservation": reservation, "extensions": extensions}


@dataclass(frozen=True, slots=True)
class PlanTables:
    """Access to the tables."""

    database: Database

    def __post_init__(self) -> None:
        """Create missing tables."""
        self.database.apply(SCHEMA)

    def add_offer(self, offer_id: str, document: Mapping[str, Any], *, expires_at: float) -> None:
        """Store an offer that can be bought until `expires_at`."""
        with self.database.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO training_plan_offers (id, expires_at, document) VALUES (?, ?, ?)",
                (offer_id, expires_at, json.dumps(document)),
            )

    def offer(self, offer_id: str, *, now: float) -> dict[str, Any] | None:
        """Return an offer; None if it does not exist, or can no longer be bought."""
        with self.database.read() as db:
            row = db.execute(
                "SELECT document FROM training_plan_offers WHERE id = ? AND expires_at > ?",
                (offer_id, now),
            ).fetchone()
        return None if row is None else dict(json.loads(row["document"]))

    def buy(self, offer_id: str, plan: StoredPlan, *, tags: Mapping[str, str], at: float) -> bool:
        """Store a plan in exchange for its offer; return False if another request has bought the offer.

        Raises:
            PlanNameTakenError: A plan with this ARN exists.
        """
        with self.database.write() as db:
            if _row(db, plan.arn) is not None:
                raise PlanNameTakenError(plan.arn)
            if not _remove_offer(db, offer_id):
                return False
            db.execute(
                "INSERT INTO training_plans (arn, name, created_at, document) VALUES (?, ?, ?, ?)",
                (plan.arn, plan.name, at, json.dumps(plan.to_json())),
            )
            put_tags(db, plan.arn, tags)
            return True

    def get(self, arn: str) -> StoredPlan:
        """Return a plan.

        Raises:
            MissingPlanError: The plan does not exist.
        """
        with self.database.read() as db:
            return _plan(db, arn)

    def all(self, *, arn_prefix: str) -> list[StoredPlan]:
        """Return the plans whose ARN has this prefix, oldest first."""
        sql = "SELECT * FROM training_plans WHERE substr(arn, 1, ?) = ? ORDER BY created_at, arn"
        with self.database.read() as db:
            rows = db.execute(sql, (len(arn_prefix), arn_prefix)).fetchall()
        return [_read(row) for row in rows]

    def extend(
        self, offer_id: str, arn: str, change: Callable[[StoredPlan], StoredPlan]
    ) -> StoredPlan | None:
        """Replace a plan by `change(plan)`, remove the extension offer, and return the new plan.

        Return None and change nothing if another request has bought the offer.

        Raises:
            MissingPlanError: The plan does not exist.
        """
        with self.database.write() as db:
            changed = change(_plan(db, arn))
            if not _remove_offer(db, offer_id):
                return None
            db.execute(
                "UPDATE training_plans SET document = ? WHERE arn = ?",
                (json.dumps(changed.to_json()), arn),
            )
            return changed

    def in_use(self, arn: str) -> int:
        """Return how many of a plan's instances are in use by jobs."""
        with self.database.read() as db:
            return _in_use(db, arn)

    def use(self, job_arn: str, plan: StoredPlan, instances: int) -> bool:
        """Assign instances of a plan to a job; return False if other jobs use too many of them."""
        with self.database.write() as db:
            db.execute("DELETE FROM training_plan_uses WHERE job_arn = ?", (job_arn,))
            if _in_use(db, plan.arn) + instances > plan.reservation.usable_instances:
                return False
            db.execute(
                "INSERT INTO training_plan_uses (job_arn, plan_arn, instances) VALUES (?, ?, ?)",
                (job_arn, plan.arn, instances),
            )
            return True

    def release(self, job_arn: str) -> None:
        """End a job's use of the instances of its training plan.

        If a job has ended, its instances count as released without this call.
        """
        with self.database.write() as db:
            db.execute("DELETE FROM training_plan_uses WHERE job_arn = ?", (job_arn,))


def _row(db: sqlite3.Connection, arn: str) -> sqlite3.Row | None:
    found: sqlite3.Row | None = db.execute(
        "SELECT * FROM training_plans WHERE arn = ?", (arn,)
    ).fetchone()
    return found


def _plan(db: sqlite3.Connection, arn: str) -> StoredPlan:
    row = _row(db, arn)
    if row is None:
        raise MissingPlanError(arn)
    return _read(row)


def _read(row: sqlite3.Row) -> StoredPlan:
    document = json.loads(row["document"])
    return StoredPlan(
        arn=row["arn"],
        name=row["name"],
        reservation=Reservation.from_json(document["reservation"]),
        extensions=tuple(document["extensions"]),
    )


def _remove_offer(db: sqlite3.Connection, offer_id: str) -> bool:
    return db.execute("DELETE FROM training_plan_offers WHERE id = ?", (offer_id,)).rowcount == 1


def _in_use(db: sqlite3.Connection, arn: str) -> int:
    sql = (  # The statuses are constants.
        "SELECT COALESCE(SUM(u.instances), 0) AS used FROM training_plan_uses u JOIN jobs j ON j.arn = u.job_arn "  # noqa: S608
        f"WHERE u.plan_arn = ? AND j.status NOT IN ({_ENDED})"
    )
    return int(db.execute(sql, (arn,)).fetchone()["used"])
