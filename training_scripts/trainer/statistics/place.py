"""Where the statistics of a job go: where the platform uploads from while the job runs, if there is such a place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.environment import DEFAULT_BASE_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER_NAME = "statistics"
DEFAULT_TENSORS_DIR = f"{DEFAULT_BASE_DIR}/output/tensors"
DEFAULT_TENSORBOARD_DIR = f"{DEFAULT_BASE_DIR}/output/tensorboard"


def choose_folder(
    base_dir: Path, output_data_dir: Path, checkpoint_dir: Path, hook: Mapping[str, Any] | None
) -> Path:
    """Return the folder of a job's statistics.

    That of the job's DebugHookConfig; else one inside the checkpoint folder where the job has such a folder, which a
    restart finds again; else one in the output, where also a run stays that began there.
    """
    if hook is not None:
        return in_container(base_dir, hook.get("LocalPath") or DEFAULT_TENSORS_DIR)
    at_the_end = output_data_dir / FOLDER_NAME
    if at_the_end.is_dir() or not checkpoint_dir.is_dir():
        return at_the_end
    return checkpoint_dir / FOLDER_NAME


def in_container(base_dir: Path, path: str) -> Path:
    """Return a path of the container contract, moved where the container's base folder is."""
    standard = Path(path)
    if standard.is_relative_to(DEFAULT_BASE_DIR):
        return base_dir / standard.relative_to(DEFAULT_BASE_DIR)
    return standard
