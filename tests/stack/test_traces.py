"""A live Airflow with traces on: its spans and those of the jobs are one trace."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.plugins.otlp_receiver import otlp_receiver, values
from tests.stack.live_stack import start, take_down
from tests.stack.small_run import SMALL_RUN
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the stack's supervision needs Linux")
def test_run_tasks_and_jobs_are_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home.of(tmp_path / "stack")
    settings = home.database.with_name("airflow.cfg")
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[traces]\notel_on = True\n")
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp_proto_http")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        try:
            stack = start(home)
            stack.api.set_paused("train_end_to_end", paused=False)
            run_id = stack.api.trigger("train_end_to_end", conf=SMALL_RUN)
            stack.end_of("train_end_to_end", run_id)
            stack.wait(
                lambda: receiver.named("dag_run.train_end_to_end"), "the export of the run's span"
            )
        finally:
            take_down(home)

    (run,) = receiver.named("dag_run.train_end_to_end")
    (train,) = receiver.named("task_run.train")
    (job,) = receiver.named("sagemaker.training")
    (register,) = receiver.named("worker.register")
    assert {each.trace_id for each in receiver.spans} == {run.trace_id}
    assert train.parent_span_id == run.span_id
    assert job.parent_span_id == train.span_id
    assert values(job)["airflow.dag_run.run_id"] == run_id
    assert ":model-package/" in values(register)["trainyard.model_package_arn"]
