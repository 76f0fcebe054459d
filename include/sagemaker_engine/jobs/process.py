"""The runner's process, which runs one job to its end, even if the engine ends meanwhile."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from functools import partial

from sagemaker_engine.channels.retrier import Retrier
from sagemaker_engine.channels.s3_agent import S3Agent
from sagemaker_engine.faults.s3_faults import find_fault
from sagemaker_engine.faults.store import FaultStore
from sagemaker_engine.jobs.cleanup import clear, clear_instances
from sagemaker_engine.jobs.failures import ENGINE_ABSENCE_S, INTERNAL_ERROR
from sagemaker_engine.jobs.job import Job, JobError
from sagemaker_engine.jobs.processing import ProcessingRun
from sagemaker_engine.jobs.supervision import Ending
from sagemaker_engine.jobs.training import TrainingRun
from sagemaker_engine.sandbox.processes import is_flock_held, start_ticks_of
from sagemaker_engine.state.jobs import ResourceKind, UnknownJobError
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0


def main(kind_name: str, name: str, settings_json: str) -> None:
    """Run the job. The exit code is 0 even if the job failed, because the store has its status."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s"
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = EngineSettings.from_json(settings_json)
    kind = ResourceKind(kind_name)
    folder = settings.job_folder(kind, name)
    lock = os.open(folder / "runner.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.warning("another process runs %s job %s already", kind.value, name)
        return
    run_job(kind, name, settings)
    logging.shutdown()
    os._exit(0)  # Threads that wait in system calls must not delay the exit.


def run_job(kind: ResourceKind, name: str, settings: EngineSettings) -> None:
    """Run a stored job to a terminal status."""
    store = JobStore(settings.database_path)
    pid = os.getpid()
    store.set_runner(kind, name, pid=pid, start_ticks=start_ticks_of(pid))
    row = store.get(kind, name)
    if row.is_terminal:
        return
    objects = S3Agent(
        settings.s3_root,
        find_fault=partial(find_fault, FaultStore(settings.root)),
        retrier=Retrier(scale=min(1.0, settings.time_scale)),
    )
    job = Job(
        kind=kind,
        name=name,
        arn=row.arn,
        request=row.request,
        settings=settings,
        store=store,
        objects=objects,
        folder=settings.job_folder(kind, name),
        created_at=row.created_at,
    )
    if len(row.state.get("SecondaryStatusTransitions", ())) <= 1:
        clear(job.folder)
    clear_instances(job.folder)
    watch = OrderWatch(job=job)
    objects.retrier = replace(objects.retrier, must_end=lambda: watch.order() is not None)
    try:
        if watch.order() is Ending.STOPPED:
            job.enter("Stopping")
            job.finish("Stopped")
        elif kind is ResourceKind.TRAINING:
            TrainingRun.prepare(job, watch.order).run()
        else:
            ProcessingRun.prepare(job, watch.order).run()
    except UnknownJobError:
        log.warning("the job was deleted while it ran")
    except JobError as error:
        if watch.order() is Ending.STOPPED:  # The job was stopped while it waited for its data.
            job.enter("Stopping")
            job.finish("Stopped")
        job.finish("Failed", reason=str(error))
    except Exception as error:  # The job must end, even after a bug of the engine.
        log.exception("the runner failed")
        job.finish(
            "Failed",
            reason=f"{INTERNAL_ERROR} ({type(error).__name__}: {error})",
        )
    finally:
        clear_instances(job.folder).join()


@dataclass(slots=True, kw_only=True)
class OrderWatch:
    """External reasons for a job to end: a stop request, or no engine for `ENGINE_ABSENCE_S` seconds."""

    job: Job
    _engine_seen_at: float = field(default_factory=time.monotonic, init=False)
    _looked_at: float = field(default=0.0, init=False)

    def order(self) -> Ending | None:
        """Return the reason to end the job, or None."""
        if self.job.store.get(self.job.kind, self.job.name).stop_requested_at is not None:
            return Ending.STOPPED
        now = time.monotonic()
        if now - self._looked_at >= LOOK_INTERVAL_S:
            self._looked_at = now
            if is_flock_held(self.job.settings.lock_path):
                self._engine_seen_at = now
        return Ending.ABANDONED if now - self._engine_seen_at > ENGINE_ABSENCE_S else None
