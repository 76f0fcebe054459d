"""The report's section on the search: why the winner won, in words, tables and charts."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.runs.sample_run import sample_record
from tests.runs.sample_search import sample_result, sample_trials
from trainyard.runs.record import RunRecord
from trainyard.runs.report.axes import NameAxis, count_axis, log_axis
from trainyard.runs.report.marks import Frame
from trainyard.runs.report.page import render_report_html
from trainyard.runs.report.tuning_charts import Dot, best_so_far, importance_bars, limit_of
from trainyard.runs.report.tuning_view import TuningView, tuning_view
from trainyard.specs.run_conf import RunConf
from trainyard.tuning.document import tuning_document
from trainyard.tuning.provenance import provenance
from trainyard.tuning.result import EndedBy
from trainyard.tuning.trials import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.tuning.result import TuningResult

FRAME = Frame(width=500, height=200)
LOG = {"scaling_type": "Logarithmic"}
CONF = RunConf(
    tune=True,
    tuning_ranges={
        "learning_rate": {"min_value": 5e-4, "max_value": 1.6e-2, **LOG},
        "weight_decay": {"min_value": 0.01, "max_value": 0.5, **LOG},
    },
)


def document(
    trials: Sequence[Trial] | None = None, result: TuningResult | None = None, conf: RunConf = CONF
) -> dict[str, Any]:
    found = sample_result() if result is None else result
    if trials is None:
        return {**sample_document(), "result": found.to_dict()}
    return tuning_document(conf, trials=trials, result=found)


@cache
def sample_document() -> dict[str, Any]:
    """Return the document of the sample search. What mattered takes its time to work out: once."""
    sent = {"learning_rate": 0.0021, "weight_decay": 0.046, "max_steps": 400, "clip_norm": 0.5}
    asked = dataclasses.replace(CONF, hyperparameters={"clip_norm": 0.5})
    found = sample_result()
    chosen = provenance(sent, conf=asked, tuned=found.best.tuned_values)
    return tuning_document(CONF, trials=sample_trials(), result=found, chosen=chosen)


def record(tuning: dict[str, Any] | None) -> RunRecord:
    return dataclasses.replace(sample_record(), tuning=tuning)


def view(**parts: Any) -> TuningView:
    found = tuning_view(record(document(**parts)))
    assert found is not None
    return found


def test_a_run_without_a_search_has_no_section() -> None:
    assert 'id="tuning"' not in render_report_html(record(None))


def test_the_document_is_json_and_read_back_with_its_record() -> None:
    kept = record(json.loads(json.dumps(document(), allow_nan=False)))

    assert RunRecord.from_json(kept.to_json()).tuning == kept.tuning


def test_the_section_says_who_won_and_why() -> None:
    shown = view()

    assert (shown.sentence, shown.tone) == ("Trial 8 of 12 won with validation:loss 2.412", "good")
    first, second, third = shown.reasons
    assert "2.412 is 0.019 (0.8%) below the next best trial's, and 0.078 below the median" in first
    assert second.startswith("learning_rate mattered most: it alone explains ")
    assert second.endswith("; the winner has 0.0021.")
    assert "Trials took 100 steps, the final training takes 400" in third


def test_a_search_that_was_cut_short_says_so_and_by_what() -> None:
    shown = view(result=sample_result(is_complete=False, status="Stopped", ended_by=EndedBy.BUDGET))

    assert shown.sentence.endswith("validation:loss 2.412, the best so far")
    assert shown.tone == "warn"
    ended = next(each for each in shown.numbers if each.name == "Ended by")
    assert (ended.value, ended.note) == (
        "its budget",
        "the next trials would have crossed its budget",
    )


def test_the_numbers_count_trials_and_money() -> None:
    numbers = {each.name: each for each in view().numbers}

    assert numbers["Trials"].value == "12 of 12"
    assert numbers["Trials"].note == "10 completed, 1 stopped early, 1 failed"
    assert numbers["Cost of the search"].value == "$0.0442"
    assert numbers["Cost of the search"].note == "estimated at most $2.76, budget $1.00"


def test_short_trainings_are_told_from_those_they_cannot_be_compared_with() -> None:
    trials = [
        dataclasses.replace(each, is_early_stopped=True, definition="trial 1, 60 steps")
        for each in sample_trials()[:3]
    ]
    shown = view(trials=[*trials, *sample_trials()[3:]])

    assert next(iter(shown.numbers)).note == "7 completed, 4 short, 1 failed"
    row = next(each for each in shown.trials if each.number == 3)
    assert (row.state, row.note) == ("short", "trial 1, 60 steps")
    assert "median of the other 6." in shown.reasons[0]


def test_trials_are_named_without_what_all_their_names_begin_with() -> None:
    assert view().trials[0].job == "008-00013556"
    assert tuning_view(record(tuning_document(CONF, trials=sample_trials(), result=None)))


def test_the_legend_names_the_kinds_of_trial_that_occur() -> None:
    whole = [each for each in sample_trials() if each.status == "Completed"]

    assert "failed" in view().figures[0].legend
    assert "failed" not in view(trials=whole).figures[0].legend
    assert view(trials=whole).figures[0].note == ""


def test_an_unknown_price_is_not_shown_as_zero() -> None:
    shown = view(result=sample_result(cost_usd=None, estimated_cost_usd=None, budget_usd=None))

    cost = next(each for each in shown.numbers if each.name == "Cost of the search")
    assert (cost.value, cost.note) == ("unknown", "")


def test_trials_stand_from_the_best_to_the_failed() -> None:
    rows = view().trials

    assert [each.number for each in rows[:3]] == [8, 11, 7]
    assert (rows[0].state, rows[0].behind) == ("winner", "")
    assert (rows[1].objective, rows[1].behind, rows[1].values) == (
        "2.431",
        "0.019",
        ("0.0027", "0.064"),
    )
    assert (rows[-1].state, rows[-1].note) == ("failed", "AlgorithmError: the loss is not finite")
    assert rows[-2].state == "stopped early"


def test_of_very_many_trials_the_best_are_shown_and_the_rest_counted() -> None:
    trials = [
        dataclasses.replace(each, training_job_name=f"{each.training_job_name}-{again}")
        for again in range(6)
        for each in sample_trials()
    ]
    shown = view(trials=trials)

    assert (len(shown.trials), shown.num_hidden) == (50, 22)


def test_hyperparameters_of_the_training_say_where_they_come_from() -> None:
    shown = view()

    assert [(each.name, each.value, each.origin, each.instead_of) for each in shown.chosen] == [
        ("learning_rate", "0.0021", "tuned", "0.004"),
        ("weight_decay", "0.046", "tuned", ""),
        ("clip_norm", "0.5", "conf", ""),
    ]
    assert [each.name for each in shown.others] == ["max_steps"]


def test_too_few_trials_leave_the_importance_out_and_say_why() -> None:
    shown = view(trials=sample_trials()[:8])

    assert [each.title for each in shown.figures] == [
        "Best so far",
        "learning_rate",
        "weight_decay",
    ]
    assert (
        "is not known: 7 trials with a result are too few for 2 hyperparameters" in shown.reasons[1]
    )


def test_a_search_without_a_winner_still_shows_its_trials() -> None:
    failed = [
        dataclasses.replace(each, status="Failed", objective=None) for each in sample_trials()
    ]
    found = tuning_document(CONF, trials=failed, result=None)
    shown = tuning_view(record(found))

    assert shown is not None
    assert (shown.sentence, shown.tone, shown.reasons) == ("The search found no winner", "bad", ())
    assert len(shown.trials) == 12
    assert shown.figures == ()
    assert 'id="tuning"' in render_report_html(record(found))


def test_every_searched_hyperparameter_has_its_chart_with_units() -> None:
    html = render_report_html(record(document()))

    for label in (
        "validation:loss (nats per token)",
        "learning_rate (logarithmic)",
        "weight_decay (logarithmic)",
        "share of the variance it explains (%)",
        "trial, in the order of starting",
    ):
        assert label in html
    assert html.count('class="trial best"') == 3


def test_categories_are_an_axis_of_names() -> None:
    conf = RunConf(tune=True, tuning_ranges={"precision": ["fp32", "bf16"]}, tuning_max_jobs=2)
    trials = [
        Trial(training_job_name=name, status="Completed", objective=loss, tuned_hyperparameters={"precision": name})
        for name, loss in (("fp32", 2.0), ("bf16", 2.1))
    ]  # fmt: skip
    shown = view(trials=trials, conf=conf)

    svg = shown.figures[1].svg
    assert re.search(r">fp32</text>", svg)
    assert svg.count("<circle") == 2


def test_names_of_hyperparameters_and_failures_are_escaped() -> None:
    trials = sample_trials()
    trials[5] = dataclasses.replace(trials[5], failure_reason="<script>alert(1)</script>")

    assert "<script>alert(1)" not in render_report_html(record(document(trials=trials)))


@pytest.mark.parametrize("maximize", [False, True], ids=["minimize", "maximize"])
def test_best_so_far_only_gets_better(maximize: bool) -> None:
    dots = [
        Dot(number=number, kind="completed", objective=value, values={})
        for number, value in enumerate((3.0, 2.0, 2.5, 4.0, 1.0), 1)
    ]
    svg = best_so_far(dots, metric="loss", maximize=maximize, frame=FRAME)
    path = re.search(r'class="curve train" points="([^"]+)"', svg)
    assert path
    heights = [float(point.split(",")[1]) for point in path[1].split()]
    assert heights == sorted(heights, reverse=maximize)


def test_a_diverged_trial_is_drawn_at_the_edge_and_flattens_nothing() -> None:
    dots = [
        Dot(number=number, kind="completed", objective=value, values={})
        for number, value in enumerate((2.4, 2.5, 2.6, 2.7, 90.0), 1)
    ]
    svg = best_so_far(dots, metric="loss", maximize=False, frame=FRAME)

    assert limit_of([2.4, 2.5, 2.6, 2.7, 90.0], maximize=False) == pytest.approx(4.2)
    assert svg.count("<circle") == 4
    assert svg.count('<path class="trial completed"') == 1
    assert ">2.5<" in svg


def test_no_objective_at_all_gives_no_chart() -> None:
    dots = [Dot(number=1, kind="failed", objective=None, values={})]

    assert best_so_far(dots, metric="loss", maximize=False, frame=FRAME) == ""


def test_a_bar_is_as_long_as_its_share() -> None:
    shares = [{"name": "a", "share": s, "low": s, "high": s} for s in (0.75, 0.25)]
    svg = importance_bars(shares, width=400)
    long, short = (float(w) for w in re.findall(r'class="share"[^>]* width="([\d.]+)"', svg))

    assert long == pytest.approx(3 * short, rel=0.01)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1e-4, 1e-1, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
        (5e-4, 1.6e-2, (5e-4, 1e-3, 2e-3, 5e-3, 1e-2)),
        (1e-8, 1.0, tuple(10.0**power for power in range(-8, 1))),
        (4.1, 4.9, (4.1, 4.9)),
    ],
)
def test_logarithmic_ticks_are_round_and_few(
    low: float, high: float, ticks: tuple[float, ...]
) -> None:
    axis = log_axis(low, high, start=0, end=100, num_ticks=7)

    assert axis.ticks == pytest.approx(ticks)
    assert (axis.pixel(low), axis.pixel(high)) == (0, 100)
    assert axis.pixel((low * high) ** 0.5) == pytest.approx(50)


def test_very_small_ticks_are_written_short() -> None:
    axis = log_axis(1e-6, 1e-2, start=0, end=100, num_ticks=9)

    assert [axis.tick_label(tick) for tick in (1e-6, 1e-4, 2e-3)] == ["1e-6", "0.0001", "0.002"]


def test_numbers_and_names_stand_in_the_middle_of_their_bands() -> None:
    assert count_axis(4, start=0, end=80).pixel(1) == 10
    assert NameAxis(names=("a", "b"), start=0, end=80).pixel(1) == 60
    assert len(count_axis(750, start=0, end=800).ticks) <= 26
