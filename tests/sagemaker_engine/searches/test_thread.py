"""The thread that carries searches on: over real tables, with searches that fail as the test has them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.automl.rounds import AutoMLSearch
from sagemaker_engine.automl.tables import SECONDARY_KEY, STATUS_KEY, AutoMLRow, AutoMLTables
from sagemaker_engine.searches.search import SearchPorts
from sagemaker_engine.searches.thread import DATABASE_PAUSE_S, MAX_FAULTS, SearchThread
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import JobStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Bench:
    """One AutoML job, and the thread that carries it on, whose rounds the test makes."""

    tables: AutoMLTables
    thread: SearchThread[Any, Any]
    fault: Exception | None = None
    rounds: list[str] = field(default_factory=list)

    @property
    def state(self) -> dict[str, Any]:
        return self.tables.get("a").state


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = JobStore(tmp_path / "engine.sqlite")
    tables = AutoMLTables(store.database)
    row = AutoMLRow(
        name="a",
        arn="arn:aws:sagemaker:us-east-1:123456789012:automl-job/a",
        request={},
        state={STATUS_KEY: "InProgress", SECONDARY_KEY: "Starting"},
        seed=1,
        created_at=1.0,
        modified_at=1.0,
    )
    tables.create(row, tags={})

    class Failing(AutoMLSearch):
        def advance(self, row: AutoMLRow) -> bool:
            made.rounds.append(row.name)
            if made.fault is not None:
                raise made.fault
            return False

    ports = SearchPorts(
        tables=tables,
        store=store,
        settings=EngineSettings(root=tmp_path, endpoint_url=""),
        clock=lambda: 5.0,
        tags_of=lambda _: {},
        create_job=lambda *_: None,
        stop_job=lambda *_: None,
    )
    made = Bench(tables, SearchThread(Failing, ports))
    yield made
    store.close()


def test_a_search_whose_rounds_fail_again_and_again_is_given_up(bench: Bench) -> None:
    bench.fault = KeyError("ours")

    for _ in range(MAX_FAULTS + 5):
        bench.thread._one_round()

    assert len(bench.rounds) == MAX_FAULTS
    assert bench.state[STATUS_KEY] == bench.state[SECONDARY_KEY] == "Failed"
    assert "KeyError" in bench.state["FailureReason"]
    assert bench.state["EndTime"] == 5.0


def test_a_database_that_fails_ends_neither_the_search_nor_the_thread(bench: Bench) -> None:
    bench.fault = sqlite3.OperationalError("database or disk is full")

    pauses = [bench.thread._one_round() for _ in range(MAX_FAULTS + 5)]

    assert set(pauses) == {DATABASE_PAUSE_S}
    assert bench.state[STATUS_KEY] == "InProgress"


def test_stopping_all_searches_reopens_none_that_has_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = bench.tables.running()
    bench.tables.change("a", lambda state: state.update({STATUS_KEY: "Completed"}), at=2.0)
    monkeypatch.setattr(bench.tables, "running", lambda: ended)

    bench.thread.stop_searches()

    assert bench.state[STATUS_KEY] == "Completed"
