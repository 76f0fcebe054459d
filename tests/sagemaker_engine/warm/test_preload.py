"""The imports of the warm parent."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from sagemaker_engine.warm.handle import parent_environment

PROGRAM = """
import sys
from sagemaker_engine.warm import preload
preload.MODULES, preload.TOOLKITS = ("numpy", "preloaded_module"), ()
preload.preload()
sys.path.remove(sys.argv[1])
sys.path.append(sys.argv[2])
import module_of_a_job
"""


def test_bytecode_of_preloaded_modules_is_kept_and_that_of_a_job_is_not(tmp_path: Path) -> None:
    folders = [tmp_path / "installed", tmp_path / "job"]
    sources = [folders[0] / "preloaded_module.py", folders[1] / "module_of_a_job.py"]
    for source in sources:
        source.parent.mkdir()
        source.write_text("VALUE = 1\n")
    path = os.pathsep.join([str(folders[0]), os.environ["PYTHONPATH"]])

    subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, folders)],
        env={**parent_environment(), "PYTHONPATH": path},
        check=True,
    )

    kept = [Path(importlib.util.cache_from_source(str(each))).exists() for each in sources]
    assert kept == [True, False]
