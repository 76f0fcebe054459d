"""Reader of a run's folder: statistics or training log, and the facts of its conf."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError
from trainyard.rules.conf_facts import facts_of
from trainyard.rules.statistics_file import read_statistics
from trainyard.rules.statistics_place import STATISTICS_FOLDER
from trainyard.rules.training_log import ends_of, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.rules.records import Facts, Record

LOG_NAME, REPORT_NAME, RULES_NAME = "training_log.jsonl.gz", "report.json", "rules.json"


def read_run(folder: Path) -> tuple[list[Record], Facts]:
    """Return the records of a run, and the facts of its conf.

    The records come from the ranks' statistics (`statistics/*.jsonl` or `.jsonl.gz`) if there are any, since these
    include everything in the log. Otherwise they come from the log.

    Raises:
        ContractError: the folder has neither statistics nor a log, or a file cannot be read.
    """
    facts = facts_of(read_conf(folder))
    if records := records_in(folder / STATISTICS_FOLDER):
        return records, facts
    log = folder / LOG_NAME
    if not log.is_file():
        raise ContractError(
            f"the run's folder has no {LOG_NAME} to evaluate",
            where=str(folder),
            got=", ".join(sorted(each.name for each in folder.glob("*")))
            or "no files, or no such folder",
            allowed=f"a folder with {LOG_NAME}, and {REPORT_NAME} for the run's conf",
            next_step="name a folder that 'make run' wrote below runs/, or copy the run's report prefix from S3",
        )
    report = _report(folder)
    ends = ends_of(report.get("continuity") or {})
    failures = {each["name"]: each.get("failure_reason") for each in report.get("jobs") or ()}
    return list(read_rows(_rows(log), facts, ends=ends, failures=failures)), facts


def records_in(folder: Path) -> list[Record]:
    """Return the records of the ranks' files in a folder (`*.jsonl` or `.jsonl.gz`); an empty list without files.

    Raises:
        ContractError: a file cannot be read.
    """
    return read_statistics({each.name: _lines(each) for each in sorted(folder.glob("*.jsonl*"))})


def read_conf(folder: Path) -> dict[str, Any]:
    """Return the conf in the run's report.json, or an empty dict if there is none.

    Raises:
        ContractError: report.json cannot be read.
    """
    return _report(folder).get("conf") or {}


def _report(folder: Path) -> dict[str, Any]:
    report = folder / REPORT_NAME
    return _document(report) if report.is_file() else {}


def _document(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise _unreadable(path, error) from error
    return content if isinstance(content, dict) else {}


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in _lines(path)]
        return [{key: row[key] for key in ("time_ms", "job", "stream", "line")} for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error


def _lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        return list(io.StringIO(text.decode(), newline="\n"))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ContractError:
    return ContractError(
        f"{path.name} cannot be read",
        where=str(path),
        got=f"{type(error).__name__}: {error}",
        next_step="copy the run's report prefix from S3 again",
    )
