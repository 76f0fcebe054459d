"""The DAG `fine_tune` on the engine: a small chat model by LoRA, its gate, its data check, its question to a person."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import RunningEngine
from tests.dags.engine_faults import put_faults, put_quotas
from tests.dags.test_own_script import states_of
from tests.dags.test_train_end_to_end import result, stored
from tests.plugins.conftest import connection_json
from tests.sagemaker_engine.images.built import need_image
from tests.training_scripts.inference_client import answers_of
from trainyard.catalog.hardware import hardware
from trainyard.catalog.instances import DATA_FILE, PRICES_VARIABLE, catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

pytestmark = [pytest.mark.dag_run, pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

MAKER = Path(__file__).parents[1] / "training_scripts" / "make_chat_model.py"
SPOT_QUOTA = "ml.g5.2xlarge for spot training job usage"
QUOTA = "ml.g5.2xlarge for training job usage"
RESERVE_S, EVALUATION_S, TRAINING_S = 120, 300, 240
"""Seconds under the cap: of each job's stop, of the evaluation, and of the training."""
CHAT = {"messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hi."}]}


def put_files(engine: RunningEngine, s3: Any, files: Mapping[str, bytes]) -> str:
    """Put files below a prefix of the run's bucket; return its address."""
    for name, content in files.items():
        s3.put_object(Bucket=engine.bucket, Key=f"raw/fine-tune/{name}", Body=content)
    return f"s3://{engine.bucket}/raw/fine-tune"


@pytest.fixture(scope="module")
def huggingface() -> Path:
    """Return the interpreter of the engine's Hugging Face image."""
    return need_image("huggingface") / "bin" / "python"


def put_model(engine: RunningEngine, s3: Any, python: Path, folder: Path) -> str:
    """Make a small chat model with data of each format, and put it; return its address."""
    subprocess.run([python, MAKER, folder], check=True, capture_output=True)
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    put_quotas(engine, SPOT_QUOTA, QUOTA)
    put_faults(engine)
    return put_files(engine, s3, files)


@pytest.fixture
def small_model(aws_connection: RunningEngine, s3: Any, tmp_path: Path, huggingface: Path) -> str:
    """Return the address of a small chat model with data of each format, on the shared engine."""
    return put_model(aws_connection, s3, huggingface, tmp_path)


@pytest.fixture
def full_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningEngine]:
    """An engine whose stops take AWS's two minutes, which a merged model may need on a busy machine."""
    running = RunningEngine(root=tmp_path / "engine", time_scale=1.0).start()
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(running))
    yield running
    running.stop()


def conf_of(place: str, data: str, **params: Any) -> dict[str, Any]:
    """Return the params of a run on a data set."""
    return {
        "base_model": f"{place}/base/",
        "train_data": f"{place}/{data}/train/",
        "validation_data": f"{place}/{data}/test/",
        "max_steps": 60,
        "learning_rate": 1e-3,
        "hyperparameters": {"save_steps": 10},
        **params,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        {},
        {"strategy": "fsdp", "instance_count": 2},
        {
            "strategy": "deepspeed",
            "instance_count": 2,
            "hyperparameters": {"save_steps": 10, "ds_config": {"zero_optimization": {"stage": 1}}},
        },
    ],
    ids=["ddp", "fsdp on two hosts", "deepspeed on two hosts"],
)
def test_lora_is_interrupted_beats_its_base_and_is_registered(
    database: Any,
    aws_connection: RunningEngine,
    small_model: str,
    s3: Any,
    strategy: dict[str, Any],
) -> None:
    strike = {"what": "interrupt", "job": "*fine-tune-train*", "at": {"step": 25}}
    put_faults(aws_connection, strike)

    dag_run = database("fine_tune").test(
        run_conf=conf_of(small_model, "chat", use_spot_instances=True, **strategy)
    )

    assert str(dag_run.state) == "success"
    checked = result(dag_run, "check_data")
    assert checked["splits"]["train"]["num_rows"] == 160
    assert checked["splits"]["train"]["formats"] == {"chat": 160}
    assert checked["estimate"]["num_steps"] == 60
    assert checked["estimate"]["num_parameters"] == pytest.approx(1_282_400, rel=0.01)
    training = result(dag_run, "train")
    assert training["interruptions"] == 1
    metrics = result(dag_run, "evaluate")["metrics"]
    assert metrics["gain"] > 1
    lineage = result(dag_run, "register")["lineage"]
    assert lineage["input.model"] == f"{small_model}/base/"
    bucket, _, key = result(dag_run, "report")["report_json"].removeprefix("s3://").partition("/")
    report = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    assert report["rules"]["judged"] == "statistics"
    starts = [each["step"] for each in report["history"] if each["event"] == "start"]
    assert len(starts) == 2
    assert starts[1] >= 10


@pytest.mark.slow
def test_cost_cap_leaves_a_model_that_is_measured_registered_and_answers(
    database: Any, full_grace: RunningEngine, tmp_path: Path, huggingface: Path
) -> None:
    s3, sagemaker = full_grace.client("s3"), full_grace.client("sagemaker")
    place = put_model(full_grace, s3, huggingface, tmp_path / "made")
    usd_per_s = (catalogue().types["ml.g5.2xlarge"].price_usd_per_hour or 0) / 3600
    cap_usd = usd_per_s * (TRAINING_S + EVALUATION_S + 2 * RESERVE_S)
    limits = {"stop_reserve_s": RESERVE_S, "evaluation_max_run_s": EVALUATION_S}

    dag_run = database("fine_tune").test(
        run_conf=conf_of(place, "chat", max_steps=100_000, max_cost_usd=cap_usd, **limits)
    )

    assert str(dag_run.state) == "success"
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    assert record["status"] == "stopped by its cost cap"
    assert record["ledger"]["total_usd"] <= cap_usd
    step = record["cap_stop"]["step"]
    assert 0 < step < 100_000
    assert result(dag_run, "evaluate")["metrics"]["gain"] > 0
    package = sagemaker.describe_model_package(ModelPackageName=record["model_package_arn"])
    properties = package["CustomerMetadataProperties"]
    assert properties["ended_by"] == "cost cap"
    assert properties["stopped_at_step"] == str(step)
    model = tmp_path / "model"
    with tarfile.open(fileobj=io.BytesIO(stored(s3, properties["model_artifact"]))) as archive:
        archive.extractall(model, filter="data")
    (container,) = package["InferenceSpecification"]["Containers"]
    assert "/huggingface-pytorch-inference:" in container["Image"]
    messages = CHAT["messages"][:1]
    (answer,) = answers_of(model, {"messages": messages, "max_new_tokens": 12}, python=huggingface)
    assert answer["text"]


def nonsense(_: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that teach nothing of the answers."""
    return [{"text": "no " * 60}] * 160


def swapped(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return pairs that prefer the wrong answers."""
    return [{**each, "chosen": each["rejected"], "rejected": each["chosen"]} for each in pairs]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "data", "spoil"), [("sft", "chat", nonsense), ("dpo", "pairs", swapped)]
)
def test_gate_refuses_a_spoiled_adapter(
    database: Any,
    aws_connection: RunningEngine,
    small_model: str,
    s3: Any,
    tmp_path: Path,
    method: str,
    data: str,
    spoil: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
) -> None:
    lines = (tmp_path / data / "train" / "train.jsonl").read_text().splitlines()
    rows = "".join(json.dumps(row) + "\n" for row in spoil([json.loads(line) for line in lines]))
    put_files(aws_connection, s3, {f"spoiled/{data}/rows.jsonl": rows.encode()})
    spoiled = {"train_data": f"{small_model}/spoiled/{data}/", "learning_rate": 3e-3}

    dag_run = database("fine_tune").test(
        run_conf=conf_of(
            small_model, data, method=method, artifact="adapter", watch_rules=False, **spoiled
        )
    )

    assert str(dag_run.state) == "success"
    assert result(dag_run, "evaluate")["metrics"]["gain"] < 0
    assert states_of(dag_run)["register"] == "skipped"
    assert "not registered: needs gain > 0" in result(dag_run, "report")["note"]


@pytest.mark.slow
def test_bad_rows_are_refused_by_number_before_anything_is_paid(
    database: Any, aws_connection: RunningEngine, sagemaker: Any, s3: Any
) -> None:
    before = sagemaker.list_training_jobs(NameContains="fine-tune")["TrainingJobSummaries"]
    put_quotas(aws_connection, QUOTA)
    good, tools = (json.dumps(CHAT | more) for more in ({}, {"tools": [{"name": "weather"}]}))
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    files = {
        "few/base/config.json": b'{"dtype": "float32"}',
        "few/base/tokenizer_config.json": json.dumps({"chat_template": template}).encode(),
        "few/base/model.safetensors": bytes(400),
        "few/train/rows.jsonl": f'{good}\n{{"messages": []}}\nno json\n{tools}\n'.encode(),
    }
    place = put_files(aws_connection, s3, files)
    conf = {"base_model": f"{place}/few/base/", "train_data": f"{place}/few/train/"}

    dag_run = database("fine_tune").test(run_conf=conf)

    assert str(dag_run.state) == "failed"
    states = states_of(dag_run)
    assert (states["preflight"], states["check_data"]) == ("success", "failed")
    told = json.dumps(result(dag_run, "check_data", "failure"))
    assert "rows.jsonl row 2" in told
    assert "rows.jsonl row 3" in told
    assert "rows.jsonl row 4" in told
    assert "has tools, which the base model's chat template leaves out" in told
    after = sagemaker.list_training_jobs(NameContains="fine-tune")["TrainingJobSummaries"]
    assert after == before


@pytest.mark.slow
def test_models_that_no_job_could_use_are_refused_before_anything_is_paid(
    database: Any,
    aws_connection: RunningEngine,
    s3: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_quotas(aws_connection, QUOTA)
    hardware()  # it is read once, so not from the file below
    small = tmp_path / "types.csv"  # with GPUs that hold nothing
    known = DATA_FILE.read_text()
    small.write_text(re.sub(r"(?<=ml\.g5\.2xlarge,8,32,1,NVIDIA A10G,)24", "2", known))
    monkeypatch.setenv(PRICES_VARIABLE, str(small))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("config.json", "model.safetensors"):
            archive.addfile(tarfile.TarInfo(f"./{name}"))
    files = {
        "whole/base/config.json": b'{"dtype": "float32"}',
        "whole/base/model.safetensors": bytes(400),
        "whole/base/consolidated.safetensors": bytes(400),
        "whole/old/model.tar.gz": packed.getvalue(),
        "whole/train/rows.jsonl": b'{"text": "no conversation"}\n',
    }
    place = put_files(aws_connection, s3, files)
    conf = {
        "base_model": f"{place}/whole/base/",
        "train_data": f"{place}/whole/train/",
        "validation_data": f"{place}/whole/train/",
        "init_from": f"{place}/whole/old/model.tar.gz",
        "artifact": "adapter",
    }

    dag_run = database("fine_tune").test(run_conf=conf)

    assert str(dag_run.state) == "failed"
    states = states_of(dag_run)
    assert (states["preflight"], states["check_data"]) == ("success", "failed")
    told = json.dumps(result(dag_run, "check_data", "failure"))
    assert "200 B of weights on ml.g5.2xlarge" in told
    assert '"where": "init_from", "what": "has a whole model' in told


@pytest.mark.slow
def test_everything_wrong_with_the_conf_is_reported_at_once(
    database: Any, aws_connection: RunningEngine
) -> None:
    conf = {"base_model": "nowhere", "train_data": "train.jsonl", "metod": "dpo"}

    dag_run = database("fine_tune").test(run_conf=conf)

    assert str(dag_run.state) == "failed"
    told = json.dumps(result(dag_run, "preflight", "failure"))
    for each in ("base_model", "train_data", "metod"):
        assert each in told
