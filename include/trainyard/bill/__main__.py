"""`trainyard bill`: print estimate, ledger and bill of an ended run, and store the bill in its report.json."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.bill.cost_explorer import RunBill, request
from trainyard.bill.reconciliation import began_at, lines, reconciled
from trainyard.errors import ContractError
from trainyard.runs.record import RunRecord
from trainyard.runs.report.page import render_report_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

API_REGION = "us-east-1"
"""Region of Cost Explorer's only endpoint."""
FAILED = 2
_ENCRYPTION = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")


def main(arguments: Sequence[str] | None = None, *, now: Callable[[], float] = time.time) -> int:
    """Print estimate, ledger and AWS's bill of one ended run; with `--write`, also store the bill.

    Return 0 if Cost Explorer has costs of the run, 1 if it has none yet, or 2 after an error: report.json cannot be
    read or is not of an ended run, the request to Cost Explorer failed, or the bill cannot be stored.
    """
    options = _parser().parse_args(arguments)
    try:
        content, encryption = _read(options.report)
        record = RunRecord.from_json(content)
    except (OSError, BotoCoreError, ClientError, ContractError) as error:
        sys.stderr.write(f"error: {options.report}: {error}\n")
        return FAILED
    if record.started_at is None or record.ended_at is None:
        sys.stderr.write(
            f"error: {options.report}: the run has no start time or no end time; pass the report of an ended run\n"
        )
        return FAILED
    try:
        bill = RunBill.of(_answers(record), ended_at=record.ended_at, now=now())
    except ContractError as error:
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    except (BotoCoreError, ClientError) as error:
        sys.stderr.write(
            f"error: Cost Explorer: {error}; your AWS identity needs ce:GetCostAndUsage\n"
        )
        return FAILED
    document = json.loads(record.to_json())
    for line in lines(document, bill, ended_at=record.ended_at):
        sys.stdout.write(f"{line}\n")
    if options.write:
        billed = RunRecord.from_json(json.dumps(reconciled(document, bill)))
        try:
            _store(options.report, billed, encryption=encryption)
        except (OSError, BotoCoreError, ClientError) as error:
            sys.stderr.write(f"error: {options.report}: the bill cannot be written: {error}\n")
            return FAILED
    return 0 if bill.usd is not None else 1


def _answers(record: RunRecord) -> Iterator[dict[str, Any]]:
    client = boto3.client("ce", region_name=API_REGION)
    asked = request(
        dag_id=record.dag_id,
        run_id=record.run_id,
        deployment=record.cost.get("deployment"),
        started_at=began_at(record),
        ended_at=record.ended_at or 0.0,
    )
    token: dict[str, str] = {}
    while True:
        answer = client.get_cost_and_usage(**asked, **token)
        yield answer
        if not answer.get("NextPageToken"):
            return
        token = {"NextPageToken": answer["NextPageToken"]}


def _store(place: str, record: RunRecord, *, encryption: Mapping[str, Any]) -> None:
    """Write the record to report.json, and its page to report.html."""
    _write(place, record.to_json(), ContentType="application/json", **encryption)
    page = place.removesuffix(".json") + ".html"
    html = render_report_html(record)
    _write(page, html, ContentType="text/html; charset=utf-8", **encryption)
    sys.stdout.write(f"wrote     {place} and {page}\n")


def _read(place: str) -> tuple[bytes, dict[str, Any]]:
    """Return the content of a file or an S3 object, and the object's encryption as arguments of PutObject."""
    if not place.startswith("s3://"):
        return Path(place).read_bytes(), {}
    at = urlsplit(place)
    answer = boto3.client("s3").get_object(Bucket=at.netloc, Key=at.path.lstrip("/"))
    return answer["Body"].read(), {name: answer[name] for name in _ENCRYPTION if name in answer}


def _write(place: str, content: str, **members: Any) -> None:
    if not place.startswith("s3://"):
        Path(place).write_text(content, encoding="utf-8")
        return
    at = urlsplit(place)
    boto3.client("s3").put_object(
        Bucket=at.netloc, Key=at.path.lstrip("/"), Body=content.encode(), **members
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainyard bill", description=__doc__)
    parser.add_argument("report", help="the run's report.json: a path or s3://bucket/key")
    parser.add_argument(
        "--write", action="store_true", help="store the bill in report.json and report.html"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
