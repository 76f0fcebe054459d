"""`python -m trainyard.rules.watch spec.json`: judges a job while it runs, from the files on this machine.

The specification:

    {"folders": ["/.../ml/output/tensors", ...],   where ranks write their statistics; what is not there yet may come
     "rules": [{"RuleConfigurationName": ..., "RuleParameters": {...}}, ...],
     "hyperparameters": {...},                     of the job, as it was sent
     "since": 1795000000.0, "poll_s": 0.1}

A line of JSON goes out for each change: `{"verdicts": [{"name", "status", "details", "step", "worst", ...}]}` with
the rules that changed; with the last, `"is_final": true`, come all, and `document`, the content of rules.json. Lines
come in: `{"trains_since": 1795000000.0}` when instances begin to train, with null when they do not any more. It ends
when its input does: what is there by then is still judged. A rule that cannot be made is in `Error`, the others go on.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trainyard.errors import ContractError, SpecError, shortened
from trainyard.rules.conf_facts import decoded, facts_of
from trainyard.rules.configuration import configured_rules
from trainyard.rules.document import rules_document
from trainyard.rules.evaluation import MOST_DETAILS, RuleStatus
from trainyard.rules.live_evaluation import LiveEvaluation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.evaluation import ConfiguredRule, Verdict

REPORTS_ONLY = ("ProfilerReport", "CreateXgboostReport", "DetailedProfilerProcessing")
"""AWS's rules that write a report and judge nothing."""
POLL_S = 0.1


def main(argv: Sequence[str] | None = None) -> int:
    """Watch until the input ends."""
    path = Path((sys.argv[1:] if argv is None else argv)[0])
    watch = RunningWatch(json.loads(path.read_bytes()), out=sys.stdout)
    watch.run(sys.stdin)
    return 0


class RunningWatch:
    """One job's rules and where its ranks write."""

    def __init__(self, spec: Mapping[str, Any], *, out: IO[str]) -> None:
        """Read the specification; a rule that is wrong is told as such."""
        self._out = out
        self._poll_s = float(spec.get("poll_s", POLL_S))
        self._folders = [Path(each) for each in spec["folders"]]
        self._told: dict[str, tuple[str, int]] = {}
        self._failed: str | None = None
        self._trains_since: float | None = None
        rules, self._faults = _read_rules(spec["rules"])
        facts = facts_of({"hyperparameters": decoded(spec.get("hyperparameters") or {})})
        self._live = LiveEvaluation(rules, facts, since=float(spec.get("since", 0.0)))

    def run(self, orders: IO[str]) -> None:
        """Look at the files again and again until `orders` ends, then once more."""
        self._tell()
        while not self._hear(orders):
            self._look(is_final=False)
            self._tell()
        self._look(is_final=True)
        self._tell(is_final=True)

    def _hear(self, orders: IO[str]) -> bool:
        """Wait a moment for an order; return whether there will be no more."""
        ready, _, _ = select.select([orders], [], [], self._poll_s)
        if not ready:
            return False
        line = orders.readline()
        if line:
            self._trains_since = json.loads(line)["trains_since"]
        return not line

    def _look(self, *, is_final: bool) -> None:
        if self._failed is not None:
            return
        try:
            while True:
                for piece in self._live.wanted(self._sizes(), is_final=is_final):
                    self._live.take(piece, _read(piece.name, piece.start, piece.end))
                self._live.judge(now=time.time(), trains_since=self._trains_since)
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

    def _tell(self, *, is_final: bool = False) -> None:
        verdicts = self._live.verdicts(is_final=is_final)
        told = [*map(self._as_told, verdicts), *self._faults]
        news = [each for each in told if self._told.get(each["name"]) != _mark(each)]
        if not news and not is_final:
            return
        self._told |= {each["name"]: _mark(each) for each in news}
        message: dict[str, Any] = {"verdicts": told if is_final else news}
        if is_final:
            message |= {"is_final": True, "document": rules_document(verdicts)}
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def _as_told(self, verdict: Verdict) -> dict[str, Any]:
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


def _mark(told: Mapping[str, Any]) -> tuple[str, int]:
    return told["status"], told["num_issues"]


def _read_rules(
    wanted: Sequence[Mapping[str, Any]],
) -> tuple[list[ConfiguredRule], list[dict[str, Any]]]:
    """Return the rules that could be made, and what is told of the others."""
    rules: list[ConfiguredRule] = []
    others: list[dict[str, Any]] = []
    for each in wanted:
        told = {"name": each["RuleConfigurationName"], "num_issues": 0, "step": None, "worst": None}
        invoked = str((each.get("RuleParameters") or {}).get("rule_to_invoke") or "")
        if invoked in REPORTS_ONLY:
            said = f"NotEvaluated: {invoked} writes a report, which only AWS's evaluator does"
            others.append({**told, "rule": invoked, "status": RuleStatus.ERROR, "details": said})
            continue
        try:
            rules += configured_rules([each])
        except SpecError as error:
            said = shortened(f"ClientError: {error}", limit=MOST_DETAILS)
            others.append({**told, "rule": invoked, "status": RuleStatus.ERROR, "details": said})
    return rules, others


def _read(name: str, start: int, end: int) -> bytes:
    """Return the bytes of a file; none where it is gone."""
    try:
        with Path(name).open("rb") as file:
            file.seek(start)
            return file.read(end - start)
    except FileNotFoundError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
