"""Life cycle of one engine: the lock on its state folder, its start, and its stop together with its jobs."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from sagemaker_engine.application import make_application
from sagemaker_engine.http.host_names import HostNames
from sagemaker_engine.http.server import Server, serve
from sagemaker_engine.jobs.runners import RunnerCare
from sagemaker_engine.jobs.supervision import STOP_GRACE_S
from sagemaker_engine.jobs.watcher import Watcher, running_jobs
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.services.moto import MotoBackend
from sagemaker_engine.state.store import JobStore
from sagemaker_engine.state.whole_file import write_whole
from sagemaker_engine.warm.handle import WarmParent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sagemaker_engine.searches.thread import SearchThread
    from sagemaker_engine.state.jobs import JobRow, ResourceKind
    from sagemaker_engine.state.settings import EngineSettings

log = logging.getLogger(__name__)

STOP_MARGIN_S = 15.0
"""Seconds that jobs have to upload after the grace period of a stop, before the engine exits."""
_STOP_POLL_S = 0.1
_LOCK_TIMEOUT_S = 2.0
_LOCK_RETRY_S = 0.05


class WarmWhen(StrEnum):
    """Start of the warm parent, a process that preloads torch for jobs: with the engine, at the first job, or never."""

    START = "start"
    USE = "use"
    NEVER = "never"


class RootInUseError(Exception):
    """Another engine has locked the state folder."""


class Engine:
    """An engine whose state is in the folder that its settings name; call `start`, then `stop`."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        warm: WarmWhen = WarmWhen.START,
        allowed_hosts: tuple[str, ...] = (),
    ) -> None:
        """Open the state. No port is open yet, and no job is changed.

        `allowed_hosts` are further host names by which requests may address the engine, see `HostNames`.
        """
        self.settings = settings
        self.store = JobStore(settings.database_path)
        self._objects = ObjectStore(settings.s3_root)
        self._moto = MotoBackend(settings)
        self._runners = RunnerCare(self.store)
        self._watcher = Watcher(self.store, self._moto, care=self._care)
        self._server: Server | None = None
        self._searchers: tuple[SearchThread[Any, Any], ...] = ()
        self._started = threading.Event()
        self._allowed_hosts = allowed_hosts
        self._warm_when = warm
        self._warm = WarmParent(settings.root)

    def start(self, host: str, port: int) -> None:
        """Open the port, then resume the supervision of jobs that an earlier engine left running.

        Raises:
            OSError: The port is in use or not permitted.
        """
        self._objects.recover()
        self._objects.create_bucket(self.settings.default_bucket, region=self.settings.region)
        self._server = self._serve(host, port)
        reachable = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104  # Compared, not bound.
        url = f"http://{reachable}:{self._server.port}"
        self.settings = replace(self.settings, endpoint_url=url)
        write_whole(self.settings.endpoint_path, url + "\n")
        self._started.set()
        if self._warm_when is WarmWhen.START:
            self._warm.start()
        self._runners.take_up(self.settings)
        self._watcher.start()
        for searcher in self._searchers:
            searcher.start()

    def stop(self) -> None:
        """Stop all running jobs, wait for them, and close the port.

        The wait is at most the grace period of a stop plus `STOP_MARGIN_S` seconds. A job that is
        still running after the wait is stopped by its own runner process.
        """
        for searcher in self._searchers:
            searcher.stop_searches()
        limit_s = STOP_GRACE_S * self.settings.time_scale + STOP_MARGIN_S
        deadline = time.monotonic() + limit_s
        if left := running_jobs(self.store):
            log.info("waiting up to %.0f s for %s jobs to stop", limit_s, len(left))
        while (left := running_jobs(self.store)) and time.monotonic() < deadline:
            for job in left:
                if job.stop_requested_at is None:
                    self.store.request_stop(job.kind, job.name, at=time.time())
            time.sleep(_STOP_POLL_S)
        for job in left:
            log.warning("%s job %s has not stopped; its runner ends it", job.kind, job.name)
        for searcher in self._searchers:
            searcher.stop()
        self._watcher.stop()
        if self._server is not None:
            self._server.shutdown()
        self._warm.stop()
        self.store.close()

    def _serve(self, host: str, port: int) -> Server:
        """Start the server on the port and return it.

        Port 0 stands for the last engine's port, because jobs that outlived that engine still send requests to it.
        If that port is not free, or no engine ran before, the server uses any free port.
        """
        application, self._searchers = make_application(
            self.settings,
            store=self.store,
            objects=self._objects,
            moto=self._moto,
            launch=self._launch,
            hosts=HostNames(bound=host, allowed=self._allowed_hosts),
        )
        if port == 0 and self.settings.endpoint_path.is_file():
            last = self.settings.endpoint_path.read_text().strip().rpartition(":")[2]
            try:
                return serve(application, host, int(last))
            except (OSError, ValueError, OverflowError) as error:
                log.info("the last engine's port %s is not free: %s", last, error)
        return serve(application, host, port)

    def _launch(self, kind: ResourceKind, name: str) -> None:
        self._started.wait()  # A job needs the endpoint's URL, which is unknown before the port is open.
        if self._warm_when is not WarmWhen.NEVER:
            self._warm.start()  # Does nothing if it is running.
        self._runners.launch(kind, name, self.settings)

    def _care(self, running: list[JobRow]) -> None:
        self._runners.look_after(running, self.settings)


@contextmanager
def hold_root(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the body runs. The kernel releases the lock if the process dies.

    A failed attempt is repeated for 2 s, in case the previous engine is about to exit.

    Raises:
        RootInUseError: Another engine holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        _acquire(lock, path)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _acquire(lock: TextIO, path: Path) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                raise RootInUseError(
                    f"{path.parent} is in use by the engine with process id {holder}; stop it or "
                    "give another --root"
                ) from error
            time.sleep(_LOCK_RETRY_S)
        else:
            return
