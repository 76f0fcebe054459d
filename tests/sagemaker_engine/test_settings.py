from __future__ import annotations

from pathlib import Path

import pytest

from sagemaker_engine.__main__ import CANNOT_START, main
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.testing.running_engine import RunningEngine

SETTINGS = EngineSettings(root=Path("/state"), endpoint_url="http://127.0.0.1:1", time_scale=0.5)


def test_settings_come_back_from_json() -> None:
    assert EngineSettings.from_json(SETTINGS.to_json()) == SETTINGS


def test_job_folder_is_named_by_kind_and_name() -> None:
    assert SETTINGS.job_folder(ResourceKind.TRAINING, "job") == Path("/state/jobs/training/job")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"time_scale": 0}, "must be above 0"),
        ({"account": "12"}, "12 digits"),
        ({"root": Path("state")}, "absolute"),
    ],
    ids=["time-scale", "account", "root"],
)
def test_settings_reject(values: dict[str, object], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        EngineSettings(**{"root": Path("/state"), "endpoint_url": "", **values})


def test_a_wrong_word_in_the_environment_is_told_with_the_right_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINYARD_BUILD_IMAGES", "sometimes")

    assert main(["--root", str(tmp_path), "--port", "0"]) == CANNOT_START

    assert "is 'sometimes'; allowed: on-demand, never" in capsys.readouterr().err


def test_a_folder_of_image_files_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "absent")

    assert main(["--root", str(tmp_path / "root"), "--image-files", absent]) == CANNOT_START
    assert f"--image-files is '{absent}', which is not a folder" in capsys.readouterr().err


def test_the_command_knows_the_images_that_come_with_it(tmp_path: Path) -> None:
    running = RunningEngine(
        root=tmp_path / "engine", warm="never", arguments=("--build-images", "never")
    ).start()
    try:
        image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.19.0-cpu-py312"
        created = running.client("sagemaker").create_training_job(
            TrainingJobName="tensorflow",
            AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
            RoleArn=running.role_arn,
            OutputDataConfig={"S3OutputPath": f"s3://{running.bucket}/out"},
            ResourceConfig={
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )
    finally:
        running.stop()

    assert created["TrainingJobArn"].endswith(":training-job/tensorflow")
