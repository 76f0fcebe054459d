"""Outside clients: their virtual environments, built once beside the engine images, and how their examples run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.images.image_file import ImageFile
from sagemaker_engine.images.image_store import ImageStore, default_folder
from tests.sagemaker_engine.images.built import need_built

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

ENVIRONMENTS = Path(__file__).parent / "environments"
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "clients"
LIMIT_S = 600


def environment(name: str) -> Path:
    """Return the folder of a client's virtual environment, built unless it is there; skip without package index."""
    text = (ENVIRONMENTS / f"{name}.txt").read_text(encoding="utf-8")
    described = ImageFile(name=f"client-{name}", text=text, repositories=())
    return need_built(ImageStore(folder=default_folder()), described)


@pytest.fixture(scope="session")
def sdk_v2() -> Path:
    """The Python of an environment with the SageMaker SDK v2."""
    return environment("sdk_v2") / "bin" / "python"


@pytest.fixture(scope="session")
def aws_cli() -> Path:
    """The folder of the `aws` command."""
    return environment("aws_cli") / "bin"


@pytest.fixture(scope="session")
def sdk_v3() -> Path:
    """The Python of Trainyard's own environment, which has the SageMaker SDK v3."""
    return Path(sys.executable)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Runs the examples of docs/clients.md as their reader would, with the exports that `make engine` prints."""

    engine: RunningEngine
    home: Path

    def run(self, *command: str | Path, path: Path | None = None) -> str:
        """Return what a command printed; fail with all of it where it did not end well."""
        ended = subprocess.run(
            [str(each) for each in command],
            env=self._environment(path),
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert ended.returncode == 0, ended.stdout[-6000:]
        return ended.stdout

    def log(self, job: str) -> str:
        """Return all lines of a training job's log."""
        events = self.engine.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=job
        )
        return "\n".join(each["message"] for each in events["events"])

    def is_best_of_four(self, trial: str) -> bool:
        """Tell whether a trial has the least objective of the four of its search, as the service has them."""
        sagemaker = self.engine.client("sagemaker")
        arn = sagemaker.describe_training_job(TrainingJobName=trial)["TuningJobArn"]
        listed = sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=arn.rpartition("/")[2]
        )["TrainingJobSummaries"]
        losses = {
            each["TrainingJobName"]: each["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
            for each in listed
        }
        return len(losses) == 4 and losses[trial] == min(losses.values())

    def _environment(self, path: Path | None) -> dict[str, str]:
        places = [str(path)] if path else []
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "PYTHON"))}
        return {
            **kept,
            "PATH": os.pathsep.join([*places, os.environ["PATH"]]),
            "HOME": str(self.home),  # no configuration of whoever runs the tests
            "AWS_ENDPOINT_URL": self.engine.endpoint_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "engine-takes-any-secret",
            "AWS_DEFAULT_REGION": self.engine.region,
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(EXAMPLES / "sagemaker_config.yaml"),
            "BUCKET": self.engine.bucket,
            "ROLE_ARN": self.engine.role_arn,
        }


@pytest.fixture
def outside(engine: RunningEngine, tmp_path: Path) -> Outside:
    """An outside client of the shared engine."""
    return Outside(engine=engine, home=tmp_path)
