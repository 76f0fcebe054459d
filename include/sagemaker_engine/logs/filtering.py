"""FilterLogEvents: events of several streams that match a filter pattern, merged by time.

Source: "Filter pattern syntax for unstructured log events", CloudWatch Logs user guide.
"""

from __future__ import annotations

import base64
import heapq
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sagemaker_engine.logs.stream_file import MAX_PAGE_BYTES, LogEvent, TimeRange, iterate
from sagemaker_engine.wire.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sagemaker_engine.logs.log_folder import LogFolder

MAX_EVENTS = 10_000
_TERM = re.compile(r'([-?]?)(?:"([^"]*)"|(\S+))')


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPattern:
    """Filter pattern for log messages.

    A message matches if it contains all terms of `all_of`, at least one term of `any_of`, and no term of
    `none_of`. If `any_of` is empty, it is ignored.
    """

    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    def matches(self, message: str) -> bool:
        """Return whether the message matches."""
        return (
            all(term in message for term in self.all_of)
            and (not self.any_of or any(term in message for term in self.any_of))
            and not any(term in message for term in self.none_of)
        )


def parse_pattern(text: str) -> FilterPattern:
    """Return the pattern of a text with terms, "phrases", ?alternatives and -exclusions.

    Raises:
        ServiceError: The text has one of the structured forms, which the engine does not support.
    """
    if text.lstrip()[:1] in {"{", "[", "%"}:
        raise ServiceError(
            "InvalidParameterException",
            f"Invalid filter pattern: {text}. The local engine supports terms, quoted phrases, ?any and "
            "-none, but not the JSON, space-delimited and regular expression forms.",
        )
    terms: dict[str, list[str]] = {"": [], "?": [], "-": []}
    for sign, phrase, word in _TERM.findall(text):
        terms[sign].append(phrase or word)
    return FilterPattern(
        all_of=tuple(terms[""]), any_of=tuple(terms["?"]), none_of=tuple(terms["-"])
    )


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
