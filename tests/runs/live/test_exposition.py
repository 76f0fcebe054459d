"""Metrics of the runs, as Prometheus' own parser reads them, and the dashboard that queries them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.pages.served_pages import BEGUN, run_answer, run_row, training_events
from trainyard.runs.live.exposition import METRICS, MORE_LABELS, RUN_LABELS, LivePage, exposition
from trainyard.runs.live.fleet import fleet_page

if TYPE_CHECKING:
    from trainyard.runs.live.facts import RunRow

DASHBOARD = Path(__file__).parents[3] / "docs/examples/grafana_dashboard.json"
NOW = BEGUN + 5000
KEY = ("train_end_to_end", "run 0")


def sampled(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return labels and value of each sample by metric, and check that the parser finds gauges alone."""
    families = list(text_string_to_metric_families(text))
    assert {each.type for each in families} == {"gauge"}
    return {
        each.name: [(sample.labels, sample.value) for sample in each.samples] for each in families
    }


def scraped(*runs: RunRow, live: dict[Any, LivePage] | None = None, **costs: float) -> Any:
    known: dict[tuple[str, str], float | None] = {
        ("train_end_to_end", run_id): usd for run_id, usd in costs.items()
    }
    fleet = fleet_page(runs, month_runs=runs, costs=known, now=NOW)
    return sampled(exposition(fleet, live=live or {}, num_unread=3))


def live_page() -> LivePage:
    return LivePage(page=run_answer(1000), newest=training_events(1000).newest)


def test_a_running_run_has_its_progress_money_time_and_findings() -> None:
    found = scraped(run_row(), live={KEY: live_page()}, **{"run 0": 3.25})

    def value(name: str, **labels: str) -> float:
        (sample,) = [value for given, value in found[name] if labels.items() <= given.items()]
        return sample

    assert found["trainyard_run_cost_usd"] == [
        ({"dag_id": KEY[0], "run_id": KEY[1], "team": ""}, 3.25)
    ]
    assert value("trainyard_run_cost_ceiling_usd") == 120.0
    assert value("trainyard_run_accelerators") == 16
    assert value("trainyard_run_step") == 950
    assert value("trainyard_run_max_steps") == 1000
    assert value("trainyard_run_metric", metric="loss") == pytest.approx(3.3, abs=0.2)
    assert value("trainyard_run_metric", metric="tokens_per_second") > 8000
    assert value("trainyard_run_jobs", task_id="train") == 1
    assert value("trainyard_run_interruptions") == 1
    assert value("trainyard_run_restarts") == 1
    assert value("trainyard_run_rule_findings", severity="warning") == 1
    wall = sum(value for _, value in found["trainyard_run_wall_seconds"])
    assert wall == pytest.approx(2000, abs=1)  # the page's clock
    assert 0 < value("trainyard_run_goodput_ratio") < 1
    assert value("trainyard_run_info", stage="train", state="running", model="gpt") == 1


def test_only_running_and_recently_ended_runs_have_series() -> None:
    ended = run_row(1, is_over=True)
    old = replace(run_row(2, is_over=True), end=NOW - 3601)

    found = scraped(run_row(), ended, old)

    assert {labels["run_id"] for labels, _ in found["trainyard_run_info"]} == {"run 0", "run 1"}
    assert [value for _, value in found["trainyard_run_cost_usd"]] == [1.5]  # run 0's is unknown
    assert found["trainyard_runs_without_live_metrics"] == [({}, 3.0)]
    assert dict(found["trainyard_spend_usd"][1][0]) == {"period": "month"}


def test_hostile_names_and_values_do_not_break_the_format() -> None:
    name = 'a "b"\\\n{c="d"} 1'
    row = replace(run_row(), run_id=name, returned={"preflight": {"team": name}})
    newest = {"loss": math.inf, "other": -math.inf, "none": math.nan}
    page = LivePage(page=live_page().page, newest=newest)

    found = scraped(row, live={(KEY[0], name): page})

    labels, _ = found["trainyard_run_info"][0]
    assert (labels["run_id"], labels["team"]) == (name, name)
    values = [(labels["metric"], value) for labels, value in found["trainyard_run_metric"]]
    assert values == [("loss", math.inf), ("other", -math.inf)]


def test_the_number_of_metric_names_of_a_script_is_bounded() -> None:
    events = training_events(2)
    line = events.log_tail[-1]
    for number in range(300):
        events.read(replace(line, text=f"trainyard step=3 m{number}=1"))
    assert len(events.newest) == 50


def queries() -> list[str]:
    board = json.loads(DASHBOARD.read_text())
    panels = [each["expr"] for panel in board["panels"] for each in panel.get("targets", ())]
    return panels + [str(each["query"]) for each in board["templating"]["list"] if "query" in each]


def test_every_query_of_the_dashboard_is_of_known_metrics_and_labels() -> None:
    assert len(queries()) > 10
    for query in queries():
        metrics = re.findall(r"trainyard_\w+", query)
        if query == "prometheus":
            continue
        assert metrics, query
        assert set(metrics) <= METRICS.keys(), query
        known = {*RUN_LABELS, *(label for each in metrics for label in MORE_LABELS.get(each, ()))}
        labels = re.findall(r"(\w+)\s*=~?\s*\"", query)
        labels += re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", query)))
        assert set(labels) <= known, query


def test_the_dashboard_shows_every_metric() -> None:
    assert METRICS.keys() == {
        each for query in queries() for each in re.findall(r"trainyard_\w+", query)
    }
