"""Input of the sandbox: the instances of one job, as values that travel as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A folder of the machine of which an instance sees a copy-on-write version at `target`.

    The entries of the folder `added`, if there is one, are seen there too, and first.
    """

    lower: str
    target: str
    scratch: str
    added: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance: who it is, what it sees, what runs as its process 1.

    `binds` are (host path, path inside) pairs in mounting order, `read_only` such pairs of folders. `volumes` are paths
    inside that are disks of their own, empty and limited in size (tmpfs), so that they can become full. `descriptor` is
    the inherited file descriptor that takes stdout and stderr.
    """

    name: str
    address: str
    folder: str
    argv: list[str]
    environment: dict[str, str]
    working_folder: str
    descriptor: int
    binds: list[tuple[str, str]] = field(default_factory=list)
    overlays: list[Overlay] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    read_only: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """All instances of one job and what they share.

    `ports` are loopback ports inside every instance that something outside answers, by what it is
    for (`engine`, `egress`); they need networks of their own.
    `needed` are host folders that must stay visible below a private /tmp.
    """

    instances: list[Instance]
    features: list[str]
    ports: dict[str, int] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ClusterPlan:
        """Return the plan that `to_json` wrote."""
        values = json.loads(text)
        instances = [
            Instance(
                **{
                    **each,
                    "binds": [tuple(pair) for pair in each["binds"]],
                    "read_only": [tuple(pair) for pair in each["read_only"]],
                    "overlays": [Overlay(**overlay) for overlay in each["overlays"]],
                }
            )
            for each in values.pop("instances")
        ]
        return cls(instances=instances, **values)
