"""The statistics that a real training writes, read as the rules read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from include.rules.records import (
    Mark,
    Start,
    StepRecord,
    Validation,
)
from include.rules.statistics_file import read_statistics

if TYPE_CHECKING:
    from pathlib import Path

    from include.rules.records import Record


def files_in(folder: Path) -> list[str]:
    """Return the names of the statistics files of a folder."""
    return sorted(path.name for path in folder.glob("*.jsonl"))


def records_of(folder: Path) -> list[Record]:
    """Return everything that was observed."""
    texts = {
        name: (folder / name).read_text().splitlines(keepends=True) for name in files_in(folder)
    }
    return read_statistics(texts)


def steps_of(records: list[Record], rank: int = 0) -> list[StepRecord]:
    """Return the steps of one rank."""
    return [each for each in records if isinstance(each, StepRecord) and each.rank == rank]


def test_two_ranks_write_each_step_and_what_happened(make_job):
    job = make_job()
    (job.base_dir / "checkpoints").mkdir()

    assert job.run(world_size=2, max_steps=20, checkpoint_interval=10) == [0, 0]

    folder = job.base_dir / "checkpoints" / "statistics"
    records = records_of(folder)
    assert files_in(folder) == [f"rank-{rank:05d}.attempt-0001.part-0001.jsonl" for rank in (0, 1)]
    starts = {each.rank: each for each in records if isinstance(each, Start)}
    assert {(each.world_size, each.attempt, each.step) for each in starts.values()} == {(2, 1, 0)}
    assert sorted(starts) == [0, 1]
    for rank in (0, 1):
        steps = steps_of(records, rank)
        assert [each.step for each in steps] == list(range(1, 21))
        for step, said in zip(steps, job.events("step"), strict=True):
            assert step.loss == pytest.approx(said["loss"], rel=1e-12)
            assert step.gradient_norm == pytest.approx(said["gradient_norm"], rel=1e-12)
            assert step.learning_rate == pytest.approx(said["learning_rate"], rel=1e-12)
    marks = [each.kind for each in records if isinstance(each, Mark)]
    assert marks.count("checkpoint") == marks.count("durable") == 2
    assert marks[-1] == "done"
    assert [each.step for each in records if isinstance(each, Validation)] == [
        *list(range(3, 21, 3)),
        20,
    ]
