"""A run's folder, read: the log beside its report, the emitter's statistics where they are, the facts of its conf."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from include.errors import ContractError
from include.rules.conf_facts import facts_of
from include.rules.training_log import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from include.rules.records import Facts, Record

LOG_NAME, REPORT_NAME, RULES_NAME = "training_log.jsonl.gz", "report.json", "rules.json"


def read_run(folder: Path) -> tuple[list[Record], Facts]:
    """Return what was observed of a run, and what its conf says.

    Raises:
        ContractError: there is no training log, or a file cannot be read.
    """
    log = folder / LOG_NAME
    if not log.is_file():
        raise ContractError(
            f"{LOG_NAME} missing: there is nothing to judge",
            where=str(folder),
            got=", ".join(sorted(each.name for each in folder.glob("*"))) or "no such folder",
            allowed=f"a folder with {LOG_NAME}, and {REPORT_NAME} for the run's conf",
            next_step="name a folder that 'make run' left below runs/, or copy the run's report prefix from S3",
        )
    report = folder / REPORT_NAME
    conf = _document(report).get("conf") or {} if report.is_file() else {}
    facts = facts_of(conf)
    return list(read_rows(_rows(log), facts)), facts


def _document(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise _unreadable(path, error) from error
    return content if isinstance(content, dict) else {}


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
            return [{key: row[key] for key in ("time_ms", "job", "stream", "line")} for row in rows]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ContractError:
    return ContractError(
        f"{path.name} cannot be read",
        where=str(path),
        got=f"{type(error).__name__}: {error}",
        next_step="copy the run's report prefix from S3 again",
    )
