"""Asks training scripts what they would refuse of their jobs' hyperparameters, before any of them is paid.

`trainer/judging.py`, beside the scripts, answers in a process of its own: with the very code that reads them in the
container, and what a script says it is judged by. A script that says nothing, as one of the user's own, is not judged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from include.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

JUDGE = "trainer.judging"
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """A job as its script sees it; `where` its hyperparameters are in the user's input."""

    where: str
    entry_point: str
    hyperparameters: Mapping[str, Any]
    ranks: int


def script_findings(scripts: Path, jobs: Sequence[ScriptJob]) -> list[list[Finding]]:
    """Return what the scripts would refuse of each job; nothing for a folder of scripts that judge nothing.

    Raises:
        subprocess.TimeoutExpired: they have not answered within LIMIT_S.
    """
    if not scripts.joinpath(*JUDGE.split(".")).with_suffix(".py").is_file():
        return [[] for _ in jobs]
    ended = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-m", JUDGE],
        input=json.dumps([asdict(each) for each in jobs]),
        cwd=scripts,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if ended.returncode:
        return [[_silence(scripts, ended.stderr)] for _ in jobs]
    return [
        [Finding(where=job.where, what=f"{job.entry_point} would refuse: {each}") for each in told]
        for job, told in zip(jobs, json.loads(ended.stdout), strict=True)
    ]


def _silence(scripts: Path, said: str) -> Finding:
    reason = (said.strip().splitlines() or ["no reason given"])[-1]
    return Finding(
        where=str(scripts),
        what=f"holds scripts that cannot judge their hyperparameters: {reason}",
        next_step=f"see what `python -m {JUDGE}` says there; in the container they would fail alike",
    )
