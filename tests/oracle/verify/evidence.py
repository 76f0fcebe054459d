"""Files in a run's folder, read for the recount."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REPORT, CONTINUITY, LOG, INDEX = (
    "report.json",
    "continuity.json",
    "training_log.jsonl.gz",
    "index.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Input of the recount; `index` is None if the run did not shard data."""

    report: Mapping[str, Any]
    continuity: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    index: Mapping[str, Any] | None

    @property
    def jobs(self) -> list[Mapping[str, Any]]:
        """The training task's jobs, oldest first."""
        jobs = [job for job in self.report["jobs"] if job["task_id"] == "train"]
        return sorted(jobs, key=lambda job: int(job["attempts"]))


def read_evidence(folder: Path) -> Evidence:
    """Return the evidence in a run's folder.

    Raises:
        ContractError: the folder or one of its files is missing or cannot be read.
    """
    missing = [name for name in (REPORT, CONTINUITY, LOG) if not (folder / name).is_file()]
    if missing:
        raise ContractError(
            f"{', '.join(missing)} missing: there is nothing to verify",
            where=str(folder),
            got=", ".join(sorted(each.name for each in folder.glob("*"))) or "no such folder",
            allowed=f"a folder with {REPORT}, {CONTINUITY}, {LOG} and {INDEX}",
            next_step="name a folder that 'make run' left below runs/, or copy the run's report "
            "prefix from S3",
        )
    index = folder / INDEX
    return Evidence(
        report=_document(folder / REPORT),
        continuity=_document(folder / CONTINUITY),
        rows=_rows(folder / LOG),
        index=_document(index) if index.is_file() else None,
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise _unreadable(path, TypeError(f"a {type(content).__name__}, not an object"))
    return content


def _rows(path: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
            return tuple(
                {key: row[key] for key in ("time_ms", "job", "stream", "line")} for row in rows
            )
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ContractError:
    return ContractError(
        f"{path.name} cannot be read",
        where=str(path),
        got=f"{type(error).__name__}: {error}",
        next_step="copy the run's report prefix from S3 again",
    )
