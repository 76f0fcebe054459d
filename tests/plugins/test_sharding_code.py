"""The code of a sharding job's instances is complete without the rest of the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from trainyard_airflow.jobs.sharding_job import archive_files

if TYPE_CHECKING:
    from pathlib import Path


def test_modules_of_the_archive_import_each_other_only(tmp_path: Path) -> None:
    for name, path in archive_files():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name, _ in archive_files()
    ]
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(modules)}"

    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
