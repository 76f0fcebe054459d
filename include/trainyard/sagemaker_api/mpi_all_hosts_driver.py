"""MPI driver that replaces the SDK v3's driver in the container and starts ranks on every host.

The SDK's driver passes the number of ranks per host to mpirun as the total (`-np`). All ranks then run on the first
host, and the other hosts, which are billed as well, run none (sagemaker-train 1.27.0,
`container_drivers/distributed_drivers/mpi_driver.py`). Remove this driver once the SDK's driver is fixed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the SDK's driver with `-np` set to hosts times ranks per host."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    driver: Any = import_module("distributed_drivers.mpi_driver")
    of_one_host = driver.get_mpirun_command

    def of_all_hosts(*, host_count: int, num_processes: int, **rest: Any) -> Any:
        return of_one_host(host_count=host_count, num_processes=host_count * num_processes, **rest)

    driver.get_mpirun_command = of_all_hosts
    driver.main()


if __name__ == "__main__":
    main()
