"""Network of one job: a bridge in its own namespace, with a virtual cable (veth) to every instance."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BRIDGE = "cluster"


def ip_program() -> str | None:
    """Return the path of iproute2's `ip`, or None if it is not installed."""
    return shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin")


def instance_address(index: int, *, own_network: bool) -> str:
    """Return the address of the instance number `index`, counted from 0.

    Without `own_network` the instances share the machine's network, and each gets a loopback address.
    """
    high, low = divmod(index + 11, 256)
    return f"{10 if own_network else 127}.77.{high}.{low}"


def build_bridge() -> None:
    """Create the bridge in this network namespace.

    Raises OSError if the program `ip` is missing, or if the kernel rejects the bridge.
    """
    _run_batch(f"link add {BRIDGE} type bridge\nlink set {BRIDGE} up\nlink set lo up\n")


def connect(pids: list[int]) -> None:
    """Create a virtual cable (veth) from the bridge to the network namespace of each process.

    Raises OSError if `ip` is missing or the kernel rejects it.
    """
    lines = []
    for index, pid in enumerate(pids):
        lines += [
            f"link add cable{index} type veth peer name eth0 netns {pid}",
            f"link set cable{index} master {BRIDGE}",
            f"link set cable{index} up",
        ]
    _run_batch("\n".join(lines) + "\n")


def detach(indices: Sequence[int]) -> None:
    """Detach the virtual cables (veth) of these instances from the bridge.

    Raises OSError if the program `ip` is missing, or if the kernel rejects the change.
    """
    _run_batch("".join(f"link set cable{index} nomaster\n" for index in indices))


def attach(indices: Sequence[int]) -> None:
    """Attach the virtual cables (veth) of these instances to the bridge.

    Raises OSError if the program `ip` is missing, or if the kernel rejects the change.
    """
    _run_batch("".join(f"link set cable{index} master {BRIDGE}\n" for index in indices))


def configure(address: str) -> None:
    """Set the address of this namespace's end of the cable, and bring it up.

    Raises OSError if `ip` is missing or the kernel rejects it.
    """
    _run_batch(f"link set lo up\naddr add {address}/16 dev eth0\nlink set eth0 up\n")


def _run_batch(commands: str) -> None:
    program = ip_program()
    if program is None:
        raise OSError("`ip` (iproute2) is not installed")
    done = subprocess.run(  # noqa: S603  (a fixed program, no shell)
        [program, "-batch", "-"], input=commands, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise OSError(f"ip failed: {done.stderr.strip()}; commands:\n{commands}")
