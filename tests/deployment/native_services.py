"""The services of docker-compose.yaml as processes of this machine: same commands, same environment.

Where a container would have its own host name, port and folders, the text is replaced by an address on
loopback and a folder of the test. The images are what their Dockerfiles make, of the files that those copy and no
others: an environment with Airflow and Trainyard's wheel, and the engine.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

from tests.deployment import docker_image
from tests.deployment.compose_file import LOCAL, SECRETS, environment, services
from tests.deployment.installing import build_wheel, make_environment, uv
from tests.limits import EVENT_LIMIT_S
from trainyard.stack import components, leftovers, processes
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

DATABASE_BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
ENGINE = "engine"
# What the images set.
ENVIRONMENT = {
    "airflow": {"AIRFLOW_HOME": "/opt/airflow"},
    ENGINE: {"TRAINYARD_IMAGES": "/var/lib/sagemaker-engine/images"},
}
# One machine for what is a host each: fewer worker processes, and ports that other programs may hold.
SMALL = {
    "AIRFLOW__CELERY__WORKER_CONCURRENCY": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
}


def missing_programs() -> list[str]:
    """Return what the production shape needs and this machine lacks."""
    needed = {
        "redis-server": shutil.which("redis-server"),
        "postgresql": _database_program("initdb"),
    }
    return [name for name, found in needed.items() if not found]


@dataclass(kw_only=True)
class Deployment:
    """All services of the file with the profile `local`, in one folder."""

    folder: Path
    variables: dict[str, str] = field(default_factory=lambda: {**SECRETS, **LOCAL})
    ports: dict[str, int] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = Home.of(self.folder / "home")
        self.home.prepare()
        self.airflow_environment = self.folder / "environment"
        self.engine_source = docker_image.copy_source(self.folder / "engine", docker_image.ENGINE)
        names = (
            "postgres",
            "redis",
            "api-server",
            "engine",
            "health",
            "worker-logs",
            "trigger-logs",
        )
        self.ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self.services = services(self.variables)
        self._database_folder = Path(tempfile.mkdtemp(prefix="trainyard-postgres-"))

    def install(self) -> None:
        """Make what the Airflow image has: Airflow, the wheel with its extras, and the DAGs."""
        source = docker_image.copy_source(self.folder / "source")
        python = make_environment(self.airflow_environment)
        wheel = build_wheel(self.folder / "wheel", source)
        uv(
            *("pip", "install", "--quiet", "--python", python),
            *("--constraint", str(docker_image.REPOSITORY / "requirements.txt")),
            f"trainyard[data,search,deploy] @ {wheel.as_uri()}",
        )
        shutil.copytree(source / "dags", self.home.airflow / "dags")

    def start(self) -> None:
        """Start everything in the order that `depends_on` asks for."""
        self._start_postgres()
        self.start_service("redis", *("--port", str(self.ports["redis"]), "--bind", "127.0.0.1"))
        self.wait(lambda: self.listens("redis"), "redis")
        self.start_service("engine")
        self.run("airflow-init", self.services["airflow-init"]["command"])
        for name in ("api-server", "scheduler", "dag-processor", "triggerer", "worker"):
            self.start_service(name)

    def stop(self) -> None:
        """End everything and remove the database."""
        for process in self.started:
            process.terminate()
        leftovers.end_leftovers(self.home)
        for process in self.started:  # PostgreSQL and Redis write their titles over the mark
            process.kill()
            process.wait()
        shutil.rmtree(self._database_folder, ignore_errors=True)

    def has(self, module: str) -> bool:
        """Return whether the Airflow image has a module."""
        find = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"
        python = str(self.airflow_environment / "bin" / "python")
        return subprocess.run([python, "-c", find], check=False, cwd="/", env={}).returncode == 0

    def remote_logs(self) -> set[str]:
        """Return the tasks whose logs are in S3."""
        s3 = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.ports[ENGINE]}",
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106  # no secret
        )
        prefix = f"airflow-logs/{SECRETS['TRAINYARD_DEPLOYMENT']}/"
        found = s3.list_objects_v2(Bucket=SECRETS["TRAINYARD_BUCKET"], Prefix=prefix)
        keys = (each["Key"] for each in found.get("Contents", ()))
        return {part.removeprefix("task_id=") for key in keys for part in key.split("/")}

    def is_healthy(self, name: str) -> bool:
        """Run a service's own health check."""
        kind, *test = self.services[name]["healthcheck"]["test"]
        command = ["bash", "-c", test[0]] if kind == "CMD-SHELL" else test
        return self._popen(name, command, log=f"{name}-health").wait() == 0

    def run(self, name: str, command: list[str]) -> None:
        """Run a service's command to its end."""
        assert self._popen(name, command, log=name).wait() == 0, self.log(name)

    def wait(self, is_ready: Callable[[], bool], what: str) -> None:
        """Wait for a condition, up to a limit."""
        deadline = time.monotonic() + EVENT_LIMIT_S
        while not is_ready():
            dead = [process.args for process in self.started if process.poll() not in (None, 0)]
            assert not dead, f"waiting for {what}, these ended: {dead}\n{self.log('')}"
            assert time.monotonic() < deadline, f"{what} did not happen\n{self.log('')}"
            time.sleep(0.5)

    def log(self, name: str) -> str:
        """Return the end of the logs whose names start with `name`."""
        files = sorted(self.home.logs.glob(f"{name}*.log"))
        return "\n".join(
            f"== {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in files
        )

    def start_service(self, name: str, *more: str) -> None:
        """Start a service by its own command, with more arguments after it."""
        self._popen(name, [*self.services[name]["command"], *more], log=name)

    def _popen(self, name: str, command: list[str], *, log: str) -> subprocess.Popen[bytes]:
        binaries = str(self.airflow_environment / "bin")
        translated = [self._here(part) for part in command]
        if translated[0] == "sagemaker-engine":
            translated[:1] = [sys.executable, "-m", "sagemaker_engine"]
        translated[0] = (
            shutil.which(translated[0], path=f"{binaries}:{os.environ['PATH']}") or translated[0]
        )
        env = components.with_environment(self.home, self._environment(name))
        if name == ENGINE:
            env["PYTHONPATH"] = str(self.engine_source / "include")
        else:
            del env["PYTHONPATH"]
            env["PATH"] = f"{binaries}:{env['PATH']}"
        process = processes.start(
            translated, env=env, log=self.home.logs / f"{log}.log", cwd=self.folder
        )
        self.started.append(process)
        return process

    def _environment(self, name: str) -> dict[str, str]:
        ports = {
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(self.ports["health"]),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self.ports["worker-logs"]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self.ports["trigger-logs"]),
            "HOSTNAME": socket.gethostname(),
        }
        image = ENVIRONMENT[ENGINE if name == ENGINE else "airflow"]
        given = {**image, **environment(self.services[name], self.variables)}
        return {**SMALL, **ports, **{key: self._here(value) for key, value in given.items()}}

    def _here(self, text: str) -> str:
        """Return a text of the file with its hosts, ports and folders replaced by this machine's."""
        port = {name: str(number) for name, number in self.ports.items()}
        for there, here in (
            ("postgres:5432", f"127.0.0.1:{port['postgres']}"),
            ("redis:6379", f"127.0.0.1:{port['redis']}"),
            ("api-server:8080", f"127.0.0.1:{port['api-server']}"),
            ("engine:4566", f"127.0.0.1:{port['engine']}"),
            ("localhost:8080", f"127.0.0.1:{port['api-server']}"),
            ("localhost:4566", f"127.0.0.1:{port['engine']}"),
            ("localhost:8974", f"127.0.0.1:{port['health']}"),
            ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - replaced, not bound
            ("/opt/airflow", str(self.home.airflow)),
            ("/var/lib/sagemaker-engine", str(self.home.engine)),
        ):
            text = text.replace(there, here)
        return {"8080": port["api-server"], "4566": port["engine"]}.get(text, text)

    def _start_postgres(self) -> None:
        """Do what the postgres image does with its variables; its server refuses to run as root."""
        wanted = environment(self.services["postgres"], self.variables)
        data, words = self._database_folder / "data", self._database_folder / "password"
        words.write_text(wanted["POSTGRES_PASSWORD"])
        account = _unprivileged()
        if account is not None:
            for path in (self._database_folder, words):
                os.chown(path, account.pw_uid, account.pw_gid)
        user = None if account is None else account.pw_uid
        init = [_database_program("initdb"), "-D", str(data), "-U", wanted["POSTGRES_USER"]]
        init += ["--pwfile", str(words), "--auth", "scram-sha-256", "--no-sync"]
        subprocess.run(init, user=user, check=True, stdout=subprocess.DEVNULL, cwd="/")
        server = [_database_program("postgres"), "-D", str(data), "-p", str(self.ports["postgres"])]
        server += ["-c", "listen_addresses=127.0.0.1", "-k", str(self._database_folder), "-F"]
        env = components.with_environment(self.home, {})
        with (self.home.logs / "postgres.log").open("ab") as log:
            self.started.append(
                subprocess.Popen(server, user=user, env=env, stdout=log, stderr=log, cwd="/")
            )
        self.wait(lambda: self.listens("postgres"), "postgres")
        create = [
            _database_program("createdb"),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.ports["postgres"]),
        ]
        create += ["-U", wanted["POSTGRES_USER"], wanted["POSTGRES_DB"]]
        password = {**os.environ, "PGPASSWORD": wanted["POSTGRES_PASSWORD"]}
        subprocess.run(create, env=password, check=True)

    def listens(self, name: str) -> bool:
        """Return whether a service answers on its port."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports[name])) == 0


def _database_program(name: str) -> str:
    for folder in DATABASE_BINARIES:
        if (folder / name).exists():
            return str(folder / name)
    return shutil.which(name) or ""


def _unprivileged() -> pwd.struct_passwd | None:
    """Return the account to run PostgreSQL as when this is root."""
    if os.geteuid() != 0:
        return None
    accounts = {entry.pw_name: entry for entry in pwd.getpwall()}
    return accounts.get("postgres") or accounts["nobody"]


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
