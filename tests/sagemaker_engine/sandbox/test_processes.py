"""Locks of files, from proc(5)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.sandbox.processes import is_flock_held
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

TWO_DISKS = """
import fcntl, pathlib, sys
from sagemaker_engine.sandbox.processes import is_flock_held

locked, other = (pathlib.Path(each, "lock") for each in sys.argv[1:])
other.touch()
with locked.open("w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print(locked.stat().st_ino == other.stat().st_ino, is_flock_held(locked), is_flock_held(other))
"""


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_flock_held(path)
    with path.open("w") as file:
        assert not is_flock_held(path)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_flock_held(path)

    assert not is_flock_held(path)


def test_a_lock_of_the_same_inode_on_another_disk_does_not_count(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    mounts = []
    for folder in (first, second):
        folder.mkdir()
        mounts.append(f"mount -t tmpfs none {folder}")
    base = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*base, mounts[0]], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine allows no mounts")
    python = f'{sys.executable} -c "$SCRIPT" {first} {second}'

    done = subprocess.run(
        [*base, " && ".join([*mounts, python])],
        env={**os.environ, "SCRIPT": TWO_DISKS},
        capture_output=True,
        text=True,
        check=False,
        timeout=EVENT_LIMIT_S,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "False"]
