"""`python -m trainyard.stack run`: one command from nothing to a report, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import REPOSITORY
from tests.limits import EVENT_LIMIT_S
from tests.plugins.otlp_receiver import OtlpReceiver, otlp_receiver, values
from tests.stack.live_stack import launcher
from tests.stack.small_run import SMALL_RUN
from trainyard.stack import leftovers
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the stack's supervision needs Linux"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home.of(tmp_path_factory.mktemp("run") / "home")


def conf_file(folder: Path, conf: object) -> str:
    file = folder / "conf.json"
    file.write_text(json.dumps(conf))
    return str(file)


@pytest.fixture(scope="module")
def traced_run(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], OtlpReceiver]:
    """The command, ended, and the spans of its Airflow."""
    home.airflow.mkdir(parents=True, exist_ok=True)
    (home.airflow / "airflow.cfg").write_text("[traces]\notel_on = True\n")
    conf = conf_file(tmp_path_factory.mktemp("conf"), SMALL_RUN)
    with otlp_receiver() as receiver, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_TRACES_EXPORTER", "otlp_proto_http")
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        done = launcher(home, "run", "--conf", conf, timeout=EVENT_LIMIT_S)
    return done, receiver


def test_tasks_and_jobs_are_one_trace(traced_run: Any) -> None:
    done, receiver = traced_run
    assert done.returncode == 0, done.stdout + done.stderr

    (train,) = receiver.named("task_run.train")
    (job,) = receiver.named("sagemaker.training")
    (register,) = receiver.named("worker.register")
    assert {each.trace_id for each in receiver.spans} == {job.trace_id}
    assert job.parent_span_id == train.span_id
    assert values(job)["airflow.dag_run.run_id"] in done.stdout
    assert ":model-package/" in values(register)["trainyard.model_package_arn"]


def test_a_run_ends_with_a_summary_both_reports_and_no_process(home: Home, traced_run: Any) -> None:
    done, _ = traced_run

    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = home.reports.iterdir()
    assert (folder / "report.html").read_text().lower().startswith("<!doctype html>")
    record = json.loads((folder / "report.json").read_text())
    assert record["run_id"] in done.stdout
    assert {task["task_id"] for task in record["tasks"]} >= {
        "preflight",
        "shard",
        "train",
        "evaluate",
    }
    assert str(folder / "report.html") in done.stdout
    assert "unigram baseline" in done.stdout
    assert leftovers.marked(home) == []


def test_a_refused_conf_ends_before_anything_starts(home: Home, tmp_path: Path) -> None:
    conf = conf_file(tmp_path, {**SMALL_RUN, "max_steps": "many"})
    done = launcher(home, "run", "--conf", conf, timeout=EVENT_LIMIT_S)
    assert done.returncode == 2
    assert "max_steps" in done.stdout
    assert "starting" not in done.stdout
    assert leftovers.marked(home) == []


def test_a_conf_file_that_is_missing_is_refused_before_anything_starts(home: Home) -> None:
    done = launcher(home, "run", "--conf", "/no/such/conf.json", timeout=EVENT_LIMIT_S)
    assert done.returncode == 2
    assert "the conf file cannot be read" in done.stdout
    assert "starting" not in done.stdout


@pytest.mark.slow
def test_ctrl_c_ends_the_run_and_everything_it_started(home: Home, tmp_path: Path) -> None:
    conf = conf_file(tmp_path, {**SMALL_RUN, "max_steps": 100_000})
    command = [
        *(
            "env",
            "--default-signal=INT",
        ),  # A build in the background ignores it, and so would what it starts.
        sys.executable,
        "-m",
        "trainyard.stack",
        "--home",
        str(home.path),
        "run",
        "--conf",
        conf,
    ]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        training = next(line for line in process.stdout if "step " in line)

        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()

    assert process.returncode == 130, training + rest
    assert "interrupted" in rest
    assert leftovers.marked(home) == []


def test_down_is_fine_when_nothing_runs(home: Home) -> None:
    done = launcher(home, "down", timeout=EVENT_LIMIT_S)
    assert (done.returncode, done.stdout.strip()) == (0, "nothing was running")
