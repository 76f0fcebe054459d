"""Environment variables of torch's launcher for a rank under mpirun.

SageMaker starts `pytorchddp`, SMDDP and MPI jobs with Open MPI, which has its own variables for a rank. The toolkit of
SageMaker's images sets MASTER_ADDR and MASTER_PORT; the MPI driver of SDK 3 does not. mpirun also passes the first
instance's SM_CURRENT_HOST to all ranks (sagemaker-training-toolkit issue 158).
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TOLD = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
"""torch's variables, and Open MPI's of the same meaning (mpirun(1), ENVIRONMENT VARIABLES)."""
MASTER_PORT = "7777"
"""The rendezvous port of torch's ranks in AWS's toolkit (sagemaker-pytorch-training 3.0.0)."""


def rank_variables(environ: Mapping[str, str], *, host: str | None = None) -> dict[str, str]:
    """Return torch's variables for a rank of mpirun; an empty dict outside of mpirun.

    `host` is this container's name, by default the system's host name. Variables that are set already are left out,
    except SM_CURRENT_HOST.

    Worked: rank 3 of 4 on 2 hosts, `{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "algo-1", "MASTER_PORT": "7777", "SM_CURRENT_HOST": "algo-2"}`.
    """
    if TOLD["RANK"] not in environ:
        return {}
    hosts = sorted(json.loads(environ.get("SM_HOSTS", "[]")), key=lambda name: (len(name), name))
    here = host if host is not None else socket.gethostname()
    variables = {
        **{name: environ[told] for name, told in TOLD.items() if told in environ},
        "MASTER_ADDR": hosts[0] if hosts else "127.0.0.1",
        "MASTER_PORT": MASTER_PORT,
    }
    fresh = {name: value for name, value in variables.items() if name not in environ}
    return fresh | ({"SM_CURRENT_HOST": here} if here in hosts else {})
