"""Container environment: folders, channels, configuration files and processor counts.

Source: AWS, "How Amazon SageMaker AI runs your training image" and the sagemaker-training toolkit
5.1.4 (`SAGEMAKER_BASE_DIR` relocates `/opt/ml`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BASE_DIR = "/opt/ml"
DEFAULT_TENSORS_DIR = f"{DEFAULT_BASE_DIR}/output/tensors"
OWN_FOLDER = "trainyard"
"""Folder of the watch's checkpoints and metrics, beside the script's own files."""
BASE_VARIABLE, JOB_VARIABLE = "SAGEMAKER_BASE_DIR", "TRAINING_JOB_NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPaths:
    """The folders of one training container."""

    base_dir: Path
    model_dir: Path
    output_data_dir: Path
    channels: Mapping[str, Path]
    host: str = "algo-1"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ContainerPaths:
        """Return the folders that the `SM_*` variables name.

        A folder without a variable has its standard place below SAGEMAKER_BASE_DIR, by default /opt/ml.
        """
        base_dir = Path(environ.get(BASE_VARIABLE, DEFAULT_BASE_DIR))
        data_dir = base_dir / "input" / "data"
        found = {path.name: path for path in sorted(data_dir.glob("*")) if path.is_dir()}
        named = {
            name: Path(environ[f"SM_CHANNEL_{name.upper()}"])
            for name in ("train", "validation", "test", "index")
            if f"SM_CHANNEL_{name.upper()}" in environ
        }
        return cls(
            base_dir=base_dir,
            model_dir=Path(environ.get("SM_MODEL_DIR", base_dir / "model")),
            output_data_dir=Path(environ.get("SM_OUTPUT_DATA_DIR", base_dir / "output" / "data")),
            channels=found | named,
            host=environ.get("SM_CURRENT_HOST", "algo-1"),
        )

    def read_config(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in `<base>/input/config/<name>.json`. `<base>` is `base_dir`.

        The result is None if the file is missing, or if its content is not a JSON object.

        Raises:
            OSError, ValueError: the file cannot be read, or is not JSON.
        """
        path = self.base_dir / "input" / "config" / f"{name}.json"
        if not path.is_file():
            return None
        content = json.loads(path.read_bytes())
        return content if isinstance(content, dict) else None

    def in_container(self, path: str) -> Path:
        """Return `path` with a leading `/opt/ml` replaced by the container's base folder.

        Other paths are unchanged.
        """
        standard = Path(path)
        if standard.is_relative_to(DEFAULT_BASE_DIR):
            return self.base_dir / standard.relative_to(DEFAULT_BASE_DIR)
        return standard

    def statistics_dir(self, hook: Mapping[str, Any] | None, *, is_shipped: bool) -> Path:
        """Return the folder of the job's statistics.

        - With a DebugHookConfig (`hook`): its LocalPath, by default /opt/ml/output/tensors. The platform uploads
          it.
        - Otherwise, if this host uploads the statistics to S3 itself (`is_shipped`): a folder that the platform
          does not upload.
        - Otherwise: a folder in the output, which the platform uploads at the end of the job.

        Unless the hook sets a LocalPath, the folder is outside the checkpoint folder, because the platform restores
        the content of the checkpoint folder to every host.
        """
        if hook is not None:
            return self.in_container(hook.get("LocalPath") or DEFAULT_TENSORS_DIR)
        return (self.base_dir / "output" if is_shipped else self.output_data_dir) / "statistics"

    @property
    def failure_file(self) -> Path:
        """Return the file whose first 1,024 characters become the job's FailureReason."""
        return self.base_dir / "output" / "failure"

    @property
    def stopped_file(self) -> Path:
        """Return the file that a rank writes when it ends because of a stop."""
        return self.base_dir / "output" / "stopped"

    @property
    def default_checkpoint_dir(self) -> Path:
        """Return the folder that the platform syncs with the job's checkpoint S3 URI."""
        return self.base_dir / "checkpoints"


def container_paths() -> ContainerPaths:
    """Return the folders of this container; outside of a container, such as in a notebook, those in `./.trainyard`."""
    if BASE_VARIABLE in os.environ or Path(DEFAULT_BASE_DIR).is_dir():
        return ContainerPaths.from_environment(os.environ)
    return ContainerPaths.from_environment(
        {**os.environ, BASE_VARIABLE: str(Path.cwd() / ".trainyard")}
    )


def available_cpus() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_restarts(environ: Mapping[str, str]) -> int:
    """Return the number of restarts of the ranks by torchrun; 0 for other launchers."""
    return int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
