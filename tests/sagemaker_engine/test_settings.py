from __future__ import annotations

from pathlib import Path

import pytest

from sagemaker_engine.__main__ import CANNOT_START, main
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import ResourceKind

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
