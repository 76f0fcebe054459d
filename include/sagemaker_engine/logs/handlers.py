"""Operations of CloudWatch Logs that read the logs of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.logs.filtering import filter_events
from sagemaker_engine.logs.log_folder import GROUPS, LogFolder, StreamInfo
from sagemaker_engine.logs.stream_file import (
    EventPage,
    LogEvent,
    TimeRange,
    read_backward,
    read_forward,
)
from sagemaker_engine.wire.errors import ServiceError
from sagemaker_engine.wire.json_service import NotOursError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.wire.json_service import Call, Handler

MAX_EVENTS = 10_000
MAX_STREAMS = 50
_TOKEN_DIGITS = 56


@dataclass(frozen=True, slots=True)
class LogsApi:
    """Handlers of the operations on the groups of training and processing jobs."""

    folder: LogFolder
    account: str

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "DescribeLogGroups": self.describe_groups,
            "DescribeLogStreams": self.describe_streams,
            "GetLogEvents": self.get_events,
            "FilterLogEvents": self.filter_events,
        }

    def describe_groups(self, call: Call) -> dict[str, Any]:
        """Return the existing groups of jobs, together with moto's groups."""
        prefix = call.request.get("logGroupNamePrefix", "")
        part = call.request.get("logGroupNamePattern", "").lower()
        ours = [
            self._describe_group(call.region, group)
            for group in sorted(GROUPS)
            if group.startswith(prefix) and part in group.lower() and self.folder.has_group(group)
        ]
        if prefix.startswith("/aws/sagemaker/"):
            return {"logGroups": ours}
        others = call.forward()
        groups = sorted(
            [*ours, *others.get("logGroups", [])], key=lambda group: str(group["logGroupName"])
        )
        return {"logGroups": groups, "nextToken": others.get("nextToken")}

    def describe_streams(self, call: Call) -> dict[str, Any]:
        """Return one page of a group's streams.

        Raises:
            ServiceError: The group does not exist, or LastEventTime is combined with a prefix.
        """
        request, group = call.request, self._group(call)
        prefix = request.get("logStreamNamePrefix", "")
        by_time = request.get("orderBy") == "LastEventTime"
        if by_time and prefix:
            raise ServiceError(
                "InvalidParameterException",
                "Cannot order by LastEventTime with a logStreamNamePrefix.",
            )
        names = self.folder.stream_names(group, prefix)
        if by_time:
            last = {name: self.folder.info(group, name).last_event_at or 0 for name in names}
            names.sort(key=lambda name: (last[name], name))
        if request.get("descending"):
            names.reverse()
        start = _read_position(request.get("nextToken"))
        end = start + request.get("limit", MAX_STREAMS)
        streams = [self._stream(call, self.folder.info(group, name)) for name in names[start:end]]
        return {"logStreams": streams, "nextToken": str(end) if end < len(names) else None}

    def get_events(self, call: Call) -> dict[str, Any]:
        """Return one page of a stream's events, by default the newest.

        Raises:
            ServiceError: The group or stream does not exist, or the token is invalid.
        """
        request, group = call.request, self._group(call)
        path = self.folder.path(group, request["logStreamName"])
        if path is None:
            raise ServiceError(
                "ResourceNotFoundException", "The specified log stream does not exist."
            )
        limit = request.get("limit", MAX_EVENTS)
        times = TimeRange(start=request.get("startTime"), end=request.get("endTime"))
        direction, offset = _read_token(request.get("nextToken"), request.get("startFromHead"))
        if direction == "f":
            page = read_forward(path, offset=offset or 0, limit=limit, times=times)
        else:
            page = read_backward(path, offset=offset, limit=limit, times=times)
        return {"events": [_event(event) for event in page.events], **_tokens(page)}

    def filter_events(self, call: Call) -> dict[str, Any]:
        """Return one page of the events that match a pattern, from several streams."""
        group = self._group(call)
        return filter_events(self.folder, group, call.request)

    def _group(self, call: Call) -> str:
        identifier = call.request.get("logGroupIdentifier", "").removesuffix(":*")
        name = call.request.get("logGroupName") or identifier.rpartition(":log-group:")[2]
        if name not in GROUPS:
            raise NotOursError
        if not self.folder.has_group(name):
            raise ServiceError(
                "ResourceNotFoundException", "The specified log group does not exist."
            )
        return str(name)

    def _describe_group(self, region: str, group: str) -> dict[str, Any]:
        return {
            **self._arns(region, group),
            "logGroupName": group,
            "creationTime": 0,
            "metricFilterCount": 0,
            "storedBytes": 0,
        }

    def _arns(self, region: str, group: str) -> dict[str, str]:
        arn = f"arn:aws:logs:{region}:{self.account}:log-group:{group}"
        return {"arn": f"{arn}:*", "logGroupArn": arn}

    def _stream(self, call: Call, info: StreamInfo) -> dict[str, Any]:
        group = self._arns(call.region, self._group(call))["logGroupArn"]
        return {
            "logStreamName": info.name,
            "creationTime": info.created_at,
            "firstEventTimestamp": info.first_event_at,
            "lastEventTimestamp": info.last_event_at,
            "lastIngestionTime": info.last_event_at,
            "uploadSequenceToken": "0",
            "arn": f"{group}:log-stream:{info.name}",
            "storedBytes": 0,
        }


def _event(event: LogEvent) -> dict[str, Any]:
    return {
        "timestamp": event.timestamp,
        "message": event.message,
        "ingestionTime": event.timestamp,
    }


def _tokens(page: EventPage) -> dict[str, str]:
    return {
        "nextForwardToken": f"f/{page.end:0{_TOKEN_DIGITS}d}/s",
        "nextBackwardToken": f"b/{page.start:0{_TOKEN_DIGITS}d}/s",
    }


def _read_token(token: str | None, from_head: bool | None) -> tuple[str, int | None]:
    if token is None:
        return ("f", 0) if from_head else ("b", None)
    direction, _, rest = token.partition("/")
    digits = rest.removesuffix("/s")
    if direction not in {"f", "b"} or not digits.isdigit():
        raise ServiceError("InvalidParameterException", "The specified nextToken is invalid.")
    return direction, int(digits)


def _read_position(token: str | None) -> int:
    if token is not None and not token.isdigit():
        raise ServiceError("InvalidParameterException", "The specified nextToken is invalid.")
    return int(token or 0)
