from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from include.local_engine.store import JobKind

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


def test_half_a_line_of_metrics_hides_no_other(engine: RunningEngine) -> None:
    folder = engine.root / "jobs" / JobKind.TRAINING.value / "half-a-line"
    folder.mkdir(parents=True)
    first, second = (
        json.dumps({"t": int(time.time() * 1000), "name": name, "value": 1.0}) + "\n"
        for name in ("first", "second")
    )
    (folder / "metrics.jsonl").write_text(first + first[:20] + second + second)

    found = engine.client("cloudwatch").list_metrics(
        Dimensions=[{"Name": "TrainingJobName", "Value": "half-a-line"}]
    )["Metrics"]

    assert {each["MetricName"] for each in found} == {"first", "second"}
