from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.state.jobs import ResourceKind

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


def test_half_a_line_of_metrics_hides_no_other(engine: RunningEngine) -> None:
    folder = engine.root / "jobs" / ResourceKind.TRAINING.value / "half-a-line"
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


def test_what_a_host_uses_is_found_by_host_in_percent(engine: RunningEngine) -> None:
    folder = engine.root / "jobs" / ResourceKind.TRAINING.value / "by-host"
    folder.mkdir(parents=True)
    now = time.time()
    told = {"t": int(now * 1000), "name": "CPUUtilization", "value": 150.0}
    line = json.dumps({**told, "host": "algo-2", "unit": "Percent"}) + "\n"
    (folder / "host_metrics.jsonl").write_text(line)

    [point] = engine.client("cloudwatch").get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="CPUUtilization",
        Dimensions=[{"Name": "Host", "Value": "by-host/algo-2"}],
        StartTime=datetime.fromtimestamp(now - 120, UTC),
        EndTime=datetime.fromtimestamp(now + 120, UTC),
        Period=60,
        Statistics=["Average"],
        Unit="Percent",
    )["Datapoints"]

    assert point["Average"] == pytest.approx(150.0)
    assert point["Unit"] == "Percent"
