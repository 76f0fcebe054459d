"""Client of the fork server: starts Airflow's commands as forks of a process that has imported Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError
from trainyard.stack import processes
from trainyard.stack.supervisor import last_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRIPT = Path(__file__).with_name("fork_server.py")
# Imports of all of Airflow's services, and of every task of an AWS DAG. Only installed packages: each process imports
# the project's own code itself, so that edits take effect.
MODULES = (
    "airflow.__main__",
    "airflow.cli.commands.db_command",
    "airflow.cli.commands.scheduler_command",
    "airflow.cli.commands.triggerer_command",
    "airflow.cli.commands.dag_processor_command",
    "airflow.cli.commands.api_server_command",
    "airflow.executors.local_executor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.dag_processing.processor",
    "airflow.api_fastapi.app",
    "airflow.providers.amazon.aws.hooks.sagemaker",
    "airflow.providers.amazon.aws.triggers.base",
    "airflow.providers.amazon.aws.hooks.s3",
    "airflow.providers.amazon.aws.hooks.logs",
    "aiobotocore.session",
)
ATTEMPTS = 2


class ForkServer:
    """A process that has imported Airflow. It is started on demand, and restarted if it died."""

    def __init__(self, *, env: Mapping[str, str], log: Path) -> None:
        self._env = dict(env)
        self._log = log
        self._server: subprocess.Popen[bytes] | None = None

    def warm_up(self) -> None:
        """Start the server and its imports in advance, which makes the first `start` faster."""
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(  # noqa: S603 - this package's own script
                [
                    *(sys.executable, "-I", str(processes.PDEATHSIG), str(os.getpid())),
                    # -P: keeps this folder off sys.path, because its modules have common names.
                    *(sys.executable, "-P", str(SCRIPT), str(os.getpid()), *MODULES),
                ],
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def start(self, command: Sequence[str], *, log: Path) -> processes.Process:
        """Start a console script by its entry point and return its process, a child of this process.

        Raises:
            TrainingRunError: the server died twice before it answered.
        """
        # Without subreapers the fork would not become a child of this process.
        if sys.platform != "linux":
            return processes.start(command, env=self._env, log=log)
        for _ in range(ATTEMPTS):
            if (pid := self._ask({"command": list(command), "log": str(log)})) is not None:
                return processes.AdoptedProcess(pid)
            self.close()
        raise TrainingRunError(
            "Airflow could not be imported",
            where=str(self._log),
            got=last_lines(self._log),
            next_step="run 'make setup', which installs missing packages",
        )

    def close(self) -> None:
        """End the server. The processes that it started continue."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            for stream in (self._server.stdin, self._server.stdout):
                if stream is not None:
                    stream.close()
            self._server = None

    def _ask(self, request: dict[str, object]) -> int | None:
        """Send a request and return the pid in the response; None if the server has ended."""
        if self._server is None:
            self.warm_up()
        server = self._server
        if server is None or server.stdin is None or server.stdout is None:
            return None
        try:
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
            answer = server.stdout.readline()
        except OSError:
            return None
        return int(json.loads(answer)["pid"]) if answer else None
