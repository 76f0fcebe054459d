"""Host capabilities for instances, detected by trying each set of features."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from sagemaker_engine.sandbox import network
from sagemaker_engine.sandbox.cluster import SandboxCluster, SandboxError
from sagemaker_engine.sandbox.instance import ClusterPlan, Instance, Overlay

CANDIDATES: tuple[tuple[str, ...], ...] = (
    ("mount", "pid", "net", "overlay"),
    ("user", "mount", "pid", "net", "overlay"),
    ("mount", "pid", "overlay"),
    ("user", "mount", "pid", "overlay"),
    ("mount", "pid"),
    ("user", "mount", "pid"),
    (),
)
"""Feature sets, best first.

`mount` includes the host name and IPC; `user` is a user namespace, for use without root. The last set has no isolation:
instances use the real path of the job's folder instead of /opt/ml.
"""

PROBE_LIMIT_S = 120.0
"""Timeout of an attempt in seconds. It is long, because a failure on a busy machine counts until the next boot."""

LOSSES = {
    "net": "instances share this machine's network: two jobs that bind the same port collide",
    "overlay": "Python's environment is not copy-on-write: packages that a job installs stay on this "
    "machine",
    "pid": "instances share this machine's processes",
    "mount": "this machine's files are not hidden: a job can read and write every file that the engine's user can; "
    "an instance has neither /opt/ml nor a host name such as algo-1: SAGEMAKER_BASE_DIR points to the job's "
    "folder; files that a job writes elsewhere (/etc/environment) are written on this machine; checkpoints and "
    "channels are not separate mounts, so a rename into them works here and fails on SageMaker (EXDEV)",
}


def features(cache: Path) -> tuple[str, ...]:
    """Return the best feature set that works here. Sets are tried once per boot and user; `cache` stores the result."""
    try:
        kept = json.loads(cache.read_text(encoding="utf-8"))
        if kept["machine"] == machine():
            return tuple(kept["features"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # Not tried yet, or the file is not one of `keep`.
    found = next(each for each in CANDIDATES if not each or works(each, cache.parent) is None)
    keep(cache, found)
    return found


def keep(cache: Path, found: tuple[str, ...]) -> None:
    """Store in the file `cache` the features that jobs on this machine use until its next boot."""
    fresh = cache.with_name(f"{cache.name}.{os.getpid()}")
    fresh.write_text(json.dumps({"machine": machine(), "features": found}), encoding="utf-8")
    fresh.replace(cache)


def machine() -> str:
    """Return a text that identifies this boot, the user, the kernel and iproute2: the features depend on them."""
    return f"{_boot_id()} {os.geteuid()} {os.uname().release} {network.ip_program()}"


def works(wanted: tuple[str, ...], folder: Path) -> str | None:
    """Try a feature set with an instance that only exits; return the reason if it fails, otherwise None."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        lower = Path(scratch, "lower")
        lower.mkdir()
        read_end, write_end = os.pipe()
        overlay = Overlay(lower=str(lower), target="/opt/probe", scratch=f"{scratch}/over")
        instance = Instance(
            name="probe",
            address=network.instance_address(0, own_network="net" in wanted),
            folder=scratch,
            argv=["/bin/sh", "-c", "exit 0"],
            environment={},
            working_folder="/",
            descriptor=write_end,
            binds=[(scratch, "/opt/ml")],
            overlays=[overlay] if "overlay" in wanted else [],
        )
        try:
            return _try(ClusterPlan(instances=[instance], features=list(wanted)))
        finally:
            os.close(read_end)
            os.close(write_end)


def _try(plan: ClusterPlan) -> str | None:
    try:
        cluster = SandboxCluster(plan)
    except SandboxError as error:
        return str(error)
    try:
        cluster.start()
        exits = cluster.wait(PROBE_LIMIT_S)
        return None if exits and exits[0].code == 0 else f"the probe ended with {exits}"
    finally:
        cluster.close()


def losses(found: tuple[str, ...]) -> list[str]:
    """Return the missing features of an instance, as sentences for the job's log."""
    return [text for feature, text in LOSSES.items() if feature not in found]


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
