"""Linux system calls that Python 3.11 does not offer: namespaces, mounts, inotify, parent-death signals."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
from enum import IntFlag
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Namespace(IntFlag):
    """Kinds of namespaces, with the kernel's numbers (linux/sched.h)."""

    MOUNT = 0x00020000
    UTS = 0x04000000
    IPC = 0x08000000
    USER = 0x10000000
    PID = 0x20000000
    NET = 0x40000000


NAMESPACE_FILES = {
    Namespace.USER: "user",
    Namespace.MOUNT: "mnt",
    Namespace.UTS: "uts",
    Namespace.IPC: "ipc",
    Namespace.PID: "pid",
    Namespace.NET: "net",
}


class MountFlag(IntFlag):
    """Flags of mount(2) (linux/mount.h)."""

    READ_ONLY = 1
    NO_SUID = 2
    NO_DEV = 4
    NO_EXEC = 8
    REMOUNT = 32
    BIND = 4096
    RECURSIVE = 16384
    PRIVATE = 1 << 18


WHOLE_MACHINE = ["0", "0", "4294967295"]
"""Content of uid_map in a process that is not in a new user namespace."""

DETACH = 2
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
CAPABILITY_VERSION_3 = 0x20080522
KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 10})
"""Capabilities of a job's programs (linux/capability.h): CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID and
NET_BIND_SERVICE. They cover files, users and port 22; none covers mounts, devices, the kernel or other processes."""

_OCTAL = re.compile(r"\\([0-7]{3})")
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(kinds: Namespace) -> None:
    """Move this process to new namespaces of these kinds.

    Raises OSError if the machine does not allow it.
    """
    _check(_libc.unshare(int(kinds)), f"unshare({kinds!r})")


def join_namespaces(pid: int, kinds: Iterable[Namespace] = tuple(NAMESPACE_FILES)) -> None:
    """Join the namespaces of the process `pid`, if they are of these kinds and differ from this process's own.

    A PID namespace applies only to children that are forked afterwards.

    Raises OSError if the machine does not allow it.
    """
    wanted = Namespace(0)
    for kind in kinds:
        name = NAMESPACE_FILES[kind]
        theirs, ours = (Path(f"/proc/{who}/ns/{name}").stat() for who in (pid, "self"))
        if theirs.st_ino != ours.st_ino:
            wanted |= kind
    if wanted:
        descriptor = os.pidfd_open(pid)
        _check(_libc.setns(descriptor, int(wanted)), f"setns({wanted!r})")
        os.close(descriptor)


def mount(
    source: str, target: str, kind: str = "", flags: MountFlag | None = None, data: str = ""
) -> None:
    """Mount `source` at `target`.

    Raises OSError if the machine does not allow it or a path is missing.
    """
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        int(flags or 0),
        data.encode() or None,
    )
    _check(result, f"mount({kind or 'bind'} {source} at {target})")


def bind(source: str, target: str) -> None:
    """Bind the file or folder tree `source` to `target`.

    Raises OSError if the machine does not allow it or a path is missing.
    """
    mount(source, target, flags=MountFlag.BIND | MountFlag.RECURSIVE)


def bind_read_only(source: str, target: str) -> None:
    """Bind the file or folder `source` to `target` read-only: writes there fail with EROFS.

    Raises OSError if the machine does not allow it or a path is missing.
    """
    mount(source, target, flags=MountFlag.BIND)
    make_read_only(target)


def make_read_only(target: str) -> None:
    """Make the mount at `target` read-only. The mounts below it do not change.

    Raises OSError if the machine does not allow it.
    """
    # In a user namespace a remount must keep the flags of the mount.
    kept = os.statvfs(target).f_flag & (MountFlag.NO_SUID | MountFlag.NO_DEV | MountFlag.NO_EXEC)
    flags = MountFlag.BIND | MountFlag.REMOUNT | MountFlag.READ_ONLY | MountFlag(kept)
    mount("none", target, flags=flags)


def mount_points() -> list[str]:
    """Return the mount points that this process sees, in mounting order (proc_pid_mountinfo(5)).

    Raises OSError if /proc is not mounted.
    """
    lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    return [_OCTAL.sub(lambda each: chr(int(each[1], 8)), line.split()[4]) for line in lines]


def drop_privileges() -> None:
    """Keep only `KEPT_CAPABILITIES`, for this process and all programs that it executes. No program can gain others.

    Raises OSError if the kernel rejects it.
    """
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    number = 0
    while (is_held := _libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if is_held and number not in KEPT_CAPABILITIES:
            # Without CAP_SETPCAP this fails, and programs of root keep what root has here.
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
        number += 1
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (
        ctypes.c_uint32 * 6
    )()  # (effective, permitted, inheritable) of capabilities 0 to 31, then of the others.
    _check(_libc.capget(header, sets), "capget")
    kept = sum(1 << each for each in KEPT_CAPABILITIES)
    for index in range(6):
        sets[index] &= (kept if index < 2 else 0) if index < 3 else kept >> 32
    _check(_libc.capset(header, sets), "capset")


def inotify() -> int:
    """Return a new non-blocking inotify descriptor.

    Raises:
        OSError: Too many are in use.
    """
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    _check(min(descriptor, 0), "inotify_init1")
    return descriptor


def inotify_watch(descriptor: int, folder: str, mask: int) -> None:
    """Watch a folder. A missing folder is ignored.

    Raises:
        OSError: The folder cannot be read, or too many folders are watched.
    """
    result = _libc.inotify_add_watch(descriptor, os.fsencode(folder), mask)
    if result < 0 and ctypes.get_errno() != errno.ENOENT:
        _check(-1, f"inotify_add_watch({folder})")


def pivot_root(new_root: str) -> None:
    """Make `new_root` (a mount point) the root of this mount namespace and drop the old one.

    Raises:
        OSError: The machine does not allow it.
    """
    os.chdir(new_root)
    number = SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root: no system call number known for {os.uname().machine}")
    _check(_libc.syscall(number, b".", b"."), f"pivot_root({new_root})")
    _check(_libc.umount2(b".", DETACH), "umount of the old root")
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Set the host name of this UTS namespace.

    Raises OSError if the machine does not allow it.
    """
    _check(_libc.sethostname(name.encode(), len(name.encode())), f"sethostname({name})")


def die_with_parent(parent_pid: int) -> None:
    """Request SIGKILL to this process when its parent dies; exit if the parent is dead already.

    `parent_pid` is the parent's id as this process sees it (0 if it is outside the PID namespace).
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(128 + signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants of this process."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_process_name(name: str) -> None:
    """Set the name of this process in `ps` and `top` (the first 15 bytes)."""
    _libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def in_user_namespace() -> bool:
    """Return whether this process is in a user namespace other than the machine's."""
    return Path("/proc/self/uid_map").read_text(encoding="ascii").split() != WHOLE_MACHINE
