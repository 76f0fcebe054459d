"""`python -m trainyard.rules.watch spec.json`: evaluates the rules of a running job from local statistics files.

The specification:

    {"folders": ["/.../ml/output/tensors", ...],   folders of the ranks' statistics; they may not exist yet
     "rules": [{"RuleConfigurationName": ..., "RuleParameters": {...}}, ...],
     "hyperparameters": {...},                     hyperparameters of the job's request
     "since": 1795000000.0, "poll_s": 0.1}

Output: one line of JSON per change, `{"verdicts": [{"name", "status", "details", "step", "worst", ...}]}`, with the
rules that changed. The last line has `"is_final": true`, all rules, and `document`, the content of rules.json.

Input: `{"trains_since": 1795000000.0}` when the instances begin to train, and `{"trains_since": null}` when they no
longer train. At the end of the input the process evaluates the content written so far, and exits.

A rule whose configuration is invalid has the status `Error`; the other rules are evaluated.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trainyard.errors import ContractError, SpecError, shortened
from trainyard.rules.conf_facts import facts_of_job
from trainyard.rules.configuration import configured_rules
from trainyard.rules.document import rules_document
from trainyard.rules.evaluation import MOST_DETAILS, RuleStatus
from trainyard.rules.live_evaluation import LiveEvaluation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.evaluation import ConfiguredRule, Verdict

REPORTS_ONLY = ("ProfilerReport", "CreateXgboostReport", "DetailedProfilerProcessing")
"""AWS's rules that write a report and evaluate no condition."""
POLL_S = 0.1


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate the rules until the input ends; return the exit status, which is 0.

    The only argument is the path of the specification.
    """
    path = Path((sys.argv[1:] if argv is None else argv)[0])
    watch = RunningWatch(json.loads(path.read_bytes()), out=sys.stdout)
    watch.run(sys.stdin)
    return 0


class RunningWatch:
    """Evaluation of one running job's rules, with the folders of its statistics."""

    def __init__(self, spec: Mapping[str, Any], *, out: IO[str]) -> None:
        """Read the specification; an invalid rule is reported with the status `Error`."""
        self._out = out
        self._poll_s = float(spec.get("poll_s", POLL_S))
        self._folders = [Path(each) for each in spec["folders"]]
        self._reported: dict[str, tuple[str, int]] = {}
        self._failed: str | None = None
        self._trains_since: float | None = None
        rules, self._faults = _read_rules(spec["rules"])
        facts = facts_of_job(spec.get("hyperparameters") or {})
        self._live = LiveEvaluation(rules, facts, since=float(spec.get("since", 0.0)))

    def run(self, orders: IO[str]) -> None:
        """Poll the files until `orders`, the lines of the input, ends; then evaluate once more."""
        self._report()
        while not self._receive(orders):
            self._poll(is_final=False)
            self._report()
        self._poll(is_final=True)
        self._report(is_final=True)

    def _receive(self, orders: IO[str]) -> bool:
        """Wait up to one poll interval for a line of `orders`; return True at the end of the input."""
        ready, _, _ = select.select([orders], [], [], self._poll_s)
        if not ready:
            return False
        line = orders.readline()
        if line:
            self._trains_since = json.loads(line)["trains_since"]
        return not line

    def _poll(self, *, is_final: bool) -> None:
        if self._failed is not None:
            return
        try:
            while True:
                for piece in self._live.wanted(self._sizes(), is_final=is_final):
                    self._live.take(piece, _read(piece.name, piece.start, piece.end))
                self._live.judge(until=time.time(), trains_since=self._trains_since)
                if not self._live.is_behind:
                    return
        except (ContractError, OSError) as error:
            self._failed = f"InternalServerError: {type(error).__name__}: {error}"

    def _sizes(self) -> dict[str, int]:
        return {
            str(path): path.stat().st_size
            for folder in self._folders
            for path in sorted(folder.glob("rank-*.jsonl"))
        }

    def _report(self, *, is_final: bool = False) -> None:
        verdicts = self._live.verdicts(is_final=is_final)
        reported = [*map(self._as_reported, verdicts), *self._faults]
        news = [each for each in reported if self._reported.get(each["name"]) != _mark(each)]
        if not news and not is_final:
            return
        self._reported |= {each["name"]: _mark(each) for each in news}
        message: dict[str, Any] = {"verdicts": reported if is_final else news}
        if is_final:
            message |= {"is_final": True, "document": rules_document(verdicts)}
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def _as_reported(self, verdict: Verdict) -> dict[str, Any]:
        status, details = verdict.status, verdict.status_details
        if self._failed is not None and not verdict.issues:
            status, details = RuleStatus.ERROR, shortened(self._failed, limit=MOST_DETAILS)
        if status is RuleStatus.IN_PROGRESS:
            details = ""
        elif status is RuleStatus.NOT_EVALUATED:
            # The service's rule fails if the job's hook saved nothing for it, and has no word for anything else.
            status = RuleStatus.ERROR if verdict.lacks_input else RuleStatus.NO_ISSUES_FOUND
        first = verdict.issues[0] if verdict.issues else None
        return {
            "name": verdict.name,
            "rule": verdict.rule,
            "status": status,
            "details": details,
            "num_issues": verdict.num_issues,
            "step": first.step if first else None,
            "worst": verdict.worst,
        }


def _mark(reported: Mapping[str, Any]) -> tuple[str, int]:
    return reported["status"], reported["num_issues"]


def _read_rules(
    wanted: Sequence[Mapping[str, Any]],
) -> tuple[list[ConfiguredRule], list[dict[str, Any]]]:
    """Return the rules to evaluate, and a report on each rule that is invalid or not supported.

    A report has the form of the output's verdicts, with the status `Error`.
    """
    rules: list[ConfiguredRule] = []
    others: list[dict[str, Any]] = []
    for each in wanted:
        reported = {
            "name": each["RuleConfigurationName"],
            "num_issues": 0,
            "step": None,
            "worst": None,
        }
        invoked = str((each.get("RuleParameters") or {}).get("rule_to_invoke") or "")
        if invoked in REPORTS_ONLY:
            details = f"NotEvaluated: {invoked} writes a report; only AWS's evaluator supports it"
            others.append(
                {**reported, "rule": invoked, "status": RuleStatus.ERROR, "details": details}
            )
            continue
        try:
            rules += configured_rules([each])
        except SpecError as error:
            details = shortened(f"ClientError: {error}", limit=MOST_DETAILS)
            others.append(
                {**reported, "rule": invoked, "status": RuleStatus.ERROR, "details": details}
            )
    return rules, others


def _read(name: str, start: int, end: int) -> bytes:
    """Return bytes of a file; empty if the file no longer exists."""
    try:
        with Path(name).open("rb") as file:
            file.seek(start)
            return file.read(end - start)
    except FileNotFoundError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
