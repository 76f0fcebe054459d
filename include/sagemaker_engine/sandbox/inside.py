"""Changes of running instances (network, volumes) by a helper process that enters their namespaces."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from sagemaker_engine import SOURCE_FOLDER
from sagemaker_engine.sandbox import linux, network
from sagemaker_engine.sandbox.linux import MountFlag, Namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from sagemaker_engine.sandbox.inside import main\n"
    "main(*sys.argv[2:])"
)
LIMIT_S = 20.0
FILL_TRIES = 1000


def cut_cables(holder: int, indices: Sequence[int]) -> None:
    """Detach the virtual cables (veth) of these instances from the bridge, so that no packet reaches or leaves them.

    `holder` is the id of the cluster process. As with a real cable, no error is signaled: connections block.

    Raises:
        OSError: The kernel rejects it.
    """
    _run(holder, "cut", *map(str, indices))


def mend_cables(holder: int, indices: Sequence[int]) -> None:
    """Attach the virtual cables (veth) of instances to the bridge again, after `cut_cables`.

    `holder` is the id of the cluster process. `indices` are the indices of the instances.

    Raises:
        OSError: The kernel rejects it.
    """
    _run(holder, "mend", *map(str, indices))


def fill_volume(first: int, path: str) -> None:
    """Fill a volume by reducing its size to the size of its content.

    `first` is the process id of the instance's process 1. `path` is the volume's path inside the instance.

    Raises:
        OSError: The kernel rejects the new size, or the instance has ended.
    """
    _run(first, "fill", path)


def resize_volume(first: int, path: str, size_bytes: int) -> None:
    """Set the size of a volume, rounded up to pages; `first` is the process id of the instance's process 1.

    Raises:
        OSError: The kernel rejects it, for example because the volume has more content.
    """
    _run(first, "resize", path, str(size_bytes))


def main(pid: str, action: str, *arguments: str) -> None:
    """Carry out one action in the namespaces of a process.

    Raises:
        ValueError: The action does not exist.
    """
    match action:
        case "cut":
            linux.join_namespaces(int(pid), (Namespace.USER, Namespace.NET))
            network.detach([int(each) for each in arguments])
        case "mend":
            linux.join_namespaces(int(pid), (Namespace.USER, Namespace.NET))
            network.attach([int(each) for each in arguments])
        case "fill":
            linux.join_namespaces(int(pid), (Namespace.USER, Namespace.MOUNT))
            _fill(*arguments)
        case "resize":
            linux.join_namespaces(int(pid), (Namespace.USER, Namespace.MOUNT))
            path, size = arguments
            _resize(path, int(size))
        case _:
            raise ValueError(f"{action!r} is not one of cut, mend, fill, resize")


def _fill(path: str) -> None:
    """Fill the volume by shrinking it to the size of its content, so that no space is left.

    A concurrent write may enlarge the content before the kernel checks the new size. The kernel then rejects
    the size as too small, and the step is repeated.

    Raises:
        OSError: The kernel rejects the size as too small at the last try, or rejects it for another reason.
    """
    for tries_left in reversed(range(FILL_TRIES)):
        status = os.statvfs(path)
        used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
        try:
            _resize(path, max(status.f_frsize, used_bytes))
        except OSError as error:
            if error.errno != errno.EINVAL or not tries_left:
                raise
        else:
            return


def _resize(path: str, size_bytes: int) -> None:
    flags = MountFlag.REMOUNT | MountFlag.NO_SUID | MountFlag.NO_DEV
    linux.mount("none", path, flags=flags, data=f"size={size_bytes}")


def _run(pid: int, action: str, *arguments: str) -> None:
    """Run an action in a new process, because a process with several threads cannot enter a mount namespace.

    Raises:
        OSError: The kernel rejects the action.
    """
    base = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(  # noqa: S603  (the engine's own interpreter)
        [
            *(base, "-I", "-S", "-c", BOOTSTRAP, str(SOURCE_FOLDER)),
            *(str(pid), action, *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode != 0:
        raise OSError(f"{action} failed: {done.stderr.strip().rpartition(chr(10))[2]}")
