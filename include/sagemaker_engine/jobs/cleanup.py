"""Clean-up of files that instances and earlier jobs left on this machine's disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def clear(folder: Path) -> None:
    """Remove the files of an earlier, deleted job with the same name."""
    clear_instances(folder)
    shutil.rmtree(folder / "logs", ignore_errors=True)
    for name in ("metrics.jsonl", "host_metrics.jsonl"):
        (folder / name).unlink(missing_ok=True)


def clear_instances(folder: Path) -> None:
    """Remove the files of the instances, as on SageMaker when instances end."""
    for work in folder.glob("instances/*/overlays/*/work/work"):
        work.chmod(0o700)  # The kernel creates this overlay folder without any permissions.
    for name in ("instances", "scratch"):
        shutil.rmtree(folder / name, ignore_errors=True)
