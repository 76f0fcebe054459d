"""One engine: its parts put together, started and stopped."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from include.local_engine import runner
from include.local_engine.api.context import ApiContext
from include.local_engine.api.processing_jobs import ProcessingJobs
from include.local_engine.api.tags import Tags
from include.local_engine.api.training_jobs import TrainingJobs
from include.local_engine.gateway import Gateway
from include.local_engine.http_server import Server, serve
from include.local_engine.iam_api import IamApplication
from include.local_engine.logs_api import LogsApi
from include.local_engine.logs_api.log_folder import LogFolder
from include.local_engine.metric_feed import MetricFeed
from include.local_engine.moto_backend import MotoBackend
from include.local_engine.registry import ModelPackageGroups, ModelPackages, RegistryTables
from include.local_engine.runner import launching
from include.local_engine.s3 import ObjectStore, S3Application
from include.local_engine.store import JobStore
from include.local_engine.warm import WarmParent
from include.local_engine.watcher import Watcher, running_jobs
from include.local_engine.wire.json_service import JsonService
from include.local_engine.wire.model import load_model
from include.local_engine.world import EngineWorld

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from include.local_engine.settings import EngineSettings
    from include.local_engine.store import JobKind, JobRow

log = logging.getLogger(__name__)

_STOP_GRACE_S = 120.0
_STOP_MARGIN_S = 15.0
_STOP_POLL_S = 0.1


class WarmWhen(StrEnum):
    """When the warm parent, which costs seconds of CPU to start, is started."""

    START = "start"
    USE = "use"
    NEVER = "never"


class Engine:
    """One engine over the state folder of its settings; `start` and `stop` frame its life."""

    def __init__(self, settings: EngineSettings, *, warm: WarmWhen = WarmWhen.START) -> None:
        """Open the state; nothing answers yet and no job is touched."""
        self.settings = settings
        self.store = JobStore(settings.database_path)
        self._objects = ObjectStore(settings.s3_root)
        self._moto = MotoBackend(settings)
        self._watcher = Watcher(self.store, self._moto, care=self._care)
        self._server: Server | None = None
        self._started = threading.Event()
        self._warm_when = warm
        self._warm = WarmParent(settings.root)

    def start(self, host: str, port: int) -> None:
        """Answer requests, then take up the jobs that an earlier engine left.

        Raises:
            OSError: The port is taken or may not be used.
        """
        self._objects.recover()
        self._objects.create_bucket(self.settings.default_bucket, region=self.settings.region)
        self._server = self._serve(host, port)
        reachable = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104  # Read, not bound.
        url = f"http://{reachable}:{self._server.port}"
        self.settings = replace(self.settings, endpoint_url=url)
        self.settings.endpoint_path.write_text(url + "\n")
        self._started.set()
        if self._warm_when is WarmWhen.START:
            self._warm.start()
        runner.recover(self.store, self.settings)
        self._watcher.start()

    def stop(self) -> None:
        """Ask all running jobs to stop, wait for them (the grace of a stop at most), and end."""
        deadline = time.monotonic() + _STOP_GRACE_S * self.settings.time_scale + _STOP_MARGIN_S
        while (left := running_jobs(self.store)) and time.monotonic() < deadline:
            for job in left:
                self.store.request_stop(job.kind, job.name, at=time.time())
            time.sleep(_STOP_POLL_S)
        for job in left:
            log.warning("%s job %s has not stopped; left to its runner", job.kind, job.name)
        self._watcher.stop()
        if self._server is not None:
            self._server.shutdown()
        self._warm.stop()
        self.store.close()

    def _serve(self, host: str, port: int) -> Server:
        """Serve on the port; a free one (0) is the last engine's if that is free.

        Jobs that outlived the last engine know it by its port.
        """
        application = self._application()
        if port == 0 and self.settings.endpoint_path.is_file():
            last = self.settings.endpoint_path.read_text().strip().rpartition(":")[2]
            try:
                return serve(application, host, int(last))
            except (OSError, ValueError, OverflowError) as error:
                log.info("the last engine's port %s is not free: %s", last, error)
        return serve(application, host, port)

    def _care(self, running: list[JobRow]) -> None:
        """Collect runners that ended; fail the jobs of those that died."""
        launching.reap()
        if any(
            job.runner_pid is not None
            and not launching.is_alive(job.runner_pid, job.runner_start_ticks)
            for job in running
        ):
            for name in runner.recover(self.store, self.settings):
                log.warning("job %s failed: its runner died", name)

    def _launch(self, kind: JobKind, name: str) -> None:
        self._started.wait()  # A job must be told the endpoint, known only now.
        if self._warm_when is not WarmWhen.NEVER:
            self._warm.start()  # Does nothing while it runs.
        runner.launch(self.settings.root, kind, name, settings=self.settings)

    def _application(self) -> WSGIApplication:
        context = ApiContext(
            settings=self.settings,
            store=self.store,
            world=EngineWorld(self._objects, self._moto),
            launch=self._launch,
            clock=time.time,
        )
        tables = RegistryTables(self.store.database)
        sagemaker = JsonService(
            model=load_model("sagemaker"),
            handlers={
                **TrainingJobs(context).handlers(),
                **ProcessingJobs(context).handlers(),
                **Tags(context).handlers(),
                **ModelPackageGroups(context, tables).handlers(),
                **ModelPackages(context, tables).handlers(),
            },
            behind=self._moto,
            default_region=self.settings.region,
            checks_all=True,
        )
        logs = JsonService(
            model=load_model("logs"),
            handlers=LogsApi(LogFolder(self.settings.root), self.settings.account).handlers(),
            behind=self._moto,
            default_region=self.settings.region,
            checks_all=False,
        )
        return Gateway(
            by_target={service.model.target_prefix: service for service in (sagemaker, logs)},
            by_scope={
                "iam": IamApplication(self._moto),
                "monitoring": MetricFeed(settings=self.settings, store=self.store, moto=self._moto),
            },
            s3=S3Application(self._objects),
            moto=self._moto,
        )
