"""The recorded requests of the SDK v2 are those that the SDK v2 sends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import EXAMPLES, LIMIT_S

pytestmark = pytest.mark.slow

SPECS = Path(__file__).resolve().parents[1] / "specs"


def test_the_sdk_v2_sends_the_golden_requests(sdk_v2: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [str(sdk_v2), str(SPECS / "sdk_v2_requests.py"), "--folder", str(tmp_path)],
        env={
            **os.environ,
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(EXAMPLES / "sagemaker_config.yaml"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]

    assert read(tmp_path) == read(SPECS / "golden" / "sdk_v2")


def read(folder: Path) -> dict[str, object]:
    """Return the requests of a folder by their case."""
    files = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}
