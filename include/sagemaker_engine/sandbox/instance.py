"""Plan of a job's instances: values that are sent to the cluster process as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Copy-on-write mount of the machine's folder `lower` at `target` inside an instance.

    The entries of the folder `added`, if set, are visible there too, and take precedence. `scratch` is the host folder
    for the overlay's upper and work folders.
    """

    lower: str
    target: str
    scratch: str
    added: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance: its identity, its mounts and its process 1.

    - `binds`, `read_only`: (host path, path in the instance) pairs; `binds` in mounting order.
    - `volumes`: paths in the instance at which separate disks (tmpfs) are mounted. Each disk is empty at first
      and limited in size, so that it can become full.
    - `descriptor`: inherited file descriptor for stdout and stderr.
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
    """All instances of one job, and their common settings.

    - `ports`: purpose (`engine` or `egress`) -> loopback port in every instance. A program outside of the
      instance accepts the connections to this port. Ports need the feature `net`.
    - `needed`: host paths outside of the system folders. The instance sees them read-only.
    - `private`: host folders that appear empty in the instance, even if a visible folder contains them.

    If a path in `needed` is below a path in `private`, or the reverse, the list with the longer path applies
    to everything below that path. A path in both lists is visible.
    """

    instances: list[Instance]
    features: list[str]
    ports: dict[str, int] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)

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
