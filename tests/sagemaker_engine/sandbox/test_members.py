"""Which of the machine's processes belong to an instance."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from sagemaker_engine.sandbox.members import (
    Member,
    family,
    members,
    memory_bytes,
    read_processes,
    training_process,
)
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

PARENT_AND_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def test_a_family_is_a_process_and_all_that_descend_from_it() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}
    processes = {pid: Member(pid=pid, parent=parent, cpu_s=1.0) for pid, parent in parents.items()}

    assert {each.pid for each in family(processes, 10)} == {10, 11, 12}
    assert family(processes, 99) == []


def test_program_of_the_warm_parent_belongs_to_the_instance_whose_namespace_it_is_in() -> None:
    spaces = {os.getpid(): (1, 7), 10: (1, 8), 20: (1, 7), 21: (20, 8), 22: (21, 9), 30: (1, 0)}
    processes = {
        pid: Member(pid=pid, parent=parent, cpu_s=1.0, space=space)
        for pid, (parent, space) in spaces.items()
    }

    assert {each.pid for each in family(processes, 10)} == {10, 21, 22}
    assert {each.pid for each in family(processes, 20)} == {20, 21, 22}, "no namespace of its own"


def test_a_process_is_read_with_the_time_of_its_children(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "7").mkdir()
    (tmp_path / "net").mkdir()
    numbers = ["0"] * 9 + [str(count * ticks) for count in (1, 2, 3, 4)] + ["0"] * 6
    (tmp_path / "7/stat").write_text(f"7 (odd) name) S 3 {' '.join(numbers)} 5 0\n")

    assert read_processes(tmp_path) == {7: Member(pid=7, parent=3, cpu_s=10.0, resident_pages=5)}


def test_this_process_is_there_and_has_memory() -> None:
    own = read_processes()[os.getpid()]

    assert own.parent == os.getppid()
    assert own.cpu_s > 0
    assert memory_bytes(os.getpid()) > 2**20


def test_a_process_that_has_ended_has_no_memory(tmp_path: Path) -> None:
    assert memory_bytes(1, tmp_path) == 0


def test_members_are_the_process_and_its_children_until_they_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT_AND_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
        assert [each.pid for each in members(first.pid)] == [first.pid, child]
        assert training_process(first.pid) == child, "no RANK is visible"
        first.communicate(b"\n", timeout=EVENT_LIMIT_S)

    assert members(first.pid) == []
    assert training_process(first.pid) is None
