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

    That of the job's DebugHookConfig, which the platform uploads. Else, if this host puts them to S3 itself, one that
    the platform does not upload; else one in the output, which it uploads at the end. Never one below the checkpoints:
    those are restored to every host.
    """
    if hook is not None:
        return in_container(base_dir, hook.get("LocalPath") or DEFAULT_TENSORS_DIR)
    return (base_dir / "output" if is_shipped else output_data_dir) / FOLDER_NAME


def in_container(base_dir: Path, path: str) -> Path:
    """Return a path of the container contract, moved where the container's base folder is."""
    standard = Path(path)
    if standard.is_relative_to(DEFAULT_BASE_DIR):
        return base_dir / standard.relative_to(DEFAULT_BASE_DIR)
    return standard
