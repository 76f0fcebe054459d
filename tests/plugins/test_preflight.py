"""What can be wrong before a run is said whole, whichever way it was started."""

from __future__ import annotations

import json
import os
import socketserver
import threading
import uuid
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from tests.dags.account_rules import without
from tests.engine_access import EngineAccess
from tests.plugins.conftest import connection_json
from trainyard.errors import SpecError
from trainyard.permissions.policies import Account, airflow_policy
from trainyard_airflow.hooks import account_check
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.tasks.end_to_end.jobs import training_spec
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator
from trainyard_airflow.tasks.end_to_end.stages import Stages
from trainyard_airflow.tasks.shared.run_state import RunState
from trainyard_airflow.tasks.shared.schema_findings import conf_findings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine


ON_STOP = {"action": "retry_with_lower_learning_rate"}


def preflight(
    task: Any,
    *extras: dict[str, Any],
    tasks: list[str] | None = None,
    stages: Stages | None = None,
    **conf: Any,
) -> dict[str, Any]:
    """Return what `preflight` returns for a conf and the extras of asset events, before these tasks."""
    context = task.context | {
        "params": {**FORM.defaults, **conf},
        "triggering_asset_events": {"asset": [SimpleNamespace(extra=each) for each in extras]},
    }
    operator = PreflightOperator(task_id="preflight", stages=stages)
    operator.downstream_task_ids.update(tasks or ())
    return PreflightOperator.execute.__wrapped__(operator, context)


def refusal(task: Any, *extras: dict[str, Any], **conf: Any) -> str:
    with pytest.raises(SpecError) as raised:
        preflight(task, *extras, **conf)
    return str(raised.value)


def test_good_conf_gives_the_state_of_the_run(aws_connection, task):
    state = preflight(task)

    assert state["role"] == aws_connection.role_arn
    assert state["paths"]["bucket"] == aws_connection.bucket


def test_what_aws_would_refuse_is_refused_with_the_rest_of_the_findings(aws_connection, task):
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1.10.2-cpu-py38"

    message = refusal(task, image_uri=image, source="/nowhere")

    assert "a version of torch that torch_distributed does not support; got 1.10" in message
    assert (
        "because support for torch_distributed is built into the images of the allowed versions only (SDK v2"
        in message
    )
    assert "/nowhere" in message


def test_what_the_script_would_refuse_is_refused_with_the_rest_of_the_findings(
    aws_connection, task
):
    message = refusal(task, hyperparameters={"dropout": 2}, source="/nowhere")

    assert "would be rejected by train_ddp.py; hyperparameter 'dropout': got 2; allowed:" in message
    assert "/nowhere" in message


def test_degrees_that_a_rung_of_the_ladder_cannot_hold_are_refused(aws_connection, task):
    message = refusal(
        task,
        strategy="fsdp",
        instance_count=4,
        global_batch_size=32,
        hyperparameters={"hybrid_shard_degree": 4},
        capacity_ladder=[
            {"instance_type": "ml.m5.large", "instance_count": count, "use_spot_instances": False}
            for count in (4, 2)
        ],
    )

    assert "hybrid_shard_degree 4 does not divide the 2 ranks" in message


def test_what_aws_would_do_badly_is_warned_of_in_the_plan(aws_connection, task):
    state = preflight(task, instance_type="ml.g5.xlarge", instance_count=2)

    warnings = state["plan"]["warnings"]
    assert any("but one ml.g5.12xlarge has" in each for each in warnings)
    assert any("has no EFA" in each for each in warnings)


def test_a_condition_on_a_metric_that_nothing_measures_is_refused(aws_connection, task):
    message = refusal(task, register_when="bleu > 30", source="/nowhere")

    assert "register_when: has a metric that the run does not measure; got 'bleu'" in message
    assert "allowed: test_loss, test_perplexity, unigram_loss" in message
    assert "/nowhere" in message


@pytest.mark.parametrize(
    ("evaluate", "condition"),
    [(True, "test_loss < 5"), (False, "validation:loss < 5"), (lambda: None, "bleu > 30")],
    ids=["own", "absent", "replaced"],
)
def test_a_condition_fits_the_evaluation_of_the_dag(aws_connection, task, evaluate, condition):
    stages = Stages(evaluate=evaluate, own_evaluation=lambda: None)

    state = preflight(task, stages=stages, register_when=condition)

    place = state["plan"]["evaluation"]["place"]
    assert place == ("processing" if evaluate is True else "none")
    assert ("evaluate" in state["plan"]["cost_note"]) == (evaluate is True)


def test_what_belongs_to_a_stage_left_out_is_refused(aws_connection, task):
    stages = Stages(evaluate=None, register=None, own_evaluation=lambda: None)

    with pytest.raises(SpecError) as raised:
        preflight(task, stages=stages, approval=True, evaluation_place="processing")

    assert "approval: has no effect, because this DAG has no task for the stage register" in str(
        raised.value
    )
    assert "evaluation_place: has no effect" in str(raised.value)


def test_a_source_that_an_authors_task_may_write_is_a_warning(aws_connection, task):
    stages = Stages(prepare=lambda: None, own_evaluation=lambda: None)

    state = preflight(task, stages=stages, source=f"s3://{aws_connection.bucket}/raw/not-yet/")

    assert any("has no objects with content" in each for each in state["plan"]["warnings"])


@pytest.mark.parametrize("has_task", [True, False])
def test_watching_by_rules_that_a_dag_has_no_task_for_is_warned_of(aws_connection, task, has_task):
    asked = {"watch_rules": True, "on_rule_error": "fail", "on_rule_stop": ON_STOP}
    names = ["watch_rules"] if has_task else []

    warnings = preflight(task, tasks=names, **asked)["plan"]["warnings"]

    found = [each.split(":")[0] for each in warnings if "has no effect in this DAG" in each]
    assert found == ([] if has_task else [*asked])


def test_what_is_left_to_the_planner_is_in_the_state_with_the_reasons(aws_connection, task):
    state = preflight(
        task, strategy="auto", instance_type="auto", instance_count=0, precision="bf16"
    )

    conf, auto = state["conf"], state["plan"]["auto"]
    assert (conf["strategy"], conf["instance_count"]) == ("ddp", 1)
    assert conf["instance_type"] == auto["chosen"]["instance_type"] != "auto"
    assert any("one accelerator holds it" in each for each in auto["reasons"])


def test_what_the_planner_cannot_choose_is_refused_with_the_rest(aws_connection, task):
    message = refusal(task, strategy="auto", instance_type="ml.m5.large", source="/nowhere")

    assert "is not an NVIDIA instance type of the catalogue" in message
    assert "/nowhere" in message


def test_each_source_of_a_mixture_is_looked_for_and_named(aws_connection, task, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    mixture = {
        "here": {"source": str(tmp_path), "weight": 1},
        "gone": {"source": "/nowhere", "weight": 1},
    }

    message = refusal(task, data_mixture=mixture, warmup_steps=999)

    assert "data_mixture.gone.source: does not exist on this worker; got /nowhere" in message
    assert "warmup_steps" in message
    assert "data_mixture.here" not in message


def test_malformed_place_hides_no_other_finding(aws_connection, task):
    message = refusal(task, {"bucket": "s3://b", "warmup_steps": 999, "source": "/nowhere"})

    for part in ("bucket", "warmup_steps", "/nowhere"):
        assert part in message


def test_malformed_bucket_of_the_connection_is_a_finding(engine, task, monkeypatch):
    wrong = {"bucket": "s3://b", "execution_role_arn": engine.role_arn}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine, trainyard=wrong))

    message = refusal(task, source="/nowhere")

    assert "bucket: cannot be checked: Parameter validation failed" in message
    assert "/nowhere" in message


def test_connection_without_credentials_is_a_finding_with_a_next_step(engine, task, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    connection = json.loads(connection_json(engine))
    bare = {name: connection[name] for name in ("conn_type", "extra")}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(bare))

    message = refusal(task, source="/nowhere")

    assert "Unable to locate credentials; got" in message
    assert "give the connection credentials" in message
    assert "/nowhere" in message


def test_account_that_does_not_answer_is_asked_again_unless_the_conf_is_wrong(
    engine, task, monkeypatch
):
    connection = json.loads(connection_json(engine))
    connection["extra"]["endpoint_url"] = "http://127.0.0.1:9"
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))

    with pytest.raises(ConnectionError, match="AWS did not respond to a request about the"):
        preflight(task)
    assert "AWS did not respond to a request about the" in refusal(task, source="/nowhere")


@contextmanager
def hanging_up() -> Iterator[tuple[str, list[Any]]]:
    """Run a server that ends each connection without an answer; yield its URL and the connections."""
    heard: list[Any] = []

    class HangingUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            heard.append(self.client_address)

    with socketserver.TCPServer(("127.0.0.1", 0), HangingUp) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", heard
        finally:
            server.shutdown()
            thread.join()


def test_iam_and_service_quotas_that_do_not_answer_are_warnings_after_two_tries(
    engine, task, monkeypatch
):
    connection = json.loads(connection_json(engine))
    extra = connection["extra"]
    extra["config_kwargs"]["retries"]["total_max_attempts"] = 4
    with hanging_up() as (iam, asked_of_iam), hanging_up() as (quotas, asked_of_quotas):
        extra["service_config"] = {
            "iam": {"endpoint_url": iam},
            "service-quotas": {"endpoint_url": quotas},
        }
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))

        warnings = preflight(task)["plan"]["warnings"]

    for where in ("role", "service quotas"):
        unchecked = f"{where}: cannot be checked: AWS did not respond to a request"
        assert any(each.startswith(unchecked) for each in warnings)
    assert (len(asked_of_iam), len(asked_of_quotas)) == (2, 2)


@pytest.mark.parametrize("place", ["/nowhere/tokenizer.json", "s3://{bucket}/none/tokenizer.json"])
def test_missing_tokenizer_is_found_before_anything_is_paid(aws_connection, task, place):
    address = place.format(bucket=aws_connection.bucket)

    assert f"tokenizer: does not exist; got {address}" in refusal(task, tokenizer=address)


def test_tokenizer_that_is_there_is_no_finding(aws_connection, s3, tmp_path):
    clients = AwsClients(ConnectionArguments())
    s3.put_object(Bucket=aws_connection.bucket, Key="own/tokenizer.json", Body=b"{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    places = ["bytes", str(tmp_path / "tokenizer.json")]
    places.append(f"s3://{aws_connection.bucket}/own/tokenizer.json")

    found = [each for at in places for each in account_check.tokenizer_findings(clients, at)]

    assert found == []


FINDINGS = {
    "source": account_check.source_findings,
    "tokenizer": account_check.tokenizer_findings,
}


@pytest.mark.parametrize("name", FINDINGS)
@pytest.mark.parametrize("path", ["/proc/self/environ", "airflow's", "link"])
def test_the_workers_own_files_are_no_data(aws_connection, tmp_path, name, path):
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    own = {
        "airflow's": f"{os.environ['AIRFLOW_HOME']}/airflow.cfg",
        "link": str(tmp_path / "link.json"),
    }

    found = [*FINDINGS[name](AwsClients(ConnectionArguments()), own.get(path, path))]

    assert [each.where for each in found] == [name]
    assert "leads to files that no run may read" in str(found[0])


def test_local_files_are_data_only_below_the_connections_roots(engine, task, monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.txt").write_text("line")
    (tmp_path / "tokenizer.json").write_text("{}")
    place = {"bucket": engine.bucket, "execution_role_arn": engine.role_arn}
    rooted = {**place, "source_roots": [str(tmp_path / "data")]}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine, trainyard=place))
    none = [
        *FINDINGS["source"](AwsClients(ConnectionArguments()), f"{tmp_path}/data"),
        *FINDINGS["source"](AwsClients(ConnectionArguments()), "python-stdlib"),
    ]
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine, trainyard=rooted))

    below = refusal(task, source=f"{tmp_path}/data", tokenizer=f"{tmp_path}/tokenizer.json")

    outside = "is not below a folder that a run may read"
    assert [each.what for each in none] == [outside]
    assert f"tokenizer: {outside}" in below
    assert f"source: {outside}" not in below


def test_source_may_be_a_glob_as_sharding_reads_it(aws_connection, s3, tmp_path):
    clients = AwsClients(ConnectionArguments())
    s3.put_object(Bucket=aws_connection.bucket, Key="globbed/1.txt", Body=b"line")
    (tmp_path / "1.txt").write_text("line")
    places = [f"{tmp_path}/", f"s3://{aws_connection.bucket}/globbed/"]

    there = [list(account_check.source_findings(clients, f"{at}*.txt")) for at in places]
    missing = [list(account_check.source_findings(clients, f"{at}*.csv")) for at in places]

    assert there == [[], []]
    assert [len(each) for each in missing] == [1, 1]


def test_misspelt_key_of_an_asset_event_is_refused_by_name(aws_connection, task):
    message = refusal(task, {"sorce": "s3://b/x", "from_rest_api": True})

    assert "did you mean 'source'?" in message
    assert "from_rest_api" not in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("instance_count", -1),
        ("precision", "fp64"),
        ("validation_fraction", 1),
        ("use_spot_instances", "yes"),
        ("instance_type", "m5.large"),
        ("bucket", "s3://bucket"),
        ("role", "not a role!"),
    ],
)
def test_bad_value_of_an_event_is_refused_in_the_sentence_of_the_form(
    aws_connection, task, name, value
):
    """The form and POST dagRuns meet the server's copy of the params, an event the DAG's own."""
    with DAG("refused", schedule=None, params=FORM.params()) as dag:
        pass
    server = DagSerialization.from_dict(DagSerialization.to_dict(dag)).params
    (by_rest,) = conf_findings(
        {each: server.get_param(each).schema for each in server}, {name: value}
    )

    assert str(by_rest) in refusal(task, {name: value})


def test_a_topic_that_is_not_there_is_refused_by_name(aws_connection, task):
    arn = f"arn:aws:sns:{aws_connection.region}:123456789012:nobody"

    message = refusal(task, notifications={"topic_arn": arn})

    assert f"notifications.topic_arn: does not exist; got {arn}" in message
    other = refusal(task, notifications={"topic_arn": "arn:aws:sns:eu-west-3:123456789012:t"})
    assert "is in another region than the connection" in other


def test_a_topic_that_is_there_is_the_runs_notifier(aws_connection, task):
    sns = AwsClients(ConnectionArguments()).client("sns")
    arn = sns.create_topic(Name=f"preflight-{task.run_id[:8]}")["TopicArn"]

    state = preflight(task, notifications={"topic_arn": arn, "on": ["spot"]})

    assert state["notifier"]["topic_arn"] == arn
    assert state["notifier"]["on"] == ["spot"]
    assert state["notifier"]["place"].endswith("/notifications")
    assert preflight(task)["notifier"] is None


def test_occasions_are_checked_with_the_rest_of_the_conf(aws_connection, task):
    message = refusal(
        task,
        notifications={"topic_arn": "arn:aws:sns:us-east-1:123456789012:t", "on": ["sport"]},
        source="/nowhere",
    )

    assert "notifications.on[0]" in message
    assert "spot" in message
    assert "/nowhere" in message


def test_a_bucket_of_another_region_is_refused(aws_connection, task):
    with closing(aws_connection.client("s3")) as s3:
        name = f"elsewhere-{uuid.uuid4().hex[:8]}"
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})

    message = refusal(task, {"bucket": name})

    assert "bucket: is in another region than the jobs" in message
    assert f"got {name} in eu-west-1; allowed: a bucket in us-east-1" in message


@pytest.mark.parametrize("name", ["pytorch-training:9.9.9-cpu-py312", "my-images/training:1"])
def test_an_image_that_is_not_there_is_refused(aws_connection, task, name):
    image = f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{name}"

    message = refusal(task, image_uri=image)

    assert f"image_uri: does not exist in its registry; got {image}" in message


def test_a_serving_image_that_is_not_there_is_refused(aws_connection, task):
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:9.9.9-cpu-py312"

    message = refusal(task, inference_image_uri=image)

    assert f"inference_image_uri: does not exist in its registry; got {image}" in message


def test_an_image_that_may_not_be_asked_for_is_a_warning(aws_connection, task):
    access = EngineAccess(aws_connection)
    account = Account(
        account=aws_connection.account,
        region=aws_connection.region,
        bucket=aws_connection.bucket,
        role_arn=aws_connection.role_arn,
    )
    policy = airflow_policy(account, ())
    access.put(airflow=without("ecr:BatchGetImage", policy), role=policy)
    try:
        state = preflight(task)
    finally:
        access.clear()

    warnings = [each for each in state["plan"]["warnings"] if "image_uri" in str(each)]
    assert warnings
    assert "ecr:BatchGetImage" in str(warnings)


LLAMA = {
    "model_type": "llama", "vocab_size": 257, "hidden_size": 128, "intermediate_size": 352,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
SAME = {"hyperparameters": {"num_kv_heads": 2}}


def put_model(s3: Any, bucket: str, files: dict[str, bytes]) -> str:
    """Return the prefix below which the files were put."""
    prefix = f"models/{uuid.uuid4().hex}/"
    for name, content in files.items():
        s3.put_object(Bucket=bucket, Key=prefix + name, Body=content)
    return f"s3://{bucket}/{prefix}"


@pytest.mark.parametrize(
    ("files", "conf", "says"),
    [
        ({}, SAME, "init_from: has no objects with content"),
        ({"pytorch_model.bin": b"x"}, SAME, "init_from: needs one model"),
        ({"config.json": json.dumps(LLAMA).encode()}, SAME, "init_from: has no safetensors beside"),
        (
            {"config.json": b"{", "model.safetensors": b"x"},
            SAME,
            "init_from: has a config.json that is not JSON",
        ),
        (
            {"a/config.json": b"{}", "a/model.safetensors": b"x", "b/model.tar.gz": b"x"},
            SAME,
            "init_from: needs one model",
        ),
        (
            {"config.json": json.dumps(LLAMA).encode(), "model.safetensors": b"x"},
            {},
            'num_kv_heads is 4 instead of 2; set {"num_kv_heads": 2}',
        ),
        (
            {"config.json": json.dumps({**LLAMA, "vocab_size": 300}).encode(), "m.safetensors": b"x"},
            SAME,
            "the data set has a vocabulary of 257 tokens",
        ),
    ],
    ids=["none", "other-format", "no-weights", "no-json", "two", "shape", "vocabulary"],
)  # fmt: skip
def test_initial_weights_are_checked_before_anything_is_paid(
    aws_connection, s3, task, files, conf, says
):
    address = put_model(s3, aws_connection.bucket, files)

    assert says in refusal(task, init_from=address, **conf)


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": json.dumps(LLAMA).encode(), "model.safetensors": b"x"},
        {"run/output/model.tar.gz": b"x"},
    ],
    ids=["folder", "archive"],
)
def test_initial_weights_that_fit_are_a_channel_of_the_training(aws_connection, s3, task, files):
    address = put_model(s3, aws_connection.bucket, files)

    state = RunState.from_dict(preflight(task, init_from=address, **SAME))

    given = {"paths": state.paths, "dataset_uri": "s3://b/data", "role": state.role}
    assert training_spec(state.conf, task_id="train", **given).inputs["init"].s3_data == address
