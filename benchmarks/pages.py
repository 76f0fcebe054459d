"""Time until the pages in Airflow's UI are drawn, and time of the server's responses.

    python benchmarks/pages.py [--points 10000] [--runs 500] [--repeats 5]

"Answer" is the server's work for one request without AWS. For the fleet page it reads a real Airflow database with
`--runs` runs and their tasks and results, for the run's page a log of `--points` lines. "First paint" and "drawn" (the
curve, or the last row of the table) are Chromium's times from the start of the navigation, with the responses ready.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkout import REPOSITORY

sys.path.insert(0, str(REPOSITORY))

from tests.dags.airflow_home import prepared_airflow_home  # before the first import of airflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from selenium.webdriver.chrome.webdriver import WebDriver

DRAWN = {
    "run": "document.querySelector('.chart canvas') !== null",
    "fleet": "document.querySelectorAll('tbody tr').length >= arguments[0]",
}
LIMIT_S = 60.0


def main() -> int:
    """Print one row per page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    fill_database(asked.runs)
    answers = {
        "fleet": seconds(lambda: fleet_from_database(asked.runs), asked.repeats),
        "run": seconds(run_from_events(asked.points), asked.repeats),
    }
    shown = in_browser(asked.points, asked.runs, asked.repeats)
    print("milliseconds, median (max)")
    print(f"{'page':<34}{'answer':>16}{'first paint':>16}{'drawn':>16}")
    for page, size in (("run", f"{asked.points} points"), ("fleet", f"{asked.runs} runs")):
        columns = (answers[page], shown[page, "paint"], shown[page, "drawn"])
        print(f"{f'{page}, {size}':<34}" + "".join(f"{described(each):>16}" for each in columns))
    return 0


def seconds(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of each repetition of some work."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken


def described(values: list[float]) -> str:
    """Return median and maximum of seconds as text, in milliseconds."""
    return f"{1000 * statistics.median(values):.0f} ({1000 * max(values):.0f})"


def fill_database(num_runs: int) -> None:
    """Create an Airflow database with runs of one DAG, each with ten tasks and the results of two."""
    prepared_airflow_home()
    from airflow.models.dag import DagModel, DagTag  # noqa: TID251  # the API server has the database
    from airflow.models.dagbundle import DagBundleModel  # noqa: TID251  # the API server has the database
    from airflow.models.dagrun import DagRun  # noqa: TID251  # the API server has the database
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251  # the API server has the database
    from airflow.models.xcom import XComModel  # noqa: TID251  # the API server has the database
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session
    from sqlalchemy import insert, select

    from tests.pages.served_pages import run_row

    initdb()
    now = datetime.now(UTC)
    with create_session() as session:
        session.add(DagBundleModel(name="dags"))
        session.flush()
        session.add(
            DagModel(
                dag_id="train_end_to_end",
                bundle_name="dags",
                is_paused=False,
                tags=[DagTag(name="trainyard")],
            )
        )
        session.flush()
        for number in range(num_runs):
            began = now - timedelta(hours=number)
            session.execute(
                insert(DagRun).values(
                    dag_id="train_end_to_end",
                    run_id=f"run {number}",
                    state="success",
                    run_type="manual",
                    start_date=began,
                    end_date=began,
                    run_after=began,
                )
            )
        ids = dict(session.execute(select(DagRun.run_id, DagRun.id)).all())
        for number in range(num_runs):
            row = run_row(number, is_over=True)
            where = {"dag_id": row.dag_id, "run_id": row.run_id}
            for task_id in (*row.returned, *(f"task_{number}" for number in range(8))):
                session.execute(
                    insert(TaskInstance).values(
                        **where,
                        task_id=task_id,
                        map_index=-1,
                        state="success",
                        try_number=1,
                        max_tries=0,
                        pool="default_pool",
                        pool_slots=1,
                        start_date=now,
                        end_date=now,
                    )
                )
            for task_id, value in row.returned.items():
                session.add(
                    XComModel(
                        dag_run_id=ids[row.run_id],
                        **where,
                        task_id=task_id,
                        key="return_value",
                        map_index=-1,
                        value=value,
                    )
                )


def fleet_from_database(num_runs: int) -> str:
    """Return the fleet's answer as JSON, as its request does."""
    from airflow.utils.session import create_session

    from trainyard.runs.live.fleet import fleet_page, month_start
    from trainyard_airflow.pages.airflow_runs import list_month_runs, list_runs

    now, dag_ids = time.time(), {"train_end_to_end"}
    with create_session() as session:
        runs = list_runs(session, dag_ids=dag_ids, limit=num_runs)
        month_runs = list_month_runs(session, dag_ids=dag_ids, since=month_start(now))
    assert len(runs) == num_runs
    return json.dumps(fleet_page(runs, month_runs=month_runs, costs={}, now=now))


def run_from_events(num_points: int) -> Callable[[], str]:
    """Return a function that creates a run's first response as JSON, from lines that are already read."""
    from tests.pages.served_pages import training_events

    events = training_events(num_points)
    return lambda: json.dumps(events.rows()[1])


def in_browser(points: int, runs: int, repeats: int) -> dict[tuple[str, str], list[float]]:
    """Return the seconds until the first paint and until the page is drawn, by page."""
    from tests.pages.served_pages import served_pages
    from tests.stack.browser import new_browser

    found: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as profile,
        served_pages(num_points=points, num_runs=runs) as address,
    ):
        browser = new_browser(Path(profile))
        try:
            for _ in range(repeats):
                for page in DRAWN:
                    browser.get(f"{address}/{page}?dag_id=d&run_id=r")
                    drawn = until_drawn(browser, page, runs)
                    found.setdefault((page, "drawn"), []).append(drawn)
                    found.setdefault((page, "paint"), []).append(first_paint(browser))
        finally:
            browser.quit()
    return found


def until_drawn(browser: WebDriver, page: str, runs: int) -> float:
    """Return the seconds from the navigation's start until the page shows its data.

    Raises:
        TimeoutError: the page does not show its data.
    """
    gives_up_at = time.monotonic() + LIMIT_S
    while time.monotonic() < gives_up_at:
        drawn: Any = browser.execute_script(
            f"return ({DRAWN[page]}) ? performance.now() : null", runs
        )
        if drawn is not None:
            return float(drawn) / 1000
        time.sleep(0.02)
    raise TimeoutError(f"{page} showed nothing within {LIMIT_S:.0f} s")


def first_paint(browser: WebDriver) -> float:
    """Return the seconds from the navigation's start to the first paint."""
    script = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return float(browser.execute_script(script)) / 1000


if __name__ == "__main__":
    raise SystemExit(main())
