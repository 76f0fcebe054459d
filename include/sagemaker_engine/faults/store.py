"""Store of an engine's faults: users add faults, and the code that applies a fault claims it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.faults.model import WINDOWED_KINDS, Fault, FaultKind
from sagemaker_engine.faults.reader import read_fault, read_plan
from sagemaker_engine.state.database import Database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from sagemaker_engine.faults.schedule import Schedule

SCHEMA = """
CREATE TABLE IF NOT EXISTS faults (
    id TEXT PRIMARY KEY, what TEXT NOT NULL, fault TEXT NOT NULL, put_at REAL NOT NULL,
    position INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fault_firings (
    fault TEXT NOT NULL, subject TEXT, at REAL NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS fault_firings_once ON fault_firings (fault, subject);
CREATE TABLE IF NOT EXISTS fault_schedule (one INTEGER PRIMARY KEY, schedule TEXT NOT NULL)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stored fault, the time at which it was stored, and the times at which it occurred (epoch seconds)."""

    fault: Fault
    put_at: float
    fired_at: tuple[float, ...] = ()

    @property
    def is_spent(self) -> bool:
        """Return whether the fault has occurred `count` times."""
        return self.fault.count is not None and len(self.fired_at) >= self.fault.count

    def is_open(self, at: float) -> bool:
        """Return whether the fault can hit a request at this time (epoch seconds): it has begun and is not over."""
        fault = self.fault
        begins_at = self.put_at + (0.0 if fault.at is None else fault.at.seconds or 0.0)
        lasts_s = fault.duration_s if fault.what in WINDOWED_KINDS else None
        return at >= begins_at and (lasts_s is None or at < begins_at + lasts_s)

    def as_json(self) -> dict[str, Any]:
        """Return the fault as JSON, with `put_at` and `fired_at`."""
        return {**self.fault.as_json(), "put_at": self.put_at, "fired_at": list(self.fired_at)}


class FaultStore:
    """All faults of one engine, stored in its state folder. Safe across threads and processes.

    The store survives `kill -9` of the engine: it is in the same SQLite file as the jobs.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open the fault store of the engine with this state folder."""
        self._database = Database(root / "engine.sqlite", SCHEMA)
        self._clock = clock

    def replace(self, faults: Sequence[Fault], schedule: Schedule | None = None) -> None:
        """Replace all faults and the schedule.

        A fault that is already stored with the same content is kept, with the times at which it occurred.
        """
        now = self._clock()
        with self._database.write() as db:
            kept = {row["id"]: row["fault"] for row in db.execute("SELECT id, fault FROM faults")}
            wanted = {each.id: json.dumps(each.as_json(), sort_keys=True) for each in faults}
            for name in [name for name, text in kept.items() if wanted.get(name) != text]:
                _forget(db, name)
            for position, each in enumerate(faults):
                db.execute(
                    "INSERT INTO faults VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET position = excluded.position",
                    (each.id, each.what.value, wanted[each.id], now, position),
                )
            _put_schedule(db, schedule)

    def put(self, document: Any) -> None:
        """Replace all faults and the schedule by those of a user's document.

        Raises:
            FaultError: The document is malformed.
        """
        self.replace(*read_plan(document))

    def report(self) -> dict[str, Any]:
        """Return the state of the store as JSON.

        The members are `faults` (all faults), `schedule` (the schedule of random interruptions, or None) and
        `scheduled` (the interruptions of the schedule that occurred).
        """
        schedule = self.schedule()
        return {
            "faults": [each.as_json() for each in self.entries()],
            "schedule": None if schedule is None else schedule.as_json(),
            "scheduled": self.scheduled(),
        }

    def clear(self) -> None:
        """Remove all faults, the records of their occurrences, and the schedule of random interruptions.

        Effects that have occurred are not undone.
        """
        with self._database.write() as db:
            for table in ("faults", "fault_firings", "fault_schedule"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608  (names are constants of this module)

    def entries(self) -> list[Entry]:
        """Return all faults in the order of the last `replace`."""
        with self._database.read() as db:
            return [_entry(db, row) for row in db.execute("SELECT * FROM faults ORDER BY position")]

    def schedule(self) -> Schedule | None:
        """Return the schedule of random interruptions, or None if the store has no schedule."""
        with self._database.read() as db:
            row = db.execute("SELECT schedule FROM fault_schedule").fetchone()
        return None if row is None else read_plan(json.loads(row["schedule"]))[1]

    def scheduled(self) -> list[dict[str, Any]]:
        """Return the scheduled interruptions that occurred, oldest first.

        Each has two members. `subject` names the attempt as `<job>/<attempt> of <creation time of the job>`.
        `at` is the time of the interruption. Both times are epoch seconds.
        """
        with self._database.read() as db:
            rows = db.execute(
                "SELECT subject, at FROM fault_firings WHERE fault NOT IN (SELECT id FROM faults) "
                "ORDER BY at"
            ).fetchall()
        return [{"subject": row["subject"], "at": row["at"]} for row in rows]

    def of_job(self, name: str, attempt: int, *, kinds: Collection[FaultKind]) -> list[Fault]:
        """Return the faults of these kinds that can still occur in this attempt of a job."""
        return [
            each.fault
            for each in self._of_kinds(kinds)
            if not each.is_spent and each.fault.hits_job(name, attempt)
        ]

    def ids(self) -> frozenset[str]:
        """Return the ids of all stored faults, including those that can no longer occur."""
        with self._database.read() as db:
            return frozenset(row["id"] for row in db.execute("SELECT id FROM faults"))

    def open_for_requests(self, kinds: Collection[FaultKind]) -> list[Fault]:
        """Return the faults of these kinds that can hit a request now, in stored order.

        The caller checks operation, bucket and key before it claims a fault.
        """
        now = self._clock()
        return [
            each.fault for each in self._of_kinds(kinds) if not each.is_spent and each.is_open(now)
        ]

    def holding(self, kinds: Collection[FaultKind]) -> list[Fault]:
        """Return the faults of these kinds that are in effect now: they have begun and are not over.

        A fault that has already occurred `count` times is included, too, until its `duration_s` is over.
        """
        now = self._clock()
        return [each.fault for each in self._of_kinds(kinds) if each.is_open(now)]

    def claim(self, fault: Fault, *, subject: str | None = None) -> bool:
        """Record that the fault occurs now and return True; return False if it must not occur again.

        A fault occurs at most `count` times in total, and at most once per `subject`, such as one attempt of one
        job. For requests, `subject` is None, and only `count` limits the fault. Atomic across processes.
        """
        with self._database.write() as db:
            if fault.count is not None:
                row = db.execute(
                    "SELECT count(*) AS n FROM fault_firings WHERE fault = ?", (fault.id,)
                )
                if row.fetchone()["n"] >= fault.count:
                    return False
            done = db.execute(
                "INSERT OR IGNORE INTO fault_firings VALUES (?, ?, ?)",
                (fault.id, subject, self._clock()),
            )
            return done.rowcount == 1

    def close(self) -> None:
        """Close the idle connections."""
        self._database.close()

    def _of_kinds(self, kinds: Collection[FaultKind]) -> list[Entry]:
        marks = ", ".join("?" * len(kinds))
        sql = f"SELECT * FROM faults WHERE what IN ({marks}) ORDER BY position"  # noqa: S608
        with self._database.read() as db:
            rows = db.execute(sql, [each.value for each in kinds]).fetchall()
            return [_entry(db, row) for row in rows]


def _entry(db: sqlite3.Connection, row: sqlite3.Row) -> Entry:
    fired = db.execute("SELECT at FROM fault_firings WHERE fault = ? ORDER BY at", (row["id"],))
    return Entry(
        fault=read_fault(json.loads(row["fault"])),
        put_at=row["put_at"],
        fired_at=tuple(each["at"] for each in fired),
    )


def _forget(db: sqlite3.Connection, name: str) -> None:
    db.execute("DELETE FROM faults WHERE id = ?", (name,))
    db.execute("DELETE FROM fault_firings WHERE fault = ?", (name,))


def _put_schedule(db: sqlite3.Connection, schedule: Schedule | None) -> None:
    text = None if schedule is None else json.dumps(schedule.as_json())
    row = db.execute("SELECT schedule FROM fault_schedule").fetchone()
    if row is not None and row["schedule"] == text:
        return
    db.execute("DELETE FROM fault_schedule")
    db.execute("DELETE FROM fault_firings WHERE fault NOT IN (SELECT id FROM faults)")
    if text is not None:
        db.execute("INSERT INTO fault_schedule VALUES (1, ?)", (text,))
