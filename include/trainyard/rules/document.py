"""rules.json: the verdicts of a run.

    {"format": "trainyard-rules", "version": 1,
     "worst": "error",                 worst severity of all issues; null if there are none
     "verdicts": [{"name", "rule", "origin", "severity", "status", "parameters", "not_evaluated", "num_judged",
                   "num_issues", "summary", "error", "status_details",
                   "issues": [{"step", "onset", "rank", "key", "severity", "text", "numbers", "time"} ...]} ...]}

`status` has the values of SageMaker's RuleEvaluationStatus, and one that the service does not have:
NotEvaluated, if the rule evaluated nothing. In this case `not_evaluated` has the reason.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainyard.errors import Severity, shortened
from trainyard.rules.conf_facts import facts_of
from trainyard.rules.configuration import configured_rules
from trainyard.rules.evaluation import (
    MOST_DETAILS,
    MOST_ISSUES,
    RuleStatus,
    evaluate,
    worst_of,
)
from trainyard.rules.training_log import ends_of, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainyard.rules.evaluation import Verdict

FORMAT, VERSION = "trainyard-rules", 1


def rules_document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the content of rules.json, with JSON types only, so it equals the file when read back."""
    worst = worst_of(each.worst for each in verdicts if each.worst is not None)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "worst": worst,
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    return plain


def judge_log(
    rows: Iterable[Mapping[str, Any]],
    conf: Mapping[str, Any],
    *,
    continuity: Mapping[str, Any] | None = None,
    failures: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Return the content of rules.json, for the rules in `conf["rules"]`, or for all rules if it is empty.

    Args:
        rows: the lines of the log, each with time_ms, job, stream and line.
        conf: the run's conf, `RunConf` as JSON.
        continuity: the content of continuity.json, with the end of each attempt; None if it is not known.
        failures: failure reasons by job name.

    Raises:
        SpecError: the rules of the conf are invalid.
    """
    facts = facts_of(conf)
    rules = configured_rules(conf.get("rules") or ())
    records = read_rows(rows, facts, ends=ends_of(continuity or {}), failures=failures)
    return rules_document(evaluate(rules, records, facts))


def merged(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one document for all jobs of a training, with each rule's issues in all jobs.

    A rule counts as not evaluated if it was evaluated in no job. A rule that failed in a job keeps the status
    and error of its newest failure, even if it found issues in the other jobs. If there are several jobs, the
    job's name is added to the text of each issue, and to the error of a rule that failed.

    Args:
        documents: the documents of the jobs, each with its `job`; oldest first, at least one.
    """
    by_name: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for each in documents:
        for verdict in each["verdicts"]:
            by_name.setdefault(verdict["name"], []).append((str(each["job"]), verdict))
    worst = worst_of(Severity(each["worst"]) for each in documents if each["worst"])
    several = len(documents) > 1
    verdicts = [
        {**_one(by_job, names_jobs=several), **_newest_failure(by_job, names_jobs=several)}
        for by_job in by_name.values()
    ]
    return {**documents[-1], "worst": worst, "verdicts": verdicts}


def with_log(watched: Mapping[str, Any], logged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdicts on the statistics files, plus the issues and verdicts that only the log provides.

    A rule that failed on the statistics keeps its status and error.

    A verdict counts all its issues but lists only the first ones. An issue of the log may therefore be one that
    the verdict on the statistics already counts without listing it. `num_issues` does not count such possible
    duplicates again, so it is a lower bound.

    Args:
        watched: verdicts on the statistics of some jobs, as `merged` returns them.
        logged: verdicts of the same rules on the log of all jobs.
    """
    by_name = {each["name"]: each for each in watched["verdicts"]}
    verdicts = []
    for each in logged["verdicts"]:
        known = by_name.pop(each["name"], each)
        places = {_place(issue) for issue in known["issues"]}
        new = [issue for issue in each["issues"] if _place(issue) not in places]
        of_log = {**each, "issues": new, "num_issues": len(new)}
        one = _one([("", known), ("", of_log)], names_jobs=False) if known is not each else each
        counts = {
            "num_judged": max(known["num_judged"], each["num_judged"]),
            "num_issues": _num_issues(known, each, num_new=len(new)),
        }
        issues = sorted(one["issues"], key=lambda issue: int(issue["step"]))
        verdicts.append({**one, **_failure(known), **counts, "issues": issues})
    worst = worst_of(Severity(each["worst"]) for each in (watched, logged) if each["worst"])
    return {**watched, "worst": worst, "verdicts": [*verdicts, *by_name.values()]}


def _num_issues(known: Mapping[str, Any], logged: Mapping[str, Any], *, num_new: int) -> int:
    """Return a lower bound of the number of different issues in two verdicts.

    `num_new` is the number of listed issues of `logged` that `known` does not list.
    """
    num_unlisted = known["num_issues"] - len(known["issues"])
    return int(max(logged["num_issues"], known["num_issues"] + max(0, num_new - num_unlisted)))


def _failure(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a verdict that report the failure of its rule; empty if it did not fail."""
    if verdict["status"] != RuleStatus.ERROR:
        return {}
    return {key: verdict[key] for key in ("status", "error", "status_details")}


def _newest_failure(
    by_job: Sequence[tuple[str, Mapping[str, Any]]], *, names_jobs: bool
) -> dict[str, Any]:
    """Return the fields of a rule's newest failure in all jobs; empty if it failed in none.

    `by_job` are pairs of job and verdict, oldest first. With `names_jobs` the error names the job.
    """
    failures = [(job, failure) for job, verdict in by_job if (failure := _failure(verdict))]
    if not failures:
        return {}
    job, failure = failures[-1]
    if not names_jobs:
        return failure
    text = f"{failure['error']} (job {job})"
    details = shortened(text, limit=MOST_DETAILS)
    return {**failure, "error": text, "status_details": details}


def _place(issue: Mapping[str, Any]) -> tuple[Any, ...]:
    return issue["step"], issue["rank"], issue["key"]


def _one(by_job: Sequence[tuple[str, Mapping[str, Any]]], *, names_jobs: bool) -> dict[str, Any]:
    """Return one verdict that combines a rule's verdicts in all jobs.

    The counts of the combined verdict are sums. Its issues are the first `MOST_ISSUES` of all jobs, oldest job first.
    All other fields are copied from one verdict, in this order of preference: the last with an issue, the last
    evaluated, the last of all.

    `by_job` are pairs of job and verdict, oldest first. With `names_jobs` each issue names its job.
    """
    verdicts = [verdict for _, verdict in by_job]
    with_issues = [each for each in verdicts if each["issues"]]
    evaluated = [each for each in verdicts if not each["not_evaluated"]]
    issues = [
        {**issue, "text": f"{issue['text']} (job {job})"} if names_jobs else issue
        for job, verdict in by_job
        for issue in verdict["issues"]
    ]
    return {
        **(with_issues or evaluated or verdicts)[-1],
        "num_judged": sum(each["num_judged"] for each in verdicts),
        "num_issues": sum(each["num_issues"] for each in verdicts),
        "issues": issues[:MOST_ISSUES],
    }
