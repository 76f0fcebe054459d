"""`trainyard bill`: recorded answers of Cost Explorer, served over HTTP, reconcile a run's ledger with its bill."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.runs.sample_run import sample_record
from trainyard.bill.__main__ import main
from trainyard.bill.cost_explorer import complete_at, request
from trainyard.bill.reconciliation import awaiting_bill
from trainyard.runs.record import RunRecord
from trainyard.runs.report.page import render_report_html

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunningEngine

BEGAN = datetime(2026, 11, 21, 23, 50, tzinfo=UTC).timestamp()
ENDED = datetime(2026, 11, 22, 0, 40, tzinfo=UTC).timestamp()
LEDGER_USD = 0.25


def day(date: str, after: str, *, estimated: bool = True, **usage: str) -> dict[str, Any]:
    """Return a day of the answer, in the form of the API reference's example."""
    groups = [
        {"Keys": [name], "Metrics": {"UnblendedCost": {"Amount": usd, "Unit": "USD"}}}
        for name, usd in usage.items()
    ]
    period = {"Start": date, "End": after}
    return {"TimePeriod": period, "Total": {}, "Groups": groups, "Estimated": estimated}


TRAIN = "USE1-Train:ml.m5.large"
PAGES = [
    {
        "GroupDefinitions": [{"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
        "NextPageToken": "2",
        "ResultsByTime": [day("2026-11-21", "2026-11-22", **{TRAIN: "0.0383333333"})],
        "DimensionValueAttributes": [],
    },
    {
        "GroupDefinitions": [{"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
        "ResultsByTime": [
            day(
                "2026-11-22",
                "2026-11-23",
                **{TRAIN: "0.2116666667", "USE1-Processing:ml.m5.large": "0.01"},
            )
        ],
        "DimensionValueAttributes": [],
    },
]
NOTHING = [{"ResultsByTime": [day("2026-11-21", "2026-11-22")]}]


class CostExplorer(BaseHTTPRequestHandler):
    """Cost Explorer with the pages of its server."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["X-Amz-Target"] == "AWSInsightsIndexService.GetCostAndUsage"
        self.server.asked.append(asked)  # type: ignore[attr-defined]
        pages = self.server.pages  # type: ignore[attr-defined]
        status = 200 if pages else 400
        refusal = {"__type": "AccessDeniedException", "message": "User: me is not authorized"}
        body = json.dumps(
            pages[1 if asked.get("NextPageToken") else 0] if pages else refusal
        ).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of the API that boto3 finds by its usual variable."""
    server: Any = HTTPServer(("127.0.0.1", 0), CostExplorer)
    server.asked, server.pages = [], PAGES
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_COST_EXPLORER", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """The report.json of an ended run."""
    ledger = {"entries": [], "unsettled": [], "total_usd": LEDGER_USD}
    jobs = [replace(each, created_at=BEGAN) for each in sample_record().jobs]
    record = sample_record(started_at=BEGAN, ended_at=ENDED, jobs=jobs, ledger=ledger)
    path = tmp_path / "report.json"
    path.write_text(record.to_json(), encoding="utf-8")
    return path


def later(days: float) -> Any:
    return lambda: ENDED + days * 86400


def test_request_has_the_tags_of_the_runs_jobs_and_all_of_its_days() -> None:
    asked = request(dag_id="nightly", run_id="manual__1", started_at=BEGAN, ended_at=ENDED)

    assert asked["TimePeriod"] == {"Start": "2026-11-21", "End": "2026-11-23"}, "End is exclusive"
    assert asked["Filter"]["And"] == [
        {"Tags": {"Key": "trainyard:dag", "Values": ["nightly"]}},
        {"Tags": {"Key": "trainyard:run", "Values": ["manual__1"]}},
    ]
    assert complete_at(ENDED) == datetime(2026, 11, 24, tzinfo=UTC)


def test_bill_of_a_cleared_run_has_the_days_of_all_its_jobs(api: Any, report: Path) -> None:
    record = RunRecord.from_json(report.read_text(encoding="utf-8"))
    jobs = [replace(record.jobs[0], created_at=BEGAN - 2 * 86400), *record.jobs[1:]]
    report.write_text(replace(record, jobs=tuple(jobs)).to_json(), encoding="utf-8")
    main([str(report)], now=later(3))

    entry = {"name": "job", "intended_at": BEGAN - 3 * 86400}
    cleared = replace(record, ledger={**(record.ledger or {}), "entries": [entry]})
    report.write_text(cleared.to_json(), encoding="utf-8")
    main([str(report)], now=later(3))

    starts = [each["TimePeriod"]["Start"] for each in api.asked if "NextPageToken" not in each]
    assert starts == ["2026-11-19", "2026-11-18"]


def test_bill_is_that_of_the_runs_own_deployment(
    api: Any, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.pages = NOTHING
    record = RunRecord.from_json(report.read_text(encoding="utf-8"))
    named = awaiting_bill(record, deployment="staging")
    report.write_text(named.to_json(), encoding="utf-8")

    assert main([str(report)], now=later(3)) == 1

    tags = [each["Tags"] for each in api.asked[0]["Filter"]["And"]]
    assert tags[2] == {"Key": "trainyard:deployment", "Values": ["staging"]}
    assert "trainyard:run and trainyard:deployment as cost allocation" in capsys.readouterr().out


def test_bill_of_all_pages_stands_beside_ledger_and_estimate_in_the_report(
    api: Any, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(report), "--write"], now=later(3)) == 0

    out = capsys.readouterr().out
    assert "ledger    $0.25\n" in out
    assert "billed    $0.26, +4.0% against the ledger (estimated until the month's invoice)" in out
    assert "$0.01 USE1-Processing:ml.m5.large" in out
    assert "Check the account's discounts" in out
    assert [each.get("NextPageToken") for each in api.asked] == [None, "2"]
    cost = RunRecord.from_json(report.read_text(encoding="utf-8")).cost
    assert cost["bill"]["by_usage"] == {TRAIN: 0.25, "USE1-Processing:ml.m5.large": 0.01}
    assert cost["bill_error"] == pytest.approx(0.04)
    page = report.with_suffix(".html").read_text(encoding="utf-8")
    assert "$0.26, +4.0 % against the ledger, read on 2026-11-25" in page


def test_bill_before_the_day_is_complete_says_when_to_read_it_again(
    api: Any, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.pages = PAGES[1:]

    assert main([str(report)], now=later(0.5)) == 0

    out = capsys.readouterr().out
    assert "has all of the run's days from 2026-11-24 00:00 UTC" in out
    assert "Check the account's discounts" not in out
    assert not report.with_suffix(".html").exists(), "without --write nothing is stored"


def test_report_of_a_run_on_aws_has_the_day_from_which_its_bill_is_known() -> None:
    record = sample_record(started_at=BEGAN, ended_at=ENDED)

    assert "billed by AWS" not in render_report_html(record)
    page = render_report_html(awaiting_bill(record))
    assert "not known yet; from 2026-11-24 00:00 UTC by trainyard bill REPORT.json --write" in page


def test_run_without_a_cost_is_told_to_activate_the_tags(
    api: Any, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.pages = NOTHING

    assert main([str(report)], now=later(3)) == 1

    out = capsys.readouterr().out
    assert "no cost with the run's tags" in out
    assert "Activate trainyard:dag and trainyard:run as cost allocation tags" in out


def test_refusal_of_cost_explorer_names_the_permission(
    api: Any, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.pages = []

    assert main([str(report)], now=later(3)) == 2

    assert "ce:GetCostAndUsage" in capsys.readouterr().err


def test_bill_in_another_currency_is_not_a_missing_permission(
    api: Any, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(PAGES[1:]).replace('"USD"', '"EUR"')
    api.pages = json.loads(text)

    assert main([str(report)], now=later(3)) == 2

    error = capsys.readouterr().err
    assert "got: EUR" in error
    assert "ce:GetCostAndUsage" not in error


def test_bill_that_cannot_be_stored_is_an_error(
    api: Any, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.with_suffix(".html").unlink(missing_ok=True)
    report.with_suffix(".html").mkdir()

    assert main([str(report), "--write"], now=later(3)) == 2

    assert "the bill cannot be written" in capsys.readouterr().err


@pytest.mark.engine
def test_stored_bill_keeps_the_encryption_of_the_report(
    api: Any, report: Path, engine: RunningEngine, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key, "BucketKeyEnabled": True}
    s3.create_bucket(Bucket="encrypted-reports")
    for name in ("report.json", "report.html"):
        place = {"Bucket": "encrypted-reports", "Key": f"run/{name}"}
        s3.put_object(**place, Body=report.read_bytes(), **encryption)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", engine.endpoint_url)

    assert main(["s3://encrypted-reports/run/report.json", "--write"], now=later(3)) == 0

    for name in ("report.json", "report.html"):
        stored = s3.get_object(Bucket="encrypted-reports", Key=f"run/{name}")
        assert b"0.26" in stored["Body"].read()
        assert {each: stored.get(each) for each in encryption} == encryption
