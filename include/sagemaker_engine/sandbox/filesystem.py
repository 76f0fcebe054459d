"""File system of one instance: the machine's, except for private /opt/ml, /tmp, /etc/environment and Python.

The new root is a small tmpfs into which every entry of / is bound. Mount points such as /opt/ml can therefore be
created without writing to the machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine.sandbox import linux
from sagemaker_engine.sandbox.linux import MountFlag

if TYPE_CHECKING:
    from sagemaker_engine.sandbox.instance import ClusterPlan, Instance, Overlay

TMP = "/tmp"  # noqa: S108  (private to the instance)
SHARED_MEMORY = "/dev/shm"  # noqa: S108
VOLUME_BYTES = 8 << 30
"""Size in bytes of a volume that is not full; memory is used only for its content."""
OWN = frozenset({"proc", "opt", "tmp", "etc"})
"""Entries of / that are not bound as they are."""
ENVIRONMENT = "/etc/environment"
"""File to which the SDK's MPI driver appends variables."""


def build_root(instance: Instance, plan: ClusterPlan) -> str:
    """Build the root of the instance in this mount namespace and return its path.

    Raises OSError if a mount is not allowed or a path is missing.
    """
    linux.mount("none", "/", flags=MountFlag.RECURSIVE | MountFlag.PRIVATE)
    root = str(Path(instance.folder, "root"))
    Path(root).mkdir(parents=True, exist_ok=True)
    linux.mount("tmpfs", root, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEV, "mode=0755")
    for entry in os.scandir("/"):
        if entry.name not in OWN:
            _show(entry, root)
    Path(root, "proc").mkdir()
    Path(root, "opt").mkdir()
    for entry in os.scandir("/opt") if Path("/opt").is_dir() else ():
        _show(entry, root + "/opt")
    _private_etc(instance, root)
    _private_tmp(instance, plan, root)
    linux.mount("tmpfs", root + SHARED_MEMORY, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEV)
    hosts = Path(instance.folder, "hosts")
    hosts.write_text(hosts_file(plan), encoding="utf-8")
    linux.bind(str(hosts), root + "/etc/hosts")
    for source, target in instance.binds:
        _bind_at(source, root + target)
    for source, target in instance.read_only:
        Path(root + target).mkdir(parents=True, exist_ok=True)
        linux.bind_read_only(source, root + target)
    for target in instance.volumes:
        Path(root + target).mkdir(parents=True, exist_ok=True)
        flags = MountFlag.NO_SUID | MountFlag.NO_DEV
        linux.mount("tmpfs", root + target, "tmpfs", flags, f"mode=0755,size={VOLUME_BYTES}")
    for overlay in instance.overlays:
        mount_overlay(overlay, root)
    return root


def hosts_file(plan: ClusterPlan) -> str:
    """Return the content of /etc/hosts in every instance of the plan."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{each.address} {each.name}" for each in plan.instances]
    # torch resolves the names of its peers by their IPv6-mapped addresses, and logs a warning if that fails.
    lines += [f"::ffff:{each.address} {each.name}.cluster" for each in plan.instances]
    return "\n".join(lines) + "\n"


def mount_overlay(overlay: Overlay, root: str) -> None:
    """Mount a folder copy-on-write.

    Raises OSError if the machine does not allow overlays.
    """
    upper, work = f"{overlay.scratch}/upper", f"{overlay.scratch}/work"
    for folder in (upper, work, root + overlay.target):
        Path(folder).mkdir(parents=True, exist_ok=True)
    lower = ":".join(_escape(each) for each in (overlay.added, overlay.lower) if each)
    data = f"lowerdir={lower},upperdir={_escape(upper)},workdir={_escape(work)}"
    if linux.in_user_namespace():
        data += ",userxattr"
    linux.mount("overlay", root + overlay.target, "overlay", data=data)


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _show(entry: os.DirEntry[str], parent: str) -> None:
    target = f"{parent}/{entry.name}"
    if entry.is_symlink():
        Path(target).symlink_to(Path(entry.path).readlink())
    else:
        _bind_at(entry.path, target)


def _bind_at(source: str, target: str) -> None:
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    elif not Path(target).exists():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    linux.bind(source, target)


def _private_etc(instance: Instance, root: str) -> None:
    """Mount /etc with a private /etc/environment, which starts as a copy of the machine's.

    A bind mount needs an existing file. If the machine has none, or only a link out of the new root, the instance's
    /etc is a new folder into which every other entry is bound.
    """
    theirs = Path(ENVIRONMENT)
    is_readable = theirs.is_file() and os.access(theirs, os.R_OK)
    own = Path(instance.folder, "environment")
    own.write_bytes(theirs.read_bytes() if is_readable else b"")
    if theirs.is_file() and not theirs.is_symlink():
        _bind_at("/etc", root + "/etc")
    else:
        Path(root, "etc").mkdir()
        for entry in os.scandir("/etc"):
            if entry.path != ENVIRONMENT:
                _show(entry, root + "/etc")
    _bind_at(str(own), root + ENVIRONMENT)


def _private_tmp(instance: Instance, plan: ClusterPlan, root: str) -> None:
    folder = Path(instance.folder, "tmp")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    _bind_at(str(folder), root + TMP)
    for path in plan.needed:
        if Path(path).is_relative_to(TMP):
            _bind_at(path, root + path)
