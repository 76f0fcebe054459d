"""Settings of one engine, shared by its process and the job runners that it starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_engine import IMAGES_FOLDER
from sagemaker_engine.images.image_store import default_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.state.jobs import ResourceKind

PATHS = ("root", "images_folder", "image_files")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Location and behavior of one engine.

    - `time_scale`: factor on waits that do no work (the 120 s grace period of a stop, the polling of
      checkpoints). 1.0 is the pace of AWS, 0.01 a hundredth of it. It never scales values that a user
      set, such as `MaxRuntimeInSeconds`.
    - `spot_discount`: share of the price that spot capacity saves, from 0 to below 1. BillableTimeInSeconds
      of a spot job is (1 - spot_discount) x TrainingTimeInSeconds, so that AWS's formula for savings,
      1 - billable / training, returns this share.
    - `images_folder`: folder of the built engine images; several engines may share it.
    - `image_files`: folder of the files that describe engine images.
    - `builds_images`: whether a missing image is built when a job needs it. If not, the job fails.
    """

    root: Path
    endpoint_url: str
    region: str = "us-east-1"
    account: str = "123456789012"
    time_scale: float = 1.0
    spot_discount: float = 0.7
    images_folder: Path = field(default_factory=default_folder)
    image_files: Path = IMAGES_FOLDER
    builds_images: bool = True

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: A value is out of range, `account` is not 12 digits, or `root` is not absolute.
        """
        if not self.time_scale > 0:
            raise ValueError(f"time_scale is {self.time_scale}; it must be above 0")
        if not 0 <= self.spot_discount < 1:
            raise ValueError(f"spot_discount is {self.spot_discount}; it must be from 0 to below 1")
        if not (self.account.isdigit() and len(self.account) == 12):
            raise ValueError(f"account is {self.account!r}; an AWS account has 12 digits")
        if not self.root.is_absolute():
            raise ValueError(f"root is {self.root}; it must be an absolute path")

    @property
    def database_path(self) -> Path:
        """Return the path of the SQLite file of all jobs."""
        return self.root / "engine.sqlite"

    @property
    def s3_root(self) -> Path:
        """Return the folder of the object store."""
        return self.root / "s3"

    @property
    def lock_path(self) -> Path:
        """Return the path of the file that a running engine holds locked (flock)."""
        return self.root / "engine.lock"

    @property
    def endpoint_path(self) -> Path:
        """Return the path of the file with the URL of the running engine."""
        return self.root / "endpoint"

    @property
    def default_bucket(self) -> str:
        """Return the bucket that the SageMaker SDK uses by default."""
        return f"sagemaker-{self.region}-{self.account}"

    @property
    def default_role_arn(self) -> str:
        """Return the ARN of the execution role that always exists."""
        return f"arn:aws:iam::{self.account}:role/TrainyardExecutionRole"

    def job_folder(self, kind: ResourceKind, name: str) -> Path:
        """Return the folder of one job, for its logs/, instances/ and metrics.jsonl."""
        return self.root / "jobs" / kind.value / name

    def discount(self, request: Mapping[str, Any]) -> float:
        """Return the share of the price that a job with this request saves: 0 unless it uses spot."""
        return self.spot_discount if request.get("EnableManagedSpotTraining") else 0.0

    def to_json(self) -> str:
        """Return the settings as JSON, the form in which a job runner receives them."""
        return json.dumps({**asdict(self), **{name: str(getattr(self, name)) for name in PATHS}})

    @classmethod
    def from_json(cls, text: str) -> EngineSettings:
        """Return the settings that `to_json` wrote.

        Raises:
            ValueError: The text is not JSON, or a value is invalid.
        """
        values = json.loads(text)
        return cls(**{**values, **{name: Path(values[name]) for name in PATHS}})
