"""Addresses of a run's report in S3: those of the report task's result, and only the run's own."""

from __future__ import annotations

from typing import Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from trainyard.runs.live.facts import RunRow
from trainyard_airflow.pages.app import _report_address
from trainyard_airflow.tasks.shared.run_paths import RunPaths

OWN = "s3://b/trainyard/team/runs/a_dag/run-1/report"
PATHS = {"bucket": "b", "prefix": "trainyard", "deployment": "team"}
FORGED = [
    "s3://b/trainyard/team/runs/a_dag/run-2/report/report.html",
    "s3://b/trainyard/team/runs/another_dag/run-1/report/report.html",
    f"{OWN}/../../run-2/report/report.html",
    "s3://b/trainyard/team/runs/a_dag/run-1/output/report.html",
    f"{OWN}.html",
    "report.html",
]


def row(*, html: Any = None, paths: dict[str, Any] | None = None) -> RunRow:
    """Return an ended run with the results of its report and, if `paths` are given, of its preflight."""
    returned = {"report": {"report_html": html}} | (
        {"preflight": {"paths": paths}} if paths else {}
    )
    return RunRow(
        dag_id="a_dag",
        run_id="run-1",
        state="success",
        run_type="manual",
        queued_at=None,
        start=1.0,
        end=2.0,
        note=None,
        returned=returned,
    )


def test_a_report_is_found_without_a_result_of_preflight() -> None:
    run = row(html=f"{OWN}/report.html")
    assert _report_address(run, "report.html") == f"{OWN}/report.html"
    assert _report_address(run, "report.json") == f"{OWN}/report.json"


def test_the_button_of_a_comparison_opens_its_page() -> None:
    run = row(html=f"{OWN}/comparison.html", paths=PATHS)
    assert _report_address(run, "report.html") == f"{OWN}/comparison.html"
    assert _report_address(run, "comparison.json") == f"{OWN}/comparison.json"


def test_without_a_report_its_files_are_where_preflight_planned_them() -> None:
    planned = RunPaths(**PATHS, dag_id="a_dag", run_id="run-1").report
    assert _report_address(row(paths=PATHS), "rules.json") == f"{planned}/rules.json"
    assert planned == OWN


def test_a_report_of_an_earlier_release_without_deployments_is_found() -> None:
    paths = {"bucket": "b", "prefix": "trainyard"}
    assert _report_address(row(paths=paths), "report.html") == (
        "s3://b/trainyard/runs/a_dag/run-1/report/report.html"
    )


@pytest.mark.parametrize("html", FORGED)
def test_an_address_outside_of_the_run_s_own_report_is_not_read(html: str) -> None:
    assert _report_address(row(html=html, paths=PATHS), "report.html") is None


@pytest.mark.parametrize("name", ["model.tar.gz", "comparison.parquet", "../report.html", ""])
def test_other_files_of_the_report_s_folder_are_not_read(name: str) -> None:
    assert _report_address(row(html=f"{OWN}/report.html", paths=PATHS), name) is None
