"""Settings that an engine process shares with the job runners it starts, as one value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_engine import IMAGES_FOLDER
from sagemaker_engine.images.image_store import default_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.state.store import ResourceKind

PATHS = ("root", "images_folder", "image_files")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Location and behaviour of one engine.

    `time_scale` multiplies the waits that only cost patience (the 120 s of grace after a stop, the
    polling of checkpoints): 1.0 is the service's own pace, 0.01 a hundredth of it. It never scales
    what a user asked for, such as `MaxRuntimeInSeconds`. `spot_discount` is the share of the price that spot
    capacity saves, a model: BillableTimeInSeconds of a spot job is (1 - spot_discount) x TrainingTimeInSeconds, so that
    the service's formula for savings, 1 - billable / training, gives it back. The files `image_files` describe the
    engine images, which are built into `images_folder`, that several engines may share; a job whose image is not built
    gets it built if `builds_images`, else fails.
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
            ValueError: A value is outside what it may be.
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
        """Return the SQLite file that holds all jobs."""
        return self.root / "engine.sqlite"

    @property
    def s3_root(self) -> Path:
        """Return the folder of the object store."""
        return self.root / "s3"

    @property
    def lock_path(self) -> Path:
        """Return the file that a live engine holds locked (flock)."""
        return self.root / "engine.lock"

    @property
    def endpoint_path(self) -> Path:
        """Return the file that names the URL of the live engine."""
        return self.root / "endpoint"

    @property
    def default_bucket(self) -> str:
        """Return the bucket that the SageMaker SDK takes when none is given."""
        return f"sagemaker-{self.region}-{self.account}"

    @property
    def default_role_arn(self) -> str:
        """Return the execution role that always exists."""
        return f"arn:aws:iam::{self.account}:role/TrainyardExecutionRole"

    def job_folder(self, kind: ResourceKind, name: str) -> Path:
        """Return the folder of one job: logs/, instances/, metrics.jsonl."""
        return self.root / "jobs" / kind.value / name

    def discount(self, request: Mapping[str, Any]) -> float:
        """Return the share of the price that a job of this request saves."""
        return self.spot_discount if request.get("EnableManagedSpotTraining") else 0.0

    def to_json(self) -> str:
        """Return the settings as JSON, the form in which a runner process gets them."""
        return json.dumps({**asdict(self), **{name: str(getattr(self, name)) for name in PATHS}})

    @classmethod
    def from_json(cls, text: str) -> EngineSettings:
        """Return the settings that `to_json` wrote.

        Raises:
            ValueError: The text is not JSON or a value is outside what it may be.
        """
        values = json.loads(text)
        return cls(**{**values, **{name: Path(values[name]) for name in PATHS}})
