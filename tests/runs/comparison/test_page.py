from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.runs.comparison.samples import cell, comparison
from trainyard.runs.comparison.findings import findings_of
from trainyard.runs.comparison.page import render_comparison_html
from trainyard.runs.comparison.table import table_lines, to_parquet
from trainyard.runs.report.axes import TIMES

if TYPE_CHECKING:
    from trainyard.runs.comparison.record import ComparisonRecord


@pytest.fixture
def record() -> ComparisonRecord:
    return comparison(
        cell("ddp", 1, 100.0),
        cell("ddp", 2, 180.0),
        cell("fsdp", 1, 80.0),
        cell("fsdp", 2, None),
    )


def test_page_needs_nothing_else_and_shows_every_cell(record: ComparisonRecord) -> None:
    page = render_comparison_html(record, findings_of(record))

    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    for name in ("ddp x 1", "ddp x 2", "fsdp x 1", "fsdp x 2"):
        assert f"<td>{name}</td>" in page
    assert "the script raised: ValueError: &lt;no&gt;" in page
    assert "Compared in part" in page


def test_settings_name_the_images_and_digests_of_the_cells() -> None:
    first, second = ({"image_uri": "r/pytorch:1", "image_digest": f"sha256:{n}"} for n in "ab")
    other = {"image_uri": "r/deepspeed:1"}
    record = comparison(
        cell("ddp", 1, 100.0, **first),
        cell("ddp", 2, 180.0, **second),
        cell("fsdp", 1, 80.0, **first),
        cell("zero", 1, 80.0, **other),
        cell("tensor", 2, None),
    )

    page = render_comparison_html(record, findings_of(record))

    rows = re.findall(r"<dt>image of ([^<]+)</dt><dd>([^<]+)</dd>", page)
    assert rows == [
        ("ddp x 1, fsdp x 1", "r/pytorch:1, sha256:a"),
        ("ddp x 2", "r/pytorch:1, sha256:b"),
        ("zero x 1", "r/deepspeed:1, digest not known"),
    ]


def test_every_axis_has_its_unit(record: ComparisonRecord) -> None:
    page = render_comparison_html(record, findings_of(record))

    labels = re.findall(r'<text class="label"[^>]*>([^<]+)</text>', page)
    assert set(labels) == {
        *("ranks", "samples/s, all ranks", "%", f"USD, one pass over the data {TIMES}10⁻³", "MiB"),
        *("% of the steps&#39; time", "optimizer step", "training loss (nats per token)"),
    }


def test_run_that_failed_before_its_cells_says_why() -> None:
    record = comparison(
        failure={"what": "2 problem(s)", "task_id": "preflight", "error": "SpecError"}
    )

    page = render_comparison_html(record, findings_of(record))

    assert "2 problem(s)" in page
    assert "<svg" not in page


def test_table_of_the_log_has_a_line_for_each_cell(record: ComparisonRecord) -> None:
    lines = table_lines(record, findings_of(record))

    assert [line.split("  ")[0] for line in lines] == [
        *("cell", "ddp x 1", "ddp x 2", "fsdp x 1", "fsdp x 2")
    ]
    assert "90%" in lines[2]
    assert "Failed: the script raised" in lines[4]


def test_parquet_has_a_row_for_each_cell_and_json_the_whole(record: ComparisonRecord) -> None:
    import pyarrow.parquet as pq

    findings = findings_of(record)
    rows = pq.read_table(io.BytesIO(to_parquet(record, findings))).to_pylist()

    assert [each["cell"] for each in rows] == [each.name for each in record.cells]
    assert rows[1]["samples_per_second"] == 180
    assert rows[1]["efficiency"] == pytest.approx(0.9)
    assert rows[1]["peak_memory_bytes"] == 401 * 2**20
    assert rows[3]["samples_per_second"] is None
    assert rows[3]["failure"].startswith("the script raised")
    whole = json.loads(record.to_json(findings.to_dict()))
    assert whole["status"] == "incomplete"
    assert whole["knees"][0]["strategy"] == "ddp"
