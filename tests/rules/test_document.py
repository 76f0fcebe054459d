"""The verdicts of a training's jobs as one document."""

from __future__ import annotations

import math

from trainyard.rules.configuration import configured_rules
from trainyard.rules.document import merged, rules_document
from trainyard.rules.evaluation import evaluate
from trainyard.rules.records import Facts, StepRecord


def watched(job: str, *losses: float, rules: tuple[str, ...] = ("NonFinite", "DataStall")) -> dict:
    """Return the document of a job with these losses."""
    records = [StepRecord(step=n, rank=0, loss=loss) for n, loss in enumerate(losses, start=1)]
    document = rules_document(evaluate(configured_rules(list(rules)), records, Facts()))
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
