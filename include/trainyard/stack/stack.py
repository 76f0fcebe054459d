"""One local stack of engine and Airflow: its database, start, supervision and stop."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from typing import IO, TYPE_CHECKING, Any

import requests

from trainyard.errors import TrainingRunError
from trainyard.stack import components, identity, processes
from trainyard.stack.addresses import USUAL_ENGINE_PORT, Addresses, choose
from trainyard.stack.airflow_api import AirflowApi
from trainyard.stack.airflow_environment import (
    TRAINING_POOL,
    TRAINING_POOL_SLOTS,
    airflow_environment,
)
from trainyard.stack.executor_watch import ExecutorWatch
from trainyard.stack.forking import ForkServer
from trainyard.stack.leftovers import end_leftovers
from trainyard.stack.supervisor import Supervisor, last_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainyard.stack.home import Home

START_LIMIT_S = 180.0
POLL_S = 0.2
_SET_POOL = (
    *(components.AIRFLOW, "pools", "set", TRAINING_POOL, str(TRAINING_POOL_SLOTS)),
    *("one slot for each training instance in use", "--include-deferred"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRecord:
    """Record of a running stack, stored in its home, by which other commands find the stack.

    Attributes:
        pid: pid of the supervisor.
        start_ticks: start time of the supervisor in clock ticks since boot.
        purpose: `run` or `up`, as for `Stack`.
        ui: address of Airflow's UI and REST API.
        engine: address of the engine.
    """

    pid: int
    start_ticks: int
    purpose: str
    ui: str
    engine: str

    def is_alive(self) -> bool:
        """Return whether the supervisor that wrote the record still runs."""
        return processes.is_running(self.pid, start_ticks=self.start_ticks)


class Stack:
    """Engine and Airflow that store their state in one folder, the stack's home; this process supervises them."""

    def __init__(
        self,
        home: Home,
        *,
        print_line: Callable[[str], None],
        purpose: str = "run",
        engine_port: int = USUAL_ENGINE_PORT,
    ) -> None:
        """Create a stack that is not started.

        `purpose` is `run` (free ports, ends with the run) or `up` (runs until it is stopped). With `up`, the UI has
        its usual port and the engine has `engine_port`, if these are free.
        """
        self.home = home
        self.purpose = purpose
        self.addresses: Addresses = choose(usual=purpose == "up", engine_port=engine_port)
        self.supervisor = Supervisor(print_line=print_line, launch=self._launch)
        self._forks: ForkServer | None = None
        self._executor = ExecutorWatch(home.database)
        self._print_line = print_line
        self._lock: IO[str] | None = None

    @property
    def api(self) -> AirflowApi:
        """Client of the stack's Airflow."""
        return AirflowApi(self.addresses.ui, password=identity.load_or_create(self.home).password)

    def start(self) -> None:
        """Start all components, and wait until Airflow's execution API answers.

        Running tasks call the execution API. It creates its routes at its first request, which takes seconds of
        CPU time (Airflow 3.3.2). Without this wait, the first task on a busy machine could use up its retries
        and fail. Other components may not be ready yet when this method returns.

        Raises a TrainingRunError if the home is in use, the database cannot be migrated or the API
        does not answer.
        """
        self._start_engine()
        env = airflow_environment(
            home=self.home,
            identity=identity.load_or_create(self.home),
            addresses=self.addresses,
        )
        self._forks = ForkServer(
            env=components.with_environment(self.home, env), log=self.home.logs / "fork-server.log"
        )
        self._forks.warm_up()
        if not _is_migrated(self.home):
            self._print_line("first start: creating Airflow's database")
            _migrate(self.home, self._forks)
        self.supervisor.start(components.airflow_services(self.home, self.addresses, env))
        self.wait_until(
            lambda: _is_answering(f"{self.addresses.execution}health"),
            what="the execution API's first response",
        )
        self._write_record()

    def start_engine(self) -> None:
        """Start the engine alone and wait until it answers.

        Raises a TrainingRunError if the home is in use or the engine does not start.
        """
        self._start_engine()
        self.wait_until(
            lambda: is_engine_ready(self.addresses.engine), what="the engine's first response"
        )

    def _start_engine(self) -> None:
        engine = components.engine(self.home, self.addresses)  # before a folder is created
        self.home.prepare()
        self._lock = acquire(self.home)
        if ended := end_leftovers(self.home):
            self._print_line(f"ended {ended} process(es) that an earlier session left behind")
        self.supervisor.start([engine])

    def wait_until(
        self, is_ready: Callable[[], bool], *, what: str, limit_s: float = START_LIMIT_S
    ) -> None:
        """Wait for a condition while supervising the components.

        Args:
            is_ready: returns whether the condition is met.
            what: the condition in words, for the error.
            limit_s: longest wait in seconds.

        Raises:
            TrainingRunError: the condition was not met within `limit_s` seconds.
        """
        deadline = time.monotonic() + limit_s
        while not is_ready():
            self.check()
            if time.monotonic() >= deadline:
                raise TrainingRunError(
                    f"the stack timed out after {limit_s:.0f} s while it waited for {what}",
                    where=str(self.home.logs),
                    got="\n".join(
                        f"{c.name}: {last_lines(c.log)}" for c in self.supervisor.components()
                    ),
                    next_step="read the logs, and check whether the machine is overloaded",
                )
            time.sleep(POLL_S)

    def check(self) -> None:
        """Restart dead components and a stuck scheduler, and reap ended processes that this process adopted.

        Raises a TrainingRunError if a component dies repeatedly.
        """
        self.supervisor.check()
        if "scheduler" in self.supervisor:
            scheduler = self.supervisor.pid("scheduler")
            why = self._executor.stuck(scheduler, now=time.monotonic())
            if why is not None:
                self.supervisor.restart("scheduler", because=why)
        own = self.supervisor.pids()
        for pid in processes.zombies(os.getpid()):
            if pid not in own:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def stop(self) -> None:
        """Stop all components, and end all descendants of this process."""
        self.home.record.unlink(missing_ok=True)
        if self._forks is not None:
            self._forks.close()
        self.supervisor.stop()
        processes.end_all(os.getpid(), grace_s=1)
        if self._lock is not None:
            self._lock.close()

    def _launch(self, component: components.Component) -> processes.Process:
        if component.is_airflow and self._forks is not None:
            return self._forks.start(component.command, log=component.log)
        return processes.start(component.command, env=component.env, log=component.log)

    def _write_record(self) -> None:
        me = processes.process_table()[os.getpid()]
        record = {
            "pid": me.pid,
            "start_ticks": me.start_ticks,
            "purpose": self.purpose,
            "ui": self.addresses.ui,
            "engine": self.addresses.engine,
        }
        identity.write_private(self.home.record, json.dumps(record))


def _is_migrated(home: Home) -> bool:
    """Return whether the database has the tables of the installed Airflow and providers, and the training pool."""
    marker = _marker(home)
    return home.database.exists() and marker.exists() and marker.read_text() == _versions()


def _migrate(home: Home, forks: ForkServer) -> None:
    """Create or update the metadata database and the pool of training instances, and record the installed versions.

    A later migration keeps the pool's size, which users may change.

    Raises:
        TrainingRunError: the migration or the creation failed; the message ends with the last lines of its log.
    """  # noqa: DOC501 - the named function returns a TrainingRunError
    log = home.logs / "migrate.log"
    if forks.start((components.AIRFLOW, "db", "migrate"), log=log).wait() != 0:
        raise _database_error("the metadata database could not be migrated", home, log)
    had_pool = _marker(home).exists() and TRAINING_POOL in _marker(home).read_text()
    if not had_pool and forks.start(_SET_POOL, log=log).wait() != 0:
        raise _database_error("the pool of training instances could not be created", home, log)
    _marker(home).write_text(_versions())


def _database_error(what: str, home: Home, log: Path) -> TrainingRunError:
    return TrainingRunError(
        what,
        where=str(home.database),
        got=last_lines(log),
        next_step="'make clean' removes a damaged stack together with its runs",
    )


def _marker(home: Home) -> Path:
    return home.airflow / "migrated-for"


def _versions() -> str:
    names = ((d.metadata["Name"], d.version) for d in distributions())
    airflow = sorted(f"{n}=={v}" for n, v in names if n.startswith("apache-airflow"))
    return "\n".join([*airflow, f"pool {TRAINING_POOL}"])


def read_record(home: Home) -> StackRecord | None:
    """Return the record of the stack that runs in this home; None if no stack runs."""
    try:
        record = StackRecord(**json.loads(home.record.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return record if record.is_alive() else None


def acquire(home: Home) -> IO[str]:
    """Lock a home for this process, and return the lock file. Closing the file releases the lock.

    Raises:
        TrainingRunError: another process has the lock.
    """
    stream = home.lock.open("a+")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        stream.seek(0)
        holder = stream.read().strip() or "unknown"
        stream.close()
        raise TrainingRunError(
            "another stack is using this folder",
            where=str(home.path),
            got=f"process {holder}",
            next_step="wait for it to end, stop it with 'make down', or set TRAINYARD_HOME to another folder",
        ) from error
    stream.truncate(0)
    stream.write(str(os.getpid()))
    stream.flush()
    return stream


def _is_answering(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False


def is_engine_ready(url: str) -> bool:
    """Return whether the engine answers at `url`."""
    try:
        answer: dict[str, Any] = requests.get(f"{url}/_engine/health", timeout=2).json()
    except (requests.RequestException, ValueError):
        return False
    return answer.get("status") == "ok"
