"""Check of jobs' hyperparameters by the training scripts themselves, before any job is paid for.

`trainer/judging.py`, in the folder of the scripts, does the check in a separate process. It reads the
hyperparameters with the code that the job's container uses. A script that declares no check, such as a
user's own, is not checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

JUDGE = "trainer.judging"
LIMIT_S = 60.0
ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR")
"""Environment variables of the checking process, besides LC_*: it imports users' modules and needs no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """Job whose script checks its hyperparameters.

    `where` is the path of the hyperparameters in the user's input. `init` has the arguments of
    `Hyperparameters.init_findings`. If `init` is not None, the script checks only that the hyperparameters fit
    the initial weights.
    """

    where: str
    entry_point: str
    hyperparameters: Mapping[str, Any]
    ranks: int
    init: Mapping[str, Any] | None = None


def script_findings(
    scripts: Path, jobs: Sequence[ScriptJob], *, limit_s: float = LIMIT_S
) -> list[list[Finding]]:
    """Return the findings of the scripts for each job; empty for scripts that declare no check.

    If the check takes too long, or a script reports that it cannot check, the finding is a warning: a busy worker or
    missing libraries must not fail a run. If the checking process fails, each job gets an error.
    """
    if not scripts.joinpath(*JUDGE.split(".")).with_suffix(".py").is_file():
        return [[] for _ in jobs]
    try:
        ended = subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-m", JUDGE],
            input=json.dumps([asdict(each) for each in jobs]),
            cwd=scripts,
            env=_environment(os.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        reason = f"no answer within {limit_s:g} s"
        return [[_unjudged(str(scripts), "the scripts", reason)] for _ in jobs]
    if ended.returncode:
        return [[_silence(scripts, ended.stderr)] for _ in jobs]
    return [
        _findings(job, answer) for job, answer in zip(jobs, json.loads(ended.stdout), strict=True)
    ]


def _environment(whole: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in whole.items()
        if name in ENVIRONMENT or name.startswith("LC_")
    }


def _findings(job: ScriptJob, answer: list[str] | str) -> list[Finding]:
    if isinstance(answer, str):
        return [_unjudged(job.where, job.entry_point, answer)]
    return [
        Finding(where=job.where, what=f"would be rejected by {job.entry_point}; {each}")
        for each in answer
    ]


def _unjudged(where: str, who: str, reason: str) -> Finding:
    return Finding(
        where=where,
        what=f"{who} cannot check the hyperparameters ({reason})",
        next_step=f"run `python -m {JUDGE}` in the folder of the scripts and read its output",
        severity=Severity.WARNING,
    )


def _silence(scripts: Path, output: str) -> Finding:
    lines = output.strip().splitlines()
    return Finding(
        where=str(scripts),
        what=f"has scripts that cannot check hyperparameters, because their program {JUDGE} crashes; "
        "it would also crash in the container",
        got=f"{lines[-1]!r} as the last line of the output" if lines else "no output",
        next_step=f"run `python -m {JUDGE}` in this folder and read its output",
    )
