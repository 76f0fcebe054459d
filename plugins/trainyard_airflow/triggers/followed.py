"""`Followed`: a job that a trigger or a worker follows, with the settings of its follower."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from trainyard.runs.notifier import Notifier
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.triggers.stop_criteria import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Version of a trigger's arguments in Airflow's database; a release reads all versions (docs/adr/0057)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A job to follow, with the settings of its follower. JSON-safe through `to_dict`.

    Attributes:
        poll_interval_s: longest time between two polls, in seconds.
        stream_logs: whether to forward the log lines of all hosts.
        patience: limits after which the job is stopped.
        notifier: recipient of messages on spot interruptions, or None.
        has_secrets: whether the job's request has values to mask in its log; they are read from the service.
    """

    kind: JobKind
    job_name: str
    connection: ConnectionArguments
    poll_interval_s: float = 15.0
    stream_logs: bool = True
    patience: Patience = field(default_factory=Patience)
    notifier: Notifier | None = None
    has_secrets: bool = True

    @property
    def wants_lines(self) -> bool:
        """True if the job's log lines are needed, to forward them or as heartbeats."""
        return self.stream_logs or bool(self.patience.heartbeat_timeout_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        return {
            "v": VERSION,
            "kind": str(self.kind),
            "job_name": self.job_name,
            "poll_interval_s": self.poll_interval_s,
            "stream_logs": self.stream_logs,
            "patience": self.patience.to_dict(),
            "notifier": self.notifier.to_dict() if self.notifier else None,
            "has_secrets": self.has_secrets,
            "connection": self.connection.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the job from the result of `to_dict` of this or another release.

        Unknown keys of later releases are ignored; missing keys have their defaults. In version 0 the members of the
        connection were on the top level.

        Raises:
            KeyError: the kind or the name of the job is missing.
            ValueError: the kind is unknown to this release, or a member has an invalid value.
            TypeError: a member has a wrong type.
        """
        return cls(
            kind=JobKind(data["kind"]),
            job_name=_text(data["job_name"]),
            poll_interval_s=float(data.get("poll_interval_s", 15.0)),
            stream_logs=bool(data.get("stream_logs", True)),
            patience=Patience.from_dict(data.get("patience") or {}),
            notifier=Notifier.from_dict(data.get("notifier")),
            has_secrets=bool(data.get("has_secrets", True)),
            connection=ConnectionArguments.from_dict(data.get("connection", data)),
        )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"job_name must be a non-empty string, got {value!r}")
    return value
