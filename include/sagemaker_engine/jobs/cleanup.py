"""Clean-up of files that instances and earlier jobs left on this machine's disk."""

from __future__ import annotations

import shutil
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from sagemaker_engine.jobs import host_metrics, metrics

if TYPE_CHECKING:
    from pathlib import Path

_DISCARDED = "discarded-"


def clear(folder: Path) -> None:
    """Remove the files of an earlier, deleted job with the same name."""
    clear_instances(folder).join()
    shutil.rmtree(folder / "logs", ignore_errors=True)
    for name in (metrics.FILE_NAME, host_metrics.FILE_NAME):
        (folder / name).unlink(missing_ok=True)


def clear_instances(folder: Path) -> threading.Thread:
    """Remove the files of the instances, as on SageMaker when instances end.

    The folders are moved aside at once. The returned thread removes them, so that new instances do not wait for the
    removal, which takes seconds on a busy machine.
    """
    for work in folder.glob("instances/*/overlays/*/work/work"):
        work.chmod(0o700)  # The kernel creates this overlay folder without any permissions.
    for name in ("instances", "scratch"):
        if (folder / name).exists():
            aside = tempfile.mkdtemp(prefix=_DISCARDED, dir=folder)
            with suppress(OSError):  # It is removed where it is.
                (folder / name).rename(f"{aside}/{name}")
    removing = threading.Thread(target=_remove_discarded, args=(folder,), name="discard")
    for name in ("instances", "scratch"):
        shutil.rmtree(folder / name, ignore_errors=True)
    removing.start()
    return removing


def _remove_discarded(folder: Path) -> None:
    for aside in folder.glob(f"{_DISCARDED}*"):
        shutil.rmtree(aside, ignore_errors=True)
