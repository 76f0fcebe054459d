"""Sandbox settings of a job's instances: folders, links, overlays, pipes and environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sagemaker_engine.jobs.container import HOME_INSIDE, STUBS_INSIDE, base_environment
from sagemaker_engine.sandbox import capabilities, egress, network
from sagemaker_engine.sandbox.cluster import SandboxCluster
from sagemaker_engine.sandbox.instance import ClusterPlan, Instance, Overlay
from sagemaker_engine.sandbox.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.job import HostPlan, Job

ML_INSIDE = "/opt/ml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Host capabilities for instances: the machine's features, and whether the job is network-isolated."""

    features: tuple[str, ...]
    is_isolated: bool

    @property
    def has_network(self) -> bool:
        """Return whether each instance has its own network."""
        return "net" in self.features

    @property
    def has_overlay(self) -> bool:
        """Return whether folders can be mounted copy-on-write."""
        return "overlay" in self.features

    @property
    def has_mounts(self) -> bool:
        """Return whether /opt/ml can be a mount; if not, instances use this machine's paths."""
        return "mount" in self.features

    @property
    def interface(self) -> str:
        """Return the name of the network interface between the instances."""
        return "eth0" if self.has_network else "lo"

    def host_names(self, count: int) -> list[str] | None:
        """Return loopback addresses as host names if names such as algo-1 are not possible, otherwise None."""
        if self.has_mounts:
            return None
        return [network.instance_address(index, own_network=False) for index in range(count)]


def survey(job: Job) -> Ground:
    """Return this machine's capabilities, which the first job detects and which are cached until the next boot."""
    found = capabilities.features(job.settings.root / "sandbox.json")
    isolated = bool(job.request.get("EnableNetworkIsolation"))
    return Ground(features=found, is_isolated=isolated)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """Settings of one instance, in addition to those that all instances of the job share.

    - `folders`: (host path, instance path) of writable mounts.
    - `copied`: (host path, instance path) of copy-on-write mounts.
    - `read_only`: (host path, instance path) of read-only mounts.
    - `volumes`: instance paths, each of which gets a separate disk.
    - `added`: (host path, instance path) of overlays. At the instance path, the instance sees two folders of
      this machine merged. One is the folder with that same path, the other is the folder at the host path.
    - `programs`: instance paths of folders that are first on the PATH.
    - `descriptor`: file descriptor of the log.
    """

    host: HostPlan
    command: Sequence[str]
    environment: Mapping[str, str]
    descriptor: int
    folders: Sequence[tuple[Path, str]] = ()
    copied: Sequence[tuple[Path, str]] = ()
    read_only: Sequence[tuple[Path, str]] = ()
    volumes: Sequence[str] = ()
    added: Sequence[tuple[Path, str]] = ()
    programs: Sequence[str] = ()


def make_cluster(
    job: Job, runtime: ImageRuntime, ground: Ground, requests: Sequence[InstanceRequest]
) -> SandboxCluster:
    """Create the instances; no program of the user runs yet.

    Raises SandboxError if the machine rejects an operation, although its features were detected before.
    """
    has_way_out = ground.has_network and not ground.is_isolated
    ports = {"engine": _engine_address(job)[1], "egress": egress.PORT_INSIDE}
    plan = ClusterPlan(
        instances=[
            _instance(job, runtime, ground, each, index, [other.host.name for other in requests])
            for index, each in enumerate(requests)
        ],
        features=list(ground.features),
        ports=ports if has_way_out else {},
        needed=_needed(runtime),
        private=private_folders(job.settings.root),
    )
    relay = Relay(lambda: _engine_address(job))
    return SandboxCluster(
        plan, answer={"engine": relay.serve, "egress": egress.EgressProxy(os.environ).serve}
    )


def _needed(runtime: ImageRuntime) -> list[str]:
    """Return the paths of this machine that an instance must see, besides the system folders."""
    wanted = [runtime.prefix, *runtime.layers, runtime.base_prefix, runtime.bin_folder / "python"]
    if runtime.source_folder is not None:
        wanted.append(runtime.source_folder)
    indexes = " ".join(_package_index_environment().values()).split()
    return [*map(str, wanted), *(each for each in indexes if each.startswith("/"))]


def private_folders(root: Path) -> list[str]:
    """Return the folders that are hidden from all instances: the engine's state, the home folder, Airflow's folder."""
    home = Path.home()
    airflow = os.environ.get("AIRFLOW_HOME") or home / "airflow"
    return [str(root), str(home), str(airflow)]


def _instance(
    job: Job,
    runtime: ImageRuntime,
    ground: Ground,
    request: InstanceRequest,
    index: int,
    names: list[str],
) -> Instance:
    folder = job.host_folder(request.host.name)
    (folder / "home").mkdir(parents=True, exist_ok=True)
    environment = _environment(job, runtime, ground, folder, names)
    environment["PATH"] = ":".join([*request.programs, environment["PATH"]])
    return Instance(
        name=request.host.name,
        address=network.instance_address(index, own_network=ground.has_network),
        folder=str(folder),
        argv=list(request.command),
        environment=environment | dict(request.environment),
        working_folder="/" if ground.has_mounts else str(folder / "ml"),
        descriptor=request.descriptor,
        binds=_binds(runtime, ground, folder, request),
        overlays=_overlays(runtime, ground, folder, request),
        volumes=list(request.volumes),
        read_only=_read_only(job, ground, request),
    )


def _environment(
    job: Job, runtime: ImageRuntime, ground: Ground, folder: Path, names: list[str]
) -> dict[str, str]:
    """Return the environment variables that an instance of the job has, whichever program it runs.

    `folder` is the folder of this instance. `names` are the names of all instances of the job.
    """
    environment = base_environment(
        job,
        runtime,
        num_hosts=len(names),
        stubs=_stubs(job.settings.root / "warm", ground) if runtime.image is None else None,
        endpoint_url=_endpoint_inside(job, ground),
    )
    if not ground.has_mounts:
        environment |= {"HOME": str(folder / "home"), "SAGEMAKER_BASE_DIR": str(folder / "ml")}
    if not ground.is_isolated:
        environment |= _package_index_environment()
        if ground.has_network:
            environment |= egress.proxy_environment(names)
    return environment


def _binds(
    runtime: ImageRuntime, ground: Ground, folder: Path, request: InstanceRequest
) -> list[tuple[str, str]]:
    """Return (host path, path inside) of the instance's writable folders, in mounting order."""
    binds = [(str(source), target) for source, target in request.folders]
    if ground.has_mounts:
        binds.append((str(folder / "home"), HOME_INSIDE))
        if not ground.has_overlay:
            binds.append((str(runtime.prefix), str(runtime.prefix)))
    return binds


def _read_only(job: Job, ground: Ground, request: InstanceRequest) -> list[tuple[str, str]]:
    """Return (host path, path inside) of the instance's read-only folders.

    These are the folders of the request and, if it exists, the folder with the stubs and the socket of the warm
    workers (package `warm`). The latter is left out if the machine does not support mounts for instances
    (`Ground.has_mounts`).
    """
    folders = [(str(source), target) for source, target in request.read_only]
    stubs = job.settings.root / "warm"
    if ground.has_mounts and stubs.exists():
        folders.append((str(stubs), STUBS_INSIDE))
    return folders


def _overlays(
    runtime: ImageRuntime, ground: Ground, folder: Path, request: InstanceRequest
) -> list[Overlay]:
    """Return the copy-on-write folders of the instance.

    These are the request's input folders (`copied`), the Python environments of `runtime`, and the folders to
    which the request adds entries (`added`).
    """
    environments = (runtime.prefix, *runtime.layers) if ground.has_overlay else ()
    seen = [(each, str(each)) for each in environments]
    wanted: list[tuple[str | None, str, str]]
    wanted = [(None, str(lower), target) for lower, target in [*request.copied, *seen]]
    wanted += [(str(added), target, target) for added, target in request.added]
    return [
        Overlay(
            lower=lower,
            target=target,
            scratch=str(folder / "overlays" / str(number)),
            added=added,
        )
        for number, (added, lower, target) in enumerate(wanted)
    ]


def _package_index_environment() -> dict[str, str]:
    """Return this machine's variables for package indexes and trusted certificates."""
    trusted = {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"}
    return {
        name: value
        for name, value in os.environ.items()
        if name in trusted or name.startswith("PIP_")
    }


def _stubs(stubs: Path, ground: Ground) -> str | None:
    if not (stubs / "bin").exists():
        return None
    return STUBS_INSIDE if ground.has_mounts else str(stubs)


def _endpoint_inside(job: Job, ground: Ground) -> str | None:
    if ground.is_isolated:
        return None
    if not ground.has_network:
        return _engine_url(job)
    return f"http://127.0.0.1:{_engine_address(job)[1]}"


def _engine_url(job: Job) -> str:
    try:
        return job.settings.endpoint_path.read_text(encoding="utf-8").strip()
    except OSError:
        return job.settings.endpoint_url


def _engine_address(job: Job) -> tuple[str, int]:
    parts = urlsplit(_engine_url(job))
    return parts.hostname or "127.0.0.1", parts.port or 80
