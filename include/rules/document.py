"""rules.json: the verdicts of a run.

    {"format": "trainyard-rules", "version": 1,
     "worst": "error",                 of all issues; null without any
     "verdicts": [{"name", "rule", "origin", "severity", "status", "parameters", "not_evaluated", "num_judged",
                   "num_issues", "summary", "error", "status_details",
                   "issues": [{"step", "onset", "rank", "key", "severity", "text", "numbers", "time"} ...]} ...]}

`status` is SageMaker's RuleEvaluationStatus. It has no word for `not evaluated`: such a rule is NoIssuesFound there,
with `status_details` saying why, and `not_evaluated` here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from include.rules.evaluation import worst_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from include.rules.evaluation import Verdict

FORMAT, VERSION = "trainyard-rules", 1


def rules_document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the content of rules.json, as it is when it is read back."""
    worst = worst_of(each.worst for each in verdicts if each.worst is not None)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "worst": worst,
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    return plain
