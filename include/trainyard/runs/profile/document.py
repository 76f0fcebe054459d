"""profile.json: a profile as data, and its summary in the run's report.

{"format": "trainyard-profile", "version": 1, "page": "profile.html", "num_steps": 400, "num_ranks": 2,
 "num_outliers": 3,
 "bottleneck": {"title", "sentence", "advice", "rule", "cost"},
 "hindrances": [...], "not_judged": {rule: why},
 "step_time": {"shares": {part: 0 to 1}, "ranks": [{"rank", "num_steps", "mean_seconds", "median_seconds",
               "p95_seconds", "local_seconds", "parts": {part: seconds}} ...],
               "over_steps": [{"first", "last", "parts", "slowest_seconds"} ...], "why_none": ""},
 "outliers": {"limit_seconds", "median_seconds", "num_steps", "found": [...]},
 "stragglers": {"ranks": [...], "why_none": ""},
 "usage": [{"key", "unit", "why_none", "hosts": [{"host", "mean", "p95", "points"} ...]} ...],
 "memory": [...], "attempts": [...], "traces": [...], "verdicts": as in rules.json}
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.runs.profile.profile import Profile
    from trainyard.runs.profile.usage import Usage

FORMAT, VERSION = "trainyard-profile", 1
PAGE_NAME, DATA_NAME = "profile.html", "profile.json"


def profile_document(profile: Profile) -> dict[str, Any]:
    """Return the content of profile.json.

    It has JSON types only, so it equals the content that is read back from the file.
    """
    content = {
        **profile_summary(profile),
        "not_judged": dict(profile.diagnosis.not_judged),
        "outliers": asdict(profile.outliers),
        "stragglers": {
            "ranks": [asdict(each) for each in profile.waits],
            "why_none": profile.why_no_stragglers,
        },
        "usage": [_usage(each) for each in profile.usages],
        "memory": [{**asdict(each), "growth": each.growth} for each in profile.memory],
        "attempts": [asdict(each) for each in profile.attempts],
        "verdicts": [each.to_dict() for each in profile.verdicts],
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    return plain


def profile_summary(profile: Profile) -> dict[str, Any]:
    """Return the summary of a profile for report.json: the bottleneck and the step time by part."""
    diagnosis = profile.diagnosis
    first = diagnosis.bottleneck
    return {
        "format": FORMAT,
        "version": VERSION,
        "page": PAGE_NAME,
        "num_steps": profile.num_steps,
        "num_ranks": profile.num_ranks,
        "num_outliers": len(profile.outliers.found),
        "bottleneck": {
            "title": diagnosis.title,
            "sentence": diagnosis.sentence,
            "advice": diagnosis.advice,
            "rule": first.rule if first else None,
            "cost": first.cost if first else None,
        },
        "hindrances": [asdict(each) for each in diagnosis.hindrances],
        "step_time": {
            "shares": dict(profile.shares),
            "ranks": [asdict(each) for each in profile.ranks],
            "over_steps": [asdict(each) for each in profile.bins],
            "why_none": profile.why_no_steps,
        },
        "traces": [asdict(each) for each in profile.traces],
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "key": usage.metric.key,
        "unit": usage.metric.unit,
        "why_none": usage.why_none,
        "hosts": [asdict(each) for each in usage.series],
    }
