"""Evaluation of a finished training from its log and its run's conf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.rules.conf_facts import facts_of
from trainyard.rules.configuration import configured_rules
from trainyard.rules.document import rules_document
from trainyard.rules.evaluation import evaluate
from trainyard.rules.training_log import ends_of, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
