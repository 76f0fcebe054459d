"""Scripts of one's own through the whole pipeline: the examples of docs/examples/own, on the engine."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.airflow_home import REPOSITORY
from tests.dags.engine_faults import put_faults, put_quotas
from tests.dags.test_train_end_to_end import result
from tests.plugins.conftest import IMAGE, connection_json
from tests.sagemaker_engine.images.built import need_image
from tests.sagemaker_engine.jobs import own_scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunningEngine

pytestmark = [pytest.mark.dag_run, pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

EXAMPLES = REPOSITORY / "docs" / "examples" / "own"
IDLE = {"set_up_monitoring": "skipped", "tear_down_monitoring": "skipped"}
ONE_STOP = {"what": "interrupt", "at": {"state": "Checkpointing"}, "attempt": 1, "notice_s": 1}


@pytest.fixture
def own_dag(database: Any) -> Callable[[str], Any]:
    """Return a DAG of the examples that can run."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    database("train_own_script")

    def parsed(dag_id: str) -> Any:
        bag = DagBag(EXAMPLES, bundle_path=EXAMPLES, bundle_name="dags-folder")
        assert bag.import_errors == {}
        sync_bag_to_db(bag, "dags-folder", None)
        return bag.dags[dag_id]

    return parsed


@pytest.fixture
def digits(engine: RunningEngine, s3: Any) -> dict[str, Any]:
    """The params that name handwritten digits as CSV, for training and test."""
    import numpy as np
    from sklearn.datasets import load_digits

    table = np.column_stack([*load_digits(return_X_y=True)])
    for split, rows in {"train": table[:1400], "test": table[1400:]}.items():
        text = io.StringIO()
        np.savetxt(text, rows, fmt="%g", delimiter=",")
        s3.put_object(
            Bucket=engine.bucket, Key=f"raw/digits/{split}/digits.csv", Body=text.getvalue()
        )
    place = f"s3://{engine.bucket}/raw/digits"
    return {
        "image_uri": IMAGE,
        "inputs": {"train": f"{place}/train/"},
        "evaluation_inputs": {"test": f"{place}/test/"},
    }


def states_of(dag_run: Any) -> dict[str, str]:
    """Return the states of the run's tasks."""
    return {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}


def test_plain_script_is_interrupted_goes_on_and_is_measured_and_registered(
    own_dag: Any, aws_connection: RunningEngine, digits: dict[str, Any], s3: Any, logs: Any
) -> None:
    put_faults(aws_connection, {**ONE_STOP, "job": "*own-plain-torch*"})

    dag_run = own_dag("own_plain_torch").test(run_conf=digits)

    assert str(dag_run.state) == "success"
    assert set(states_of(dag_run).items()) >= set(IDLE.items())
    training = result(dag_run, "train")
    assert training["interruptions"] == 1
    assert training["instance_count"] == 2
    assert training["final_metrics"]["train:loss"] < 1
    metrics = result(dag_run, "evaluate")["metrics"]
    assert metrics["accuracy"] >= 0.9
    lineage = result(dag_run, "register")["lineage"]
    assert lineage["entry_point"] == "train.py"
    assert lineage["input.train"] == digits["inputs"]["train"]
    report = json.loads(_object(s3, result(dag_run, "report")["report_json"]))
    assert report["status"] == "succeeded"
    assert report["evaluation"]["metrics"] == metrics
    assert report["rules"] is None or report["rules"]["num_records"] == 0


@pytest.mark.slow
def test_watched_script_under_smddp_falls_back_and_goes_on(
    own_dag: Any, aws_connection: RunningEngine, digits: dict[str, Any], s3: Any
) -> None:
    put_quotas(
        aws_connection,
        "ml.p4d.24xlarge for spot training job usage",
        "ml.p4d.24xlarge for training job usage",
    )
    put_faults(
        aws_connection,
        {"what": "capacity_error", "job": "*own-watched-train*", "count": 1},
        {"what": "host_failure", "job": "*own-watched-train*", "at": {"step": 60}},
    )
    dataparallel = {"enabled": True, "processes_per_host": 1}
    conf = {
        **digits,
        "image_uri": None,
        "distribution": {"smdistributed": {"dataparallel": dataparallel}},
    }

    dag_run = own_dag("own_watched").test(run_conf=conf)

    assert str(dag_run.state) == "success"
    training = result(dag_run, "train")
    assert training["is_spot"] is False
    report = json.loads(_object(s3, result(dag_run, "report")["report_json"]))
    assert report["rules"]["num_records"] > 50
    assert report["rules"]["judged"] == "statistics"
    resumed = [each["step"] for each in report["history"] if each["event"] == "resume"]
    assert len(resumed) == 1
    assert resumed[0] % 22 == 0  # whole epochs


@pytest.mark.slow
def test_lora_is_interrupted_and_beats_its_base_model(
    own_dag: Any, aws_connection: RunningEngine, s3: Any, tmp_path: Path
) -> None:
    python = need_image("huggingface") / "bin" / "python"
    maker = Path(__file__).with_name("make_language_model.py")
    subprocess.run([python, maker, tmp_path], check=True, capture_output=True)
    for path in (each for each in tmp_path.rglob("*") if each.is_file()):
        key = f"raw/lora/{path.relative_to(tmp_path)}"
        s3.put_object(Bucket=aws_connection.bucket, Key=key, Body=path.read_bytes())
    put_quotas(aws_connection, "ml.g5.2xlarge for spot training job usage")
    strike = {"what": "interrupt", "job": "*own-lora-train*", "at": {"step": 45}}
    put_faults(aws_connection, strike)
    place = f"s3://{aws_connection.bucket}/raw/lora"
    conf = {
        "inputs": {"model": f"{place}/base/", "train": f"{place}/train/"},
        "evaluation_inputs": {"base": f"{place}/base/", "test": f"{place}/test/"},
    }

    dag_run = own_dag("own_lora").test(run_conf=conf)

    assert str(dag_run.state) == "success"
    training = result(dag_run, "train")
    assert training["interruptions"] == 1
    report = json.loads(_object(s3, result(dag_run, "report")["report_json"]))
    starts = [each["step"] for each in report["history"] if each["event"] == "start"]
    assert starts in ([0, 30], [0, 40])
    assert report["evaluation"]["metrics"]["gain"] > 0.05
    assert report["rules"]["judged"] == "statistics"


@pytest.fixture
def images(engine: RunningEngine, s3: Any, tmp_path: Path) -> dict[str, Any]:
    """The params that name folders of handwritten digits as PNG, for training and test."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(n_class=4, return_X_y=True)
    for number, (row, label) in enumerate(zip(pixels[:500], labels[:500], strict=True)):
        picture, content = np.uint8(row.reshape(8, 8) * 15), io.BytesIO()
        Image.fromarray(picture).resize((32, 32)).save(content, format="PNG")
        split = "train" if number < 400 else "test"
        key = f"raw/images/{split}/{label}/{number}.png"
        s3.put_object(Bucket=engine.bucket, Key=key, Body=content.getvalue())
    place = f"s3://{engine.bucket}/raw/images"
    return {
        "image_uri": IMAGE,
        "inputs": {"train": f"{place}/train/"},
        "evaluation_inputs": {"test": f"{place}/test/"},
    }


@pytest.mark.slow
def test_resnet_on_images_is_interrupted_and_goes_on(
    own_dag: Any, aws_connection: RunningEngine, images: dict[str, Any], s3: Any
) -> None:
    put_quotas(aws_connection, "ml.g5.2xlarge for spot training job usage")
    put_faults(aws_connection, {**ONE_STOP, "job": "*own-images-train*"})

    dag_run = own_dag("own_images").test(run_conf=images)

    assert str(dag_run.state) == "success"
    assert result(dag_run, "train")["interruptions"] == 1
    report = json.loads(_object(s3, result(dag_run, "report")["report_json"]))
    starts = [each["step"] for each in report["history"] if each["event"] == "start"]
    assert len(starts) == 2
    assert starts[1] % 13 == 0  # whole epochs
    assert report["evaluation"]["metrics"]["accuracy"] >= 0.8


@pytest.mark.slow
def test_deepspeed_is_interrupted_and_goes_on(
    own_dag: Any, aws_connection: RunningEngine, digits: dict[str, Any], s3: Any
) -> None:
    put_quotas(aws_connection, "ml.g5.12xlarge for spot training job usage")
    strike = {"what": "interrupt", "job": "*own-deepspeed-train*", "at": {"step": 50}}
    put_faults(aws_connection, strike)
    dag_run = own_dag("own_deepspeed").test(
        run_conf={**digits, "evaluation_instance_type": "ml.m5.xlarge"}
    )

    assert str(dag_run.state) == "success"
    assert result(dag_run, "train")["interruptions"] == 1
    assert result(dag_run, "evaluate")["metrics"]["accuracy"] >= 0.9


LAUNCHED = """
import json, os, pathlib, socket, time
rank = os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "none"))
if "hybrid_shard_degree" in os.environ.get("SM_HP_MP_PARAMETERS", ""):
    import torch.sagemaker as smp  # in SMP's image only
    smp.init()
if json.loads(os.environ["SM_FRAMEWORK_PARAMS"]).get("sagemaker_distributed_dataparallel_enabled"):
    import smdistributed.dataparallel.torch.torch_smddp
print(f"launched rank={rank} host={socket.gethostname()}", flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], f"rank-{rank}").write_text("x")
time.sleep(5)  # AWS's toolkit on the other hosts looks for mpirun's daemon, and would miss a shorter one
"""
GPUS = {"instance_type": "ml.p4d.24xlarge", "framework_version": "2.3.0", "py_version": "py311"}
DATAPARALLEL = {"smdistributed": {"dataparallel": {"enabled": True, "processes_per_host": 1}}}
COLLECTIVES = {
    "torch_distributed": {"enabled": True, "processes_per_host": 1},
    "smdistributed": {"dataparallel": {"enabled": True}},
}
SMP_V2 = {
    "torch_distributed": {"enabled": True, "processes_per_host": 1},
    "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"hybrid_shard_degree": 2}}},
}
SMP_IMAGE = {**GPUS, "framework_version": "2.4.1"}
HOROVOD = {"mpi": {"enabled": True, "custom_mpi_options": "-x HOROVOD_FUSION_THRESHOLD=1"}}
BY_NAME: Any = None
DISTRIBUTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "plain": (BY_NAME, {"strategy": "plain"}, {"none"}),
    "torch_distributed": (BY_NAME, {"strategy": "torchrun"}, {"0", "1"}),
    "pytorchddp": ({"pytorchddp": {"enabled": True, "processes_per_host": 1}}, GPUS, {"0", "1"}),
    "smddp": (DATAPARALLEL, GPUS, {"0", "1"}),
    "smddp_collectives": (COLLECTIVES, GPUS, {"0", "1"}),
    "smp_v2": (SMP_V2, SMP_IMAGE, {"0", "1"}),
    "mpi": ({"mpi": {"enabled": True, "processes_per_host": 2}}, {}, {"0", "1", "2", "3"}),
    "horovod": (HOROVOD, {}, {"0", "1"}),
}


@pytest.fixture
def launched(tmp_path: Path) -> dict[str, Any]:
    """The params of a script that prints its rank and host."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "launched.py").write_text(LAUNCHED)
    return {"entry_point": "launched.py", "source_dir": str(folder), "watch_rules": False}


def lines_of(engine: RunningEngine, dag_run: Any) -> list[str]:
    """Return what the ranks printed."""
    job = result(dag_run, "train")["job_name"]
    found = engine.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{job}/"
    )
    return [each["message"] for each in found["events"] if "launched rank=" in each["message"]]


def words_after(lines: list[str], key: str) -> set[str]:
    """Return the words that follow a key in the lines."""
    return {line.partition(key)[2].split()[0] for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_distribution_of_the_form_starts_its_ranks(
    database: Any, aws_connection: RunningEngine, launched: dict[str, Any], name: str
) -> None:
    distribution, more, ranks = DISTRIBUTIONS[name]
    put_faults(aws_connection)
    put_quotas(aws_connection, "ml.p4d.24xlarge for training job usage")

    dag_run = database("train_own_script").test(
        run_conf={**launched, "distribution": distribution, **more}
    )

    assert str(dag_run.state) == "success"
    lines = lines_of(aws_connection, dag_run)
    assert words_after(lines, "rank=") == ranks
    assert words_after(lines, "host=") == {"algo-1", "algo-2"}
    assert states_of(dag_run)["register"] == "success"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parameter_server", "multi_worker_mirrored_strategy"])
def test_every_distribution_of_tensorflow_starts_its_ranks(
    database: Any,
    launched: dict[str, Any],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    need_image("tensorflow")
    engine: RunningEngine = request.getfixturevalue("own_engine")  # after the image is there
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))

    dag_run = database("train_own_script").test(
        run_conf={**launched, "distribution": {name: {"enabled": True}}, "framework": "tensorflow"}
    )

    assert str(dag_run.state) == "success"
    assert words_after(lines_of(engine, dag_run), "host=") == {"algo-1", "algo-2"}


@pytest.mark.slow
def test_one_group_feeds_another_and_both_are_paid_and_reported(
    database: Any, aws_connection: RunningEngine, tmp_path: Path, s3: Any
) -> None:
    """The group `feed` sends the batches to the two hosts of `train`; all of them are interrupted once."""
    strike = {"what": "interrupt", "job": "*train-own-script-train*", "at": {"step": 3}}
    put_faults(aws_connection, strike)
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name, text in {
        "train.py": own_scripts.GROUPS,
        "task.py": own_scripts.TASK.replace("signal.pause()", "pass"),
        "data_parallel.py": own_scripts.DATA_PARALLEL,
    }.items():
        (scripts / name).write_text(text)
    s3.put_object(Bucket=aws_connection.bucket, Key="raw/words/a.txt", Body=b"words")
    groups = [
        {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "instance_count": 1},
        {"instance_group_name": "train", "instance_type": "ml.m5.large", "instance_count": 2},
    ]
    words = {"s3_data": f"s3://{aws_connection.bucket}/raw/words/", "instance_groups": ["feed"]}

    dag_run = database("train_own_script").test(
        run_conf={
            "entry_point": "train.py",
            "source_dir": str(scripts),
            "image_uri": IMAGE,
            "instance_groups": groups,
            "distribution": {"torch_distributed": {"enabled": True}, "instance_groups": ["train"]},
            "inputs": {"words": words},
            "use_spot_instances": True,
            "max_cost_usd": 1.0,
            "watch_rules": False,
        }
    )

    assert str(dag_run.state) == "success"
    training = result(dag_run, "train")
    assert training["interruptions"] == 1
    assert training["instance_groups"] == groups
    assert training["usd_per_s"] == pytest.approx((0.204 + 2 * 0.115) / 3600)
    job = aws_connection.client("sagemaker").describe_training_job(
        TrainingJobName=training["job_name"]
    )
    source = job["InputDataConfig"][0]["DataSource"]["S3DataSource"]
    assert source["InstanceGroupNames"] == ["feed"]
    report = json.loads(_object(s3, result(dag_run, "report")["report_json"]))
    (record,) = [each for each in report["jobs"] if each["task_id"] == "train"]
    assert record["instance_groups"] == groups
    assert record["cost"]["cost_usd"] == pytest.approx(
        training["billable_seconds"] * training["usd_per_s"]
    )


def test_everything_wrong_is_said_at_once_before_anything_is_paid(
    database: Any, aws_connection: RunningEngine, sagemaker: Any
) -> None:
    before = sagemaker.list_training_jobs(NameContains="train-own-script")["TrainingJobSummaries"]
    conf = {
        "entry_point": "absent.py",
        "source_dir": "docs/examples/own/plain_torch",
        "image_uri": IMAGE,
        "inputs": {"train": f"s3://{aws_connection.bucket}/nothing/here/"},
        "rules": ["NoSuchRule"],
    }

    dag_run = database("train_own_script").test(run_conf=conf)

    assert str(dag_run.state) == "failed"
    told = json.dumps(result(dag_run, "preflight", "failure"))
    for each in (
        "absent.py",
        "inputs.train",
        "has no objects with content, or its bucket does not exist",
        "NoSuchRule",
    ):
        assert each in told
    after = sagemaker.list_training_jobs(NameContains="train-own-script")["TrainingJobSummaries"]
    assert after == before


@pytest.mark.slow
def test_a_model_that_is_not_good_enough_is_not_registered(
    own_dag: Any, aws_connection: RunningEngine, digits: dict[str, Any]
) -> None:
    put_faults(aws_connection)
    conf = {"hyperparameters": {"epochs": 1}, "instance_count": 1, "use_spot_instances": False}

    dag_run = own_dag("own_plain_torch").test(
        run_conf={**digits, **conf, "register_when": "accuracy > 1"}
    )

    assert states_of(dag_run)["register"] == "skipped"
    assert states_of(dag_run)["report"] == "success"
    note = result(dag_run, "report")["note"]
    assert "accuracy 0." in note
    assert "not registered: needs accuracy > 1" in note


OWN_STAGES = """
from airflow.sdk import BaseOperator
from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

class Copy(BaseOperator):
    def execute(self, context):
        from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
        place, name = "PLACE".removeprefix("s3://").split("/", 1)
        clients = AwsClients(ConnectionArguments())
        clients.client("s3").put_object(Bucket=place, Key=name + "x", Body=b"data")

class Measure(BaseOperator):
    def execute(self, context):
        return {"metrics": {"bleu": 31.5}}

script_pipeline(
    dag_id="own_stages",
    prepare=lambda: Copy(task_id="copy"),
    evaluate=lambda: Measure(task_id="EVALUATE"),
    source_dir="SCRIPTS",
    entry_point="launched.py",
    watch_rules=False,
    inputs={"train": "PLACE"},
    register_when="bleu > 30",
)
"""


@pytest.mark.slow
def test_stages_of_the_authors_own_take_the_place_of_the_runs(
    database: Any, aws_connection: RunningEngine, launched: dict[str, Any], tmp_path: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    database("train_own_script")
    put_faults(aws_connection)
    place = f"s3://{aws_connection.bucket}/trainyard/prepared/{tmp_path.name}/"
    text = OWN_STAGES.replace("EVALUATE", "evaluate").replace("PLACE", place)
    (tmp_path / "own_dag.py").write_text(text.replace("SCRIPTS", launched["source_dir"]))
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")

    assert bag.import_errors == {}
    dag = bag.dags["own_stages"]
    assert dag.get_task("copy").downstream_task_ids == {"smoke_test", "train", "watch_rules"}
    sync_bag_to_db(bag, "dags-folder", None)

    dag_run = dag.test()

    states = states_of(dag_run)
    assert [states[each] for each in ("copy", "evaluate", "register", "report")] == ["success"] * 4
    assert result(dag_run, "report")["note"].startswith("Succeeded; bleu 31.5; model trainyard")


def test_a_measuring_task_of_another_name_is_an_import_error(tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (tmp_path / "own_dag.py").write_text(OWN_STAGES.replace("EVALUATE", "measure"))
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")

    (error,) = bag.import_errors.values()
    assert "evaluate: returned a task with another task_id; got measure" in error


def _object(s3: Any, uri: str) -> bytes:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return body
