"""The folder of a job's statistics on its host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard_watch.environment import DEFAULT_BASE_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER_NAME = "statistics"
DEFAULT_TENSORS_DIR = f"{DEFAULT_BASE_DIR}/output/tensors"
DEFAULT_TENSORBOARD_DIR = f"{DEFAULT_BASE_DIR}/output/tensorboard"


def choose_folder(
    base_dir: Path, output_data_dir: Path, hook: Mapping[str, Any] | None, *, is_shipped: bool
) -> Path:
    """Return the folder of a job's statistics.

    - With a DebugHookConfig: its LocalPath (by default /opt/ml/output/tensors), which the platform uploads.
    - Otherwise, if this host uploads the statistics to S3 itself (`is_shipped`): a folder that the platform does not
      upload.
    - Otherwise: a folder in the output, which the platform uploads at the end of the job.

    No default is below the checkpoints, since the platform restores these to every host.
    """
    if hook is not None:
        return in_container(base_dir, hook.get("LocalPath") or DEFAULT_TENSORS_DIR)
    return (base_dir / "output" if is_shipped else output_data_dir) / FOLDER_NAME


def in_container(base_dir: Path, path: str) -> Path:
    """Return a path of the container contract with `/opt/ml` replaced by the container's base folder."""
    standard = Path(path)
    if standard.is_relative_to(DEFAULT_BASE_DIR):
        return base_dir / standard.relative_to(DEFAULT_BASE_DIR)
    return standard
