"""File system of one instance: the machine's system folders (read-only) and the instance's private folders.

The new root is a small tmpfs into which the system folders are bound. All other files of the machine
(homes, the engine's state, checkouts, sockets in /run) are absent, except for the paths that the image
needs. Mount points such as /opt/ml can be created in the tmpfs without writing to the machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine.sandbox import linux
from sagemaker_engine.sandbox.linux import MountFlag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sagemaker_engine.sandbox.instance import ClusterPlan, Instance, Overlay

TMP = "/tmp"  # noqa: S108  (private to the instance)
VAR_TMP = "/var/tmp"  # noqa: S108
SHARED_MEMORY = "/dev/shm"  # noqa: S108
VOLUME_BYTES = 8 << 30
"""Size in bytes of a volume that is not full; memory is used only for its content."""
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "sys", "nix", "gnu")
"""Entries of / that are bound read-only, besides /etc and the entries of /opt."""
RESOLVER = "/etc/resolv.conf"
"""File that is often a link to a file in /run or /var, of which instances have private versions."""
CERTIFICATES = "/var/lib/ca-certificates"
"""Folder that /etc/ssl is a link to on some distributions."""
SECRETS = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab"),
    *("/etc/ssh", "/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d"),
)
DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"),
    *("fd", "stdin", "stdout", "stderr", "dri", "kfd", "infiniband"),
)
"""Entries of /dev that an instance has, besides NVIDIA's and shm: no disks, no memory of the machine."""
KERNEL_SETTINGS = ("sys", "irq", "bus", "fs", "sysrq-trigger")
"""Entries of /proc that are read-only, because root can change the kernel through them without a capability."""
KERNEL_MEMORY = "kcore"
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
    _show_system(root)
    own = _private_folders(instance, root)
    _show_and_hide(plan, root)
    _make_read_only(root, own)
    _private_environment(instance, root)
    for device in DEVICES:
        _show_device(Path("/dev", device), root)
    for path in Path("/dev").glob("nvidia*"):
        _show_device(path, root)
    Path(root + SHARED_MEMORY).mkdir()
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


def mount_proc(root: str, *, own_processes: bool) -> None:
    """Mount /proc with read-only kernel settings.

    With `own_processes` it shows the processes of this PID namespace, otherwise all processes of the machine.

    Raises OSError if the machine does not allow it.
    """
    proc = root + "/proc"
    if own_processes:
        linux.mount("proc", proc, "proc")
    else:
        linux.bind("/proc", proc)
    for path in (Path(proc, each) for each in KERNEL_SETTINGS):
        if path.exists():
            linux.bind_read_only(str(path), str(path))
    if Path(proc, KERNEL_MEMORY).exists():
        linux.bind(root + os.devnull, f"{proc}/{KERNEL_MEMORY}")


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


def _show_system(root: str) -> None:
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink() or path.is_dir():
            _show_entry(path, root)
    Path(root, "opt").mkdir()
    for path in Path("/opt").iterdir() if Path("/opt").is_dir() else ():
        _show_entry(path, root)
    _show_etc(root)


def _show_etc(root: str) -> None:
    """Show the machine's /etc in the instance, so that a file can be mounted over /etc/environment later.

    If the machine's /etc/environment is a regular file, its /etc is bound as a whole. Otherwise the other
    entries of /etc are bound one by one, and an empty /etc/environment is created.
    """
    theirs = Path(ENVIRONMENT)
    if theirs.is_file() and not theirs.is_symlink():
        _bind_at("/etc", root + "/etc")
        return
    Path(root, "etc").mkdir()
    for path in Path("/etc").iterdir():
        if path != theirs:
            _show_entry(path, root)
    Path(root + ENVIRONMENT).touch()


def _private_folders(instance: Instance, root: str) -> set[str]:
    """Create the instance's own /proc, /dev, /root, /run, /tmp and /var; return those that are mounts."""
    for name in ("proc", "dev", "root", "run", "var/lib", "var/log", "var/cache"):
        Path(root, name).mkdir(parents=True)
    Path(root, "var/run").symlink_to("/run")
    mounted = {TMP: "tmp", VAR_TMP: "var-tmp"}
    for target, name in mounted.items():
        folder = Path(instance.folder, name)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
        _bind_at(str(folder), root + target)
    return {root, *(root + target for target in mounted)}


def _show_and_hide(plan: ClusterPlan, root: str) -> None:
    """Show the host paths in `plan.needed` and hide those in `plan.private`, then hide `SECRETS`.

    `RESOLVER` and `CERTIFICATES` are shown, too. The paths of the plan are handled in the order of their depth,
    so a path overrides the folders that contain it.
    """
    needed = {RESOLVER, CERTIFICATES, *plan.needed}

    def depth(path: str) -> tuple[int, bool]:
        return max(len(Path(path).parts), len(Path(path).resolve().parts)), path in needed

    for path in sorted({*needed, *plan.private}, key=depth):
        if path in needed:
            _show(path, root)
        else:
            _hide(path, root)
    for path in SECRETS:
        if Path(path).exists():
            _hide(path, root)


def _make_read_only(root: str, own: Iterable[str]) -> None:
    """Make all mounts below the root read-only except the instance's own."""
    below = {each for each in linux.mount_points() if Path(each).is_relative_to(root)}
    for target in sorted(below - set(own)):
        linux.make_read_only(target)


def _show(path: str, root: str) -> None:
    """Make a path of the machine visible: links on the way are copied, the file or folder at the end is bound."""
    if not Path(path).exists():
        return
    at = Path("/")
    parts = Path(path).parts[1:]
    for number, part in enumerate(parts, start=1):
        at = at / part
        if at.is_symlink():
            inside = Path(f"{root}{at}")
            if not inside.is_symlink():
                inside.parent.mkdir(parents=True, exist_ok=True)
                inside.symlink_to(at.readlink())
            target = at.parent.joinpath(at.readlink(), *parts[number:])
            _show(os.path.normpath(target), root)
            return
    inside = Path(f"{root}{at}")
    if not (inside.exists() and inside.samefile(at)):
        _bind_at(str(at), str(inside))


def _hide(path: str, root: str) -> None:
    """Cover a visible folder with an empty folder, and a visible file with an empty file."""
    real = Path(path).resolve()
    inside = f"{root}{real}"
    if real == Path("/") or not Path(inside).exists():
        return
    if real.is_dir():
        linux.mount("tmpfs", inside, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEV, "mode=0755")
    else:
        linux.bind(os.devnull, inside)


def _show_entry(path: Path, root: str) -> None:
    """Make `path` visible below `root`: copy it if it is a link, otherwise bind it."""
    if path.is_symlink():
        Path(f"{root}{path}").symlink_to(path.readlink())
    else:
        _bind_at(str(path), f"{root}{path}")


def _show_device(path: Path, root: str) -> None:
    if path.is_symlink() or path.exists():
        _show_entry(path, root)


def _bind_at(source: str, target: str) -> None:
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    elif not Path(target).exists():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    linux.bind(source, target)


def _private_environment(instance: Instance, root: str) -> None:
    """Mount a private /etc/environment, which starts as a copy of the machine's."""
    theirs = Path(ENVIRONMENT)
    is_readable = theirs.is_file() and os.access(theirs, os.R_OK)
    own = Path(instance.folder, "environment")
    own.write_bytes(theirs.read_bytes() if is_readable else b"")
    linux.bind(str(own), root + ENVIRONMENT)
