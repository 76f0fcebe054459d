"""FilterLogEvents: matching events of several streams, merged by time."""

from __future__ import annotations

import base64
import heapq
import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sagemaker_engine.logs.filter_pattern import parse_pattern
from sagemaker_engine.logs.stream_file import MAX_PAGE_BYTES, LogEvent, TimeRange, iterate
from sagemaker_engine.wire.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sagemaker_engine.logs.log_folder import LogFolder

MAX_EVENTS = 10_000


def filter_events(folder: LogFolder, group: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the response of FilterLogEvents for an existing group.

    Raises:
        ServiceError: A stream does not exist, or the pattern or the token is invalid.
    """
    pattern = parse_pattern(request.get("filterPattern", ""))
    times = TimeRange(start=request.get("startTime"), end=request.get("endTime"))
    offsets = _read_token(request.get("nextToken"))
    streams = _streams(folder, group, request)
    merged = heapq.merge(
        *(_events(name, path, offsets.get(name, 0)) for name, path in streams.items()),
        key=lambda item: item[1].timestamp,
    )
    limit, size = request.get("limit", MAX_EVENTS), 0
    found: list[dict[str, Any]] = []
    for name, event in merged:
        if event.timestamp in times and pattern.matches(event.message):
            size += event.size_bytes
            if len(found) == limit or size > MAX_PAGE_BYTES:
                return {"events": found, "nextToken": _make_token(offsets)}
            found.append(_found(name, event))
        offsets[name] = event.end
    searched = [{"logStreamName": name, "searchedCompletely": True} for name in streams]
    return {"events": found, "searchedLogStreams": searched}


def _streams(folder: LogFolder, group: str, request: dict[str, Any]) -> dict[str, Path]:
    names = request.get("logStreamNames")
    if names is None:
        names = folder.stream_names(group, request.get("logStreamNamePrefix", ""))
    elif "logStreamNamePrefix" in request:
        raise ServiceError(
            "InvalidParameterException",
            "logStreamNames and logStreamNamePrefix cannot be given together.",
        )
    streams = {name: folder.path(group, name) for name in names}
    missing = [name for name, path in streams.items() if path is None]
    if missing:
        raise ServiceError("ResourceNotFoundException", "The specified log stream does not exist.")
    return {name: path for name, path in streams.items() if path is not None}


def _events(name: str, path: Path, offset: int) -> Iterator[tuple[str, LogEvent]]:
    with path.open("rb") as file:
        for event in iterate(file, offset):
            yield name, event


def _found(name: str, event: LogEvent) -> dict[str, Any]:
    return {
        "logStreamName": name,
        "timestamp": event.timestamp,
        "message": event.message,
        "ingestionTime": event.timestamp,
        "eventId": f"{event.timestamp:020d}{crc32(name.encode()):016d}{event.start:020d}",
    }


def _make_token(offsets: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(offsets).encode()).decode()


def _read_token(token: str | None) -> dict[str, int]:
    if token is None:
        return {}
    try:
        offsets: dict[str, int] = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise ServiceError(
            "InvalidParameterException", "The specified nextToken is invalid."
        ) from error
    return offsets
