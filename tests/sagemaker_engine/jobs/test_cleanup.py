"""What instances had on disk is gone at once, and off the disk soon after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_engine.jobs.cleanup import clear, clear_instances

if TYPE_CHECKING:
    from pathlib import Path


def test_new_instances_find_nothing_of_the_old_ones(tmp_path: Path) -> None:
    (tmp_path / "instances" / "algo-1" / "ml").mkdir(parents=True)
    (tmp_path / "instances" / "algo-1" / "ml" / "model.pt").touch()
    (tmp_path / "metrics.jsonl").touch()

    removing = clear_instances(tmp_path)

    assert not (tmp_path / "instances").exists()
    removing.join()
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_later_job_of_the_name_finds_nothing_that_a_killed_runner_set_aside(
    tmp_path: Path,
) -> None:
    (tmp_path / "discarded-1" / "instances").mkdir(parents=True)
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []
