"""The metrics file of a job: scraped values, and the values that an earlier runner wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sagemaker_engine.jobs.metrics import FILE_NAME, MetricScraper, read_curve

if TYPE_CHECKING:
    from pathlib import Path

LOSS = {"Name": "loss", "Regex": r"loss=([0-9.]+)"}


def test_the_curve_of_a_metric_has_its_values_in_order(tmp_path: Path) -> None:
    scraper = MetricScraper([LOSS, {"Name": "accuracy", "Regex": r"accuracy=([0-9.]+)"}], tmp_path)

    scraper.line(1000, "loss=2.5 accuracy=0.5")
    scraper.line(2000, "loss=1.5")

    assert read_curve(tmp_path, "loss") == (2.5, 1.5)


def test_a_job_without_metrics_has_an_empty_curve(tmp_path: Path) -> None:
    assert read_curve(tmp_path, "loss") == ()


def test_a_line_that_a_full_disk_cut_hides_no_other(tmp_path: Path) -> None:
    first, second, third = (
        json.dumps({"t": 1000 * value, "name": "loss", "value": float(value)}) + "\n"
        for value in (1, 2, 3)
    )
    (tmp_path / FILE_NAME).write_text(first + first[:20] + second + third + third[:20])

    (final,) = MetricScraper([LOSS], tmp_path).final()

    assert (final["Value"], final["Timestamp"]) == (3.0, 3.0)
    assert read_curve(tmp_path, "loss") == (1.0, 3.0)
