"""An Airflow of somebody else: a version with the pins of AWS's MWAA image, Trainyard's wheel, and its own project.

The pins (`mwaa/`, of 2026-08-20) are those of AWS's images for Python 3.12. On an older interpreter the packages that
have no release for it are left out of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.deployment.installing import make_environment, uv
from tests.limits import EVENT_LIMIT_S
from trainyard.stack import leftovers
from trainyard.stack.addresses import choose
from trainyard.stack.airflow_api import AirflowApi
from trainyard.stack.airflow_environment import aws_connection
from trainyard.stack.components import with_environment
from trainyard.stack.home import Home
from trainyard.stack.identity import USER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PINS = Path(__file__).with_name("mwaa")
NEED_PYTHON_3_12 = ("numpy", "scipy")
PASSWORD = "cell"  # noqa: S105  # of an Airflow on loopback that lives for one test
# One machine for what MWAA has several for; SQLite waits for another process's write instead of failing at once.
SMALL = {
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__API__WORKERS": "1",
    "TRAINYARD_TRAINING_POOL": "default_pool",
    "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
}


@dataclass(kw_only=True)
class AirflowCell:
    """One Airflow installation with a project.

    Attributes:
        folder: of everything.
        version: of Airflow; `mwaa/` has its pins.
    """

    folder: Path
    version: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.environment_folder = self.folder / "environment"
        self.project = self.folder / "project"
        self.home = Home(path=self.folder / "home", project=self.project)
        self.home.prepare()
        self.addresses, self.log_ports = choose(usual=False), choose(usual=False)
        self.api = AirflowApi(self.addresses.ui, password=PASSWORD)

    def install(self, wheel: Path) -> float:
        """Install Airflow by AWS's pins, then Trainyard by the same; return the seconds of the second."""
        make_environment(self.environment_folder)
        constraints = self.folder / "constraints.txt"
        constraints.write_text("\n".join(self._pins()), encoding="utf-8")
        install = ("pip", "install", "--quiet", "--python", self.program("python"))
        by = ("--constraint", str(constraints))
        provider = "apache-airflow-providers-amazon[aiobotocore]"
        uv(*install, f"apache-airflow=={self.version}", provider, *by)
        began = time.monotonic()
        uv(*install, f"trainyard @ {wheel.as_uri()}", *by)
        return time.monotonic() - began

    def program(self, name: str) -> str:
        """Return the path of a program of the installation."""
        return str(self.environment_folder / "bin" / name)

    def run(self, *command: str) -> str:
        """Run a program of the installation in the project and return what it printed."""
        done = subprocess.run(
            [self.program(command[0]), *command[1:]],
            cwd=self.project,
            env=self.environment(""),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, engine_url: str) -> None:
        """Start `airflow standalone` with a connection that leads to the engine."""
        self.home.passwords.write_text(json.dumps({USER: PASSWORD}), encoding="utf-8")
        with (self.folder / "airflow.log").open("wb") as log:
            process = subprocess.Popen(
                [self.program("airflow"), "standalone"],
                cwd=self.project,
                env=self.environment(engine_url),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        self.wait(lambda: self.api.health() is not None, "the api-server's answer")

    def stop(self) -> None:
        """End every process of the installation."""
        leftovers.end_leftovers(self.home)
        for process in self.processes:
            process.wait()

    def environment(self, engine_url: str) -> dict[str, str]:
        """Return the environment of the installation's programs: nothing of this checkout is on their path."""
        mine = with_environment(
            self.home,
            {
                **SMALL,
                "PATH": os.pathsep.join([self.program(""), os.environ["PATH"]]),
                "AIRFLOW_HOME": str(self.home.airflow),
                "AIRFLOW__CORE__DAGS_FOLDER": str(self.project / "dags"),
                "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.project / "plugins"),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.addresses.ui}/execution/",
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home.passwords),
                "AIRFLOW__API__PORT": str(self.addresses.ui_port),
                "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self.log_ports.ui_port),
                "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self.log_ports.engine_port),
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home.database}?timeout=30",
                "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(aws_connection(engine_url, home=self.home)),
                "PYTHONWARNINGS": "ignore",
            },
        )
        del mine["PYTHONPATH"]
        return mine

    def wait(self, until: Callable[[], Any], what: str) -> None:
        """Wait for something; with the Airflow's log if it does not come, or if that has ended."""
        deadline = time.monotonic() + EVENT_LIMIT_S
        while not until():
            is_up = all(process.poll() is None for process in self.processes)
            assert is_up, f"{what} cannot come, Airflow has ended\n{self.log()}"
            assert time.monotonic() < deadline, f"{what} did not come\n{self.log()}"
            time.sleep(0.5)

    def log(self) -> str:
        """Return the end of what Airflow printed."""
        return (self.folder / "airflow.log").read_text(errors="replace")[-5000:]

    def _pins(self) -> Iterator[str]:
        left_out = NEED_PYTHON_3_12 if sys.version_info < (3, 12) else ()
        for line in (PINS / f"{self.version}.txt").read_text(encoding="utf-8").splitlines():
            if line.partition("==")[0] not in left_out:
                yield line


def resolved(wheel: Path, *, extras: str, version: str, python: str) -> str:
    """Return what uv would install of Trainyard beside MWAA's pins on a Python that need not be here.

    Args:
        wheel: Trainyard's.
        extras: in brackets, or nothing.
        version: of Airflow.
        python: such as `3.12`.
    """
    pins = str(PINS / f"{version}.txt")
    compile_ = ("pip", "compile", "--quiet", "--python-version", python, "--constraint", pins, "-")
    wanted = (f"apache-airflow=={version}", f"trainyard{extras} @ {wheel.as_uri()}")
    return uv(*compile_, given="\n".join(wanted))
