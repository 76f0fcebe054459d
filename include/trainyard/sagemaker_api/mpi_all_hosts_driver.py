"""Started in the container in place of the SDK v3's MPI driver: the same, with ranks on every host.

The SDK's driver hands mpirun the ranks of one host as those of all (`-np`), so that the first host runs them and the
others, paid as well, run none (sagemaker-train 1.27.0, `container_drivers/distributed_drivers/mpi_driver.py`). This one
lies beside it, and can go when the SDK has mended that.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the SDK's driver, its mpirun command made for all hosts."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    driver: Any = import_module("distributed_drivers.mpi_driver")
    of_one_host = driver.get_mpirun_command

    def of_all_hosts(*, host_count: int, num_processes: int, **rest: Any) -> Any:
        return of_one_host(host_count=host_count, num_processes=host_count * num_processes, **rest)

    driver.get_mpirun_command = of_all_hosts
    driver.main()


if __name__ == "__main__":
    main()
