from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import time
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.jobs.launching import recover
from sagemaker_engine.sandbox import capabilities
from sagemaker_engine.sandbox.processes import is_alive
from tests.sagemaker_engine.jobs.conftest import BUCKET, JobBench, channel, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine


def statuses(state: dict[str, Any]) -> list[str]:
    return [each["Status"] for each in state["SecondaryStatusTransitions"]]


def test_a_job_that_succeeds_goes_through_the_services_statuses(bench: JobBench) -> None:
    row = bench.run("good", "echo weights > /opt/ml/model/model.txt")

    assert row.status == "Completed"
    assert statuses(row.state) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    times = [
        moment
        for each in row.state["SecondaryStatusTransitions"]
        for moment in (each["StartTime"], each["EndTime"])
    ]
    assert times == sorted(times)
    assert row.state["TrainingStartTime"] <= row.state["TrainingEndTime"]
    assert row.state["BillableTimeInSeconds"] >= 1
    assert "FailureReason" not in row.state


def test_what_instances_leave_is_merged_into_two_archives(bench: JobBench) -> None:
    command = (
        "echo $CURRENT_HOST > /opt/ml/model/$CURRENT_HOST; echo $CURRENT_HOST > /opt/ml/model/same;"
        "mkdir -p /opt/ml/output/data/deep; echo out > /opt/ml/output/data/deep/$CURRENT_HOST"
    )

    row = bench.run("good", command, instances=2)

    uri = f"s3://{BUCKET}/out/good/output/model.tar.gz"
    assert row.state["ModelArtifacts"] == {"S3ModelArtifacts": uri}
    assert bench.archive("out/good/output/model.tar.gz") == {
        "algo-1": b"algo-1\n",
        "algo-2": b"algo-2\n",
        "same": b"algo-1\n",
    }
    assert sorted(bench.archive("out/good/output/output.tar.gz")) == ["deep/algo-1", "deep/algo-2"]


def test_an_ended_job_leaves_only_its_logs_and_metrics(bench: JobBench) -> None:
    bench.objects.put(BUCKET, "in/a", b"text")
    row = bench.run("good", "echo x", InputDataConfig=[channel("train", f"s3://{BUCKET}/in")])

    folder = bench.settings.job_folder(row.kind, "good")
    wait_for(
        lambda: sorted(path.name for path in folder.iterdir()),
        lambda names: names == ["logs", "runner.lock", "runner.log"],
    )


def test_artifacts_may_stay_unpacked(bench: JobBench) -> None:
    output = {"S3OutputPath": f"s3://{BUCKET}/out/", "CompressionType": "NONE"}

    row = bench.run("plain", "echo m > /opt/ml/model/m", OutputDataConfig=output)

    assert bench.keys("out/") == ["out/plain/output/model/m"]
    uri = f"s3://{BUCKET}/out/plain/output/model/"
    assert row.state["ModelArtifacts"] == {"S3ModelArtifacts": uri}


def test_a_failure_quotes_the_failure_file_and_the_exit_code(bench: JobBench) -> None:
    row = bench.run("bad", "printf 'no such column: age' > /opt/ml/output/failure; exit 7")

    assert row.status == "Failed"
    assert statuses(row.state)[-2:] == ["Uploading", "Failed"]
    assert row.state["FailureReason"] == "AlgorithmError: no such column: age, exit code: 7"


def test_a_long_failure_is_cut_but_keeps_its_exit_code(bench: JobBench) -> None:
    row = bench.run("bad", "head -c 5000 /dev/zero | tr '\\0' x > /opt/ml/output/failure; exit 2")

    assert len(row.state["FailureReason"]) == 1024
    assert row.state["FailureReason"].endswith("xxx, exit code: 2")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo 'it broke' >&2; exit 3", "AlgorithmError: it broke, exit code: 3"),
        ("exit 137", "OutOfMemory: Process killed by SIGKILL (signal 9), exit code: 137"),
        ("exec /no/such/program", "/no/such/program: not found, exit code: 127"),
    ],
    ids=["raises", "out-of-memory", "missing-program"],
)
def test_a_failure_without_a_failure_file_still_says_why(
    bench: JobBench, command: str, reason: str
) -> None:
    row = bench.run("bad", command)

    assert row.state["FailureReason"].endswith(reason)


def test_when_one_instance_fails_the_others_are_ended(bench: JobBench) -> None:
    command = "[ $CURRENT_HOST = algo-1 ] && exec sleep 1000; echo rank 1 fell >&2; exit 5"

    row = bench.run("bad", command, instances=2)

    assert row.state["FailureReason"] == "AlgorithmError: rank 1 fell, exit code: 5"


def test_a_hang_ends_at_max_runtime_with_its_artifacts(bench: JobBench) -> None:
    row = bench.run(
        "hangs",
        "echo m > /opt/ml/model/m; exec sleep 1000",
        StoppingCondition={"MaxRuntimeInSeconds": 1},
    )

    assert row.status == "Stopped"
    assert row.state["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert bench.archive("out/hangs/output/model.tar.gz") == {"m": b"m\n"}


def test_a_stopped_job_may_save_its_work_after_sigterm(bench: JobBench) -> None:
    handler = (
        "trap 'echo saved > /opt/ml/model/m; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    )
    bench.train("stopped", handler)
    bench.wait_for_line("stopped", "up")

    bench.store.request_stop(bench.row("stopped").kind, "stopped", at=time.time())
    row = bench.wait("stopped")

    assert (row.status, row.state["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert "Stopping" in statuses(row.state)
    assert bench.archive("out/stopped/output/model.tar.gz") == {"m": b"saved\n"}


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(bench: JobBench) -> None:
    bench.train("stubborn", "echo up; while :; do sleep 0.02; done")
    bench.wait_for_line("stubborn", "up")

    asked = time.monotonic()
    bench.store.request_stop(bench.row("stubborn").kind, "stubborn", at=time.time())

    assert bench.wait("stubborn").status == "Stopped"
    assert time.monotonic() - asked >= 120 * bench.settings.time_scale


def test_input_channels_are_there_and_writes_to_them_do_not_reach_s3(bench: JobBench) -> None:
    for number in range(3):
        bench.objects.put(BUCKET, f"in/{number}.txt", b"original")
    channels = [
        channel("train", f"s3://{BUCKET}/in", source={"S3DataDistributionType": "ShardedByS3Key"}),
        channel("all", f"s3://{BUCKET}/in"),
    ]
    command = (
        "cd /opt/ml/input/data; ls train all; echo changed > all/0.txt; rm all/1.txt; "
        "cat /opt/ml/input/config/inputdataconfig.json"
    )

    row = bench.run("reads", command, instances=2, InputDataConfig=channels)

    assert row.status == "Completed"
    lines = bench.log("reads", "algo-2")
    assert lines[:6] == ["all:", "0.txt", "1.txt", "2.txt", "train:", "1.txt"]
    assert json.loads(lines[-1])["train"] == {
        "TrainingInputMode": "File",
        "S3DistributionType": "ShardedByS3Key",
        "RecordWrapperType": "None",
    }
    for number in range(3):
        with bench.objects.open(BUCKET, f"in/{number}.txt") as file:
            assert file.read() == b"original"


def test_an_object_lost_under_a_pipe_fails_the_job(bench: JobBench) -> None:
    bench.objects.put(BUCKET, "in/a", b"alpha ")
    bench.objects.put(BUCKET, "in/b", b"beta")
    wait = "echo up; until [ -e /opt/ml/go ]; do sleep 0.02; done"
    bench.train(
        "lossy",
        f"{wait}; cat /opt/ml/input/data/train_0; echo all read",
        InputDataConfig=[channel("train", f"s3://{BUCKET}/in", InputMode="Pipe")],
    )
    bench.wait_for_line("lossy", "up")

    bench.objects.delete(BUCKET, "in/b")
    folder = bench.settings.job_folder(bench.row("lossy").kind, "lossy")
    (folder / "instances" / "algo-1" / "ml" / "go").touch()
    row = bench.wait("lossy")

    assert row.status == "Failed"
    reason = row.state["FailureReason"]
    assert reason.startswith(f"ClientError: Data download failed: cannot read s3://{BUCKET}/in/b")
    assert "all read" not in " ".join(bench.log("lossy"))
    assert "Stopping" not in statuses(row.state)


@pytest.mark.slow
def test_a_job_whose_lines_the_disk_does_not_take_fails_with_the_reason(bench: JobBench) -> None:
    metric = {"Name": "loss", "Regex": r"loss=(\d+)"}
    bench.train(
        "full",
        "echo up; until [ -e /opt/ml/go ]; do sleep 0.02; done; while :; do echo loss=1; done",
        algorithm={"MetricDefinitions": [metric]},
    )
    bench.wait_for_line("full", "up")

    folder = bench.settings.job_folder(bench.row("full").kind, "full")
    (folder / "metrics.jsonl").symlink_to("/dev/full")
    (folder / "instances" / "algo-1" / "ml" / "go").touch()
    row = bench.wait("full")

    assert row.status == "Failed"
    assert "No space left on device" in row.state["FailureReason"]
    assert "metrics, were lost" in row.state["FailureReason"]


def test_a_pipe_channel_streams_through_fifos(bench: JobBench) -> None:
    bench.objects.put(BUCKET, "in/a", b"alpha ")
    bench.objects.put(BUCKET, "in/b", b"beta")
    command = "cd /opt/ml/input/data; cat train_0; echo; cat train_1; echo"

    row = bench.run(
        "pipes",
        command,
        InputDataConfig=[channel("train", f"s3://{BUCKET}/in", InputMode="Pipe")],
    )

    assert row.status == "Completed"
    assert bench.log("pipes") == ["alpha beta", "alpha beta"]


def test_data_that_went_away_fails_the_job_before_anything_runs(bench: JobBench) -> None:
    row = bench.run(
        "nodata",
        "echo must not run",
        InputDataConfig=[channel("train", f"s3://{BUCKET}/nothing/")],
    )

    assert row.status == "Failed"
    assert row.state["FailureReason"].startswith(
        "ClientError: Data download failed: No S3 objects found under S3 URL"
    )
    assert bench.log("nodata") == []


def test_checkpoints_are_restored_on_every_instance_and_mirrored_while_it_runs(
    bench: JobBench,
) -> None:
    bench.objects.put(BUCKET, "ck/step-1", b"one")
    command = (
        "cat /opt/ml/checkpoints/step-1; echo; echo two > /opt/ml/checkpoints/from-$CURRENT_HOST; "
        "[ $CURRENT_HOST = algo-1 ] && rm /opt/ml/checkpoints/step-1; exec sleep 1000"
    )
    bench.train("saves", command, instances=2, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/ck"})

    wanted = ["ck/from-algo-1", "ck/from-algo-2"]
    wait_for(lambda: bench.keys("ck/"), lambda keys: keys == wanted)

    assert bench.row("saves").status == "InProgress"
    assert [bench.log("saves", host) for host in ("algo-1", "algo-2")] == [["one"], ["one"]]


def test_a_checkpoint_folder_may_lie_anywhere(bench: JobBench) -> None:
    row = bench.run(
        "saves",
        "echo x > /checkpoints/deep/file",
        CheckpointConfig={"S3Uri": f"s3://{BUCKET}/ck", "LocalPath": "/checkpoints/deep"},
    )

    assert row.status == "Completed"
    assert bench.keys("ck/") == ["ck/file"]


def test_metrics_are_scraped_from_all_instances(bench: JobBench) -> None:
    definitions = [
        {"Name": "loss", "Regex": r"loss=([0-9.]+)"},
        {"Name": "never", "Regex": r"never=([0-9.]+)"},
        {"Name": "broken", "Regex": r"(["},
    ]
    command = "for i in 3 2 1; do echo step loss=$i.5; done"

    row = bench.run("metered", command, algorithm={"MetricDefinitions": definitions})

    (final,) = row.state["FinalMetricDataList"]
    assert (final["MetricName"], final["Value"]) == ("loss", 1.5)
    path = bench.settings.job_folder(row.kind, "metered") / "metrics.jsonl"
    values = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["name"], each["value"]) for each in values] == [
        *(("loss", 3.5), ("loss", 2.5), ("loss", 1.5)),
    ]


def test_the_container_finds_its_configuration(bench: JobBench) -> None:
    bench.run(
        "configured",
        "cat /opt/ml/input/config/hyperparameters.json /opt/ml/input/config/resourceconfig.json; "
        "echo; echo $TRAINING_JOB_NAME $OWN $AWS_REGION ${AWS_DEFAULT_REGION-none} $TRAINING_JOB_ARN",
        HyperParameters={"lr": "0.1"},
        Environment={"OWN": "value"},
    )

    config, variables = bench.log("configured")
    hyperparameters, _, resources = config.partition("}")
    assert json.loads(hyperparameters + "}") == {"lr": "0.1"}
    assert json.loads(resources)["hosts"] == ["algo-1"]
    assert variables.split() == [
        *("configured", "value", "us-east-1", "none"),  # boto3 reads the second only
        bench.row("configured").arn,
    ]


@pytest.mark.parametrize("features", capabilities.CANDIDATES, ids="-".join)
def test_a_job_runs_with_whatever_the_machine_allows(
    bench: JobBench, features: tuple[str, ...], tmp_path: Path
) -> None:
    reason = capabilities.works(features, tmp_path) if features else None
    if reason is not None:
        pytest.skip(f"{features} is not allowed here: {reason}")
    capabilities.keep(bench.settings.root / "sandbox.json", features)
    bench.objects.put(BUCKET, "in/a", b"text")
    bench.objects.put(BUCKET, "ck/step", b"1")
    base = "${SAGEMAKER_BASE_DIR:-/opt/ml}"
    command = (
        f"cd {base}; cat input/data/train/a checkpoints/step; echo; echo scribble > "
        "input/data/train/a; cp checkpoints/step checkpoints/$CURRENT_HOST; "
        "echo m > model/$CURRENT_HOST; grep -o current_host.*interface input/config/*resource*"
        " | wc -l"
    )

    row = bench.run(
        "job",
        command,
        instances=2,
        InputDataConfig=[channel("train", f"s3://{BUCKET}/in")],
        CheckpointConfig={"S3Uri": f"s3://{BUCKET}/ck"},
    )

    assert row.status == "Completed", row.state
    hosts = sorted(bench.archive("out/job/output/model.tar.gz"))
    assert hosts == (["algo-1", "algo-2"] if features else ["127.77.0.11", "127.77.0.12"])
    for host in hosts:
        lines = [line for line in bench.log("job", host) if "trainyard engine" not in line]
        assert lines == ["text1", "1"]
    assert bench.keys("ck/") == sorted(["ck/step", *(f"ck/{host}" for host in hosts)])
    with bench.objects.open(BUCKET, "in/a") as file:
        assert file.read() == b"text"
    said = [line for line in bench.log("job", hosts[0]) if "trainyard engine" in line]
    assert len(said) == len(capabilities.losses(features))


@pytest.mark.slow
def test_requirements_are_installed_in_the_job_only(bench: JobBench) -> None:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "trainyard_tiny-1.0.dist-info"
        archive.writestr("trainyard_tiny.py", "VALUE = 'installed'")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: trainyard-tiny\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    name = "trainyard_tiny-1.0-py3-none-any.whl"
    hyperparameters = bench.put_source(
        {
            "train.py": "import trainyard_tiny; print('it is', trainyard_tiny.VALUE)",
            "requirements.txt": f"--no-index\n./{name}\n",
            name: wheel.getvalue(),
        }
    )

    row = bench.run(
        "installs",
        HyperParameters=hyperparameters,
        algorithm={"TrainingImage": "local/sagemaker-base-python:1"},
    )

    assert row.status == "Completed", bench.log("installs")
    assert any("it is installed" in line for line in bench.log("installs"))
    assert importlib.util.find_spec("trainyard_tiny") is None


def test_an_image_that_nothing_stands_in_for_is_refused_with_the_known_ones(
    bench: JobBench,
) -> None:
    row = bench.run("strange", "true", algorithm={"TrainingImage": "x/mxnet-training:1"})

    assert row.state["FailureReason"].startswith("ClientError: no local runtime emulates")
    assert "pytorch-training" in row.state["FailureReason"]


def test_what_a_job_installs_stays_in_the_job(bench: JobBench) -> None:
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    command = f'd=$(python -c "{code}"); touch $d/only_in_this_job.py; ls $d | grep -c only_in_this'

    bench.run("installs", command)

    assert bench.log("installs") == ["1"]
    import sysconfig

    assert not os.path.exists(sysconfig.get_paths()["purelib"] + "/only_in_this_job.py")  # noqa: PTH110


def test_a_killed_runner_takes_its_job_along_and_recovery_says_so(bench: JobBench) -> None:
    bench.train("orphan", "echo up; echo $$; exec sleep 1000", instances=2)
    for host in ("algo-1", "algo-2"):
        bench.wait_for_line("orphan", "up", host)
    row = bench.row("orphan")
    assert row.runner_pid is not None

    os.kill(row.runner_pid, signal.SIGKILL)
    wait_for(
        lambda: is_alive(row.runner_pid, row.runner_start_ticks), lambda is_there: not is_there
    )
    assert recover(bench.store, bench.settings) == ["orphan"]

    failed = bench.row("orphan")
    assert failed.status == "Failed"
    assert failed.state["FailureReason"].startswith("InternalServerError: The process that")
    mark = str(bench.settings.job_folder(row.kind, "orphan")).encode()
    wait_for(lambda: _processes_with(mark), lambda left: not left)


def test_recovery_adopts_a_live_runner_and_starts_a_forgotten_job(bench: JobBench) -> None:
    bench.train("alive", "echo up; exec sleep 1000")
    bench.wait_for_line("alive", "up")

    assert recover(bench.store, bench.settings) == []

    assert bench.row("alive").status == "InProgress"


def _processes_with(mark: bytes) -> list[str]:
    found = []
    for entry in os.scandir("/proc"):
        try:
            with open(f"{entry.path}/environ", "rb") as file:  # noqa: PTH123
                if mark in file.read():
                    found.append(entry.name)
        except OSError:
            continue
    return found
