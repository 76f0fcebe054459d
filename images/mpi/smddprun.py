"""Replacement for `smddprun`, the program with which SMDDP's images start each rank.

It sets torch's environment variables, then runs the rank's program. Usage:
`mpirun ... smddprun python -m mpi4py train.py`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
"""torch's variable -> Open MPI's variable with the same value."""


def rank_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return torch's variables for a rank, derived from mpirun's variables."""
    return {
        name: environment[mpi_name] for name, mpi_name in NAMES.items() if mpi_name in environment
    }


def main() -> None:
    """Replace this process by the program."""
    os.environ.update(rank_environment(os.environ))
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606


if __name__ == "__main__":
    main()
