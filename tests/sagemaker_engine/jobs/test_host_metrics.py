"""What instances use is told of their own processes only, in the service's units."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.host_metrics import (
    ProcessUsage,
    family,
    folder_bytes,
    gpu_metrics,
    read_processes,
    resident_bytes,
    volume_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_family_is_a_process_and_all_that_descend_from_it() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}
    processes = {
        pid: ProcessUsage(pid=pid, parent=parent, cpu_s=1.0) for pid, parent in parents.items()
    }

    assert {each.pid for each in family(processes, 10)} == {10, 11, 12}
    assert family(processes, 99) == []


def test_program_of_the_warm_parent_belongs_to_the_instance_whose_namespace_it_is_in() -> None:
    spaces = {os.getpid(): (1, 7), 10: (1, 8), 20: (1, 7), 21: (20, 8), 22: (21, 9), 30: (1, 0)}
    processes = {
        pid: ProcessUsage(pid=pid, parent=parent, cpu_s=1.0, space=space)
        for pid, (parent, space) in spaces.items()
    }

    assert {each.pid for each in family(processes, 10)} == {10, 21, 22}
    assert {each.pid for each in family(processes, 20)} == {20, 21, 22}, "no namespace of its own"


def test_a_process_is_read_with_the_time_of_its_children(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "7").mkdir()
    (tmp_path / "net").mkdir()
    numbers = ["0"] * 9 + [str(count * ticks) for count in (1, 2, 3, 4)]
    (tmp_path / "7/stat").write_text(f"7 (odd) name) S 3 {' '.join(numbers)} 0\n")

    assert read_processes(tmp_path) == {7: ProcessUsage(pid=7, parent=3, cpu_s=10.0)}


def test_this_process_is_there_and_has_memory() -> None:
    own = read_processes()[os.getpid()]

    assert own.parent == os.getppid()
    assert own.cpu_s > 0
    assert resident_bytes(os.getpid()) > 2**20


def test_a_process_that_has_ended_has_no_memory(tmp_path: Path) -> None:
    assert resident_bytes(1, tmp_path) == 0


def test_gpus_are_added_up() -> None:
    assert gpu_metrics("90, 12000, 24000\n50, 6000, 24000\n") == pytest.approx(
        {"GPUUtilization": 140.0, "GPUMemoryUtilization": 75.0}
    )
    assert gpu_metrics("") == {}


def test_a_folder_counts_what_lies_below_it(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"x" * 100_000)

    assert 100_000 <= folder_bytes(tmp_path) <= 120_000


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        ({"ResourceConfig": {"VolumeSizeInGB": 30}}, 30),
        ({"ProcessingResources": {"ClusterConfig": {"VolumeSizeInGB": 5}}}, 5),
        ({"ResourceConfig": {}}, 1),
    ],
    ids=["training", "processing", "not-said"],
)
def test_the_volume_is_that_of_the_request(request_: dict[str, object], size: int) -> None:
    assert volume_bytes(request_) == size * 2**30
