"""The verdicts of a training's jobs as one document."""

from __future__ import annotations

import math

import pytest

from trainyard.rules.configuration import configured_rules
from trainyard.rules.document import merged, rules_document, with_log
from trainyard.rules.evaluation import evaluate
from trainyard.rules.records import Facts, StepRecord

FACTS = Facts(precision="bf16", skipped_steps=0)


def watched(job: str, *losses: float, rules: tuple[str, ...] = ("NonFinite", "DataStall")) -> dict:
    """Return the document of a job with these losses."""
    records = [StepRecord(step=n, rank=0, loss=loss) for n, loss in enumerate(losses, start=1)]
    document = rules_document(evaluate(configured_rules(list(rules)), records, FACTS))
    return {**document, "job": job, "num_records": len(records), "stopped_by": None}


def test_one_jobs_document_stays_as_it_is() -> None:
    one = watched("a", 1.0, math.nan)
    assert merged([one]) == one


def test_an_issue_of_an_earlier_job_is_kept_and_names_its_job() -> None:
    found = merged([watched("a", 1.0, math.nan), watched("b", 3.0, 2.0, 1.0)])

    non_finite, data_stall = found["verdicts"]
    assert (non_finite["status"], non_finite["num_issues"]) == ("IssuesFound", 1)
    assert non_finite["num_judged"] == 5
    assert [each["text"] for each in non_finite["issues"]] == ["the loss is nan (job a)"]
    assert (found["worst"], found["job"]) == ("error", "b")
    assert data_stall["not_evaluated"], "in neither job there was anything to judge"


def test_a_rule_that_one_of_the_jobs_could_judge_is_evaluated() -> None:
    found = merged([watched("a", 1.0, rules=("NonFinite",)), watched("b", rules=("NonFinite",))])
    assert found["verdicts"][0]["not_evaluated"] is None
    assert found["worst"] is None


def failed(document: dict) -> dict:
    """Return a document whose first rule failed."""
    text = "InternalServerError: the rule failed at step 1"
    failure = {"status": "Error", "error": text, "status_details": text}
    first, *others = document["verdicts"]
    return {**document, "verdicts": [{**first, **failure}, *others]}


@pytest.mark.parametrize("later", [(3.0, 2.0), (1.0, math.nan), ()], ids=["fine", "nan", "empty"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_rule_that_failed_in_one_job_stays_an_error(
    later: tuple[float, ...], is_first: bool
) -> None:
    jobs = [failed(watched("a", 1.0)), watched("b", *later)]

    found = merged(jobs if is_first else jobs[::-1])["verdicts"][0]

    assert found["status"] == "Error"
    assert found["error"] == found["status_details"]
    assert found["error"] == "InternalServerError: the rule failed at step 1 (job a)"
    assert found["num_issues"] == sum(map(math.isnan, later))
    assert merged(jobs[:1]) == jobs[0]


def test_a_rule_that_failed_on_the_statistics_stays_an_error_beside_the_log() -> None:
    statistics, log = watched("a", 1.0), watched("a", 1.0, math.nan)
    text = "InternalServerError: the rule failed at step 1"
    failure = {"status": "Error", "error": text, "status_details": text}
    statistics["verdicts"][0] |= failure

    clean, found = with_log(statistics, watched("a", 1.0, 2.0)), with_log(statistics, log)

    for each in (clean, found):
        assert {key: each["verdicts"][0][key] for key in failure} == failure
    assert [each["step"] for each in found["verdicts"][0]["issues"]] == [2]


def test_issues_beyond_the_list_are_not_counted_twice() -> None:
    spikes = [(math.nan, 1.0)] * 25
    losses = [loss for pair in spikes for loss in pair]
    statistics, same = watched("a", *losses), watched("a", *losses)
    later = watched("a", *[1.0] * 10, *losses[10:])  # without the first 5 issues

    assert statistics["verdicts"][0]["num_issues"] == 25
    assert with_log(statistics, same)["verdicts"][0]["num_issues"] == 25
    assert with_log(statistics, later)["verdicts"][0]["num_issues"] == 25
    assert with_log(watched("a", 1.0, math.nan), same)["verdicts"][0]["num_issues"] == 25
