from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from sagemaker_engine import engine as engine_module
from sagemaker_engine.engine import Engine, WarmWhen
from sagemaker_engine.sandbox.processes import start_ticks_of
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.settings import EngineSettings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_engine_ends_in_time_with_a_job_that_does_not_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "STOP_MARGIN_S", 0.5)
    settings = EngineSettings(root=tmp_path, endpoint_url="", time_scale=0.001)
    engine = Engine(settings, warm=WarmWhen.NEVER)
    engine.start("127.0.0.1", 0)
    kind, pid = ResourceKind.TRAINING, os.getpid()
    state = {"TrainingJobStatus": "InProgress"}
    engine.store.create(kind, "deaf", arn="a:b:c:d", request={}, created_at=1.0, state=state)
    engine.store.set_runner(kind, "deaf", pid=pid, start_ticks=start_ticks_of(pid))

    began = time.monotonic()
    engine.stop()

    assert 0.5 <= time.monotonic() - began < 10
    job = engine.store.get(kind, "deaf")
    assert (job.status, job.stop_requested_at is not None) == ("InProgress", True)
    engine.store.close()
