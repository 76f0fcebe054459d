"""Debugger's members: what is refused, shown, written and uploaded; rules that judge, and what they do."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.debugger import IMAGE, SCRIPT, STOP, code_channel, rule, statuses, training
from tests.contract.waiting import wait_until

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def request(endpoint: Endpoint, script: str | None = None, **members: Any) -> dict[str, Any]:
    """Return a request with a hook, whose job runs a shell's script, a training by default."""
    endpoint.put("debugger/train.py", SCRIPT.encode())
    return {
        **endpoint.training_request(script or training()),
        "InputDataConfig": [code_channel(endpoint.uri("debugger/"))],
        "DebugHookConfig": {"S3OutputPath": endpoint.uri("debug")},
        **members,
    }


def refusal(endpoint: Endpoint, **members: Any) -> str:
    """Return the message with which the service refuses a job of these members."""
    asked = {key: value for key, value in request(endpoint, **members).items() if value is not None}
    with pytest.raises(ClientError) as caught:
        endpoint.client("sagemaker", validates=False).create_training_job(**asked)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return str(caught.value.response["Error"]["Message"])


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"DebugRuleConfigurations": [rule(f"r{n}", "Overfit") for n in range(21)]}, "20"),
        ({"ProfilerRuleConfigurations": [rule(f"r{n}", "BatchSize") for n in range(21)]}, "20"),
        ({"DebugRuleConfigurations": [rule("one", "Overfit")] * 2}, "must be unique"),
        (
            {"DebugHookConfig": None, "DebugRuleConfigurations": [rule("one", "Overfit")]},
            "DebugHookConfig must be specified",
        ),
        ({"ProfilerConfig": {"ProfilingIntervalInMilliseconds": 300}}, "must be one of 100"),
        (
            {
                "ProfilerConfig": {"DisableProfiler": True},
                "ProfilerRuleConfigurations": [rule("one", "BatchSize")],
            },
            "when DisableProfiler is true",
        ),
        (
            {"DebugRuleConfigurations": [rule("one", "Overfit", action_json="stop it")]},
            "Invalid action_json",
        ),
        (
            {"DebugHookConfig": {"S3OutputPath": "s3://b/k", "LocalPath": "tensors"}},
            "Invalid LocalPath in DebugHookConfig",
        ),
    ],
    ids=[
        "21 rules", "21 profiler rules", "a name twice", "no hook", "interval", "disabled", "action", "path",
    ],
)  # fmt: skip
def test_refuses_what_the_service_refuses(
    endpoint: Endpoint, members: dict[str, Any], says: str
) -> None:
    assert says in refusal(endpoint, **members)


def test_describe_shows_what_was_asked_for_and_a_status_of_each_rule(endpoint: Endpoint) -> None:
    asked = request(
        endpoint,
        DebugRuleConfigurations=[
            rule("nan", "NonFinite"),
            rule("odd", "NoSuchRule"),
            rule("overfit", "Overfit"),
        ],
        ProfilerConfig={"S3OutputPath": endpoint.uri("profile")},
        ProfilerRuleConfigurations=[rule("report", "ProfilerReport")],
        TensorBoardOutputConfig={"S3OutputPath": endpoint.uri("board")},
    )
    began = time.time()

    described = endpoint.run(asked)

    members = ("DebugHookConfig", "DebugRuleConfigurations", "ProfilerConfig")
    members += ("ProfilerRuleConfigurations", "TensorBoardOutputConfig")
    assert {key: described[key] for key in members} == {key: asked[key] for key in members}
    assert described["ProfilingStatus"] == "Enabled"
    assert statuses(described) == {"nan": "NoIssuesFound", "odd": "Error", "overfit": "Error"}
    assert statuses(described, "Profiler") == {"report": "Error"}
    _, odd, overfit = described["DebugRuleEvaluationStatuses"]
    assert overfit["StatusDetails"].startswith("NotEvaluated: needs ")
    (report,) = described["ProfilerRuleEvaluationStatuses"]
    assert "ProfilerReport" in report["StatusDetails"]
    assert "is not a known rule; got 'NoSuchRule'" in odd["StatusDetails"]
    assert len(odd["StatusDetails"]) <= 1024
    assert odd["LastModifiedTime"].timestamp() >= began - 1


def test_rule_is_a_processing_job_that_can_be_described(endpoint: Endpoint) -> None:
    asked = request(endpoint, DebugRuleConfigurations=[rule("not_a.number", "NonFinite")])

    described = endpoint.run(asked)

    (status,) = described["DebugRuleEvaluationStatuses"]
    arn = status["RuleEvaluationJobArn"]
    assert ":processing-job/" in arn
    job = endpoint.describe(arn.rpartition("/")[2], processing=True)
    assert job["ProcessingJobArn"] == arn
    assert job["TrainingJobArn"] == described["TrainingJobArn"]
    assert job["AppSpecification"] == {"ImageUri": IMAGE}
    assert job["Environment"] == {"rule_to_invoke": "NonFinite"}
    assert job["ProcessingJobStatus"] == "Completed"


def test_configuration_lies_in_the_container_and_outputs_go_to_s3(endpoint: Endpoint) -> None:
    script = (
        "cd /opt/ml/input/config; cat debughookconfig.json > ../../output/tensors/hook;"
        "cat profilerconfig.json > ../../output/profiler/profiler;"
        "cat tensorboardoutputconfig.json > ../../output/tensorboard/board"
    )
    hook = {
        "S3OutputPath": endpoint.uri("debug"),
        "HookParameters": {"save_interval": "1"},
        "CollectionConfigurations": [{"CollectionName": "gradients"}],
    }
    asked = request(
        endpoint,
        script,
        DebugHookConfig=hook,
        ProfilerConfig={
            "S3OutputPath": endpoint.uri("profile"),
            "ProfilingIntervalInMilliseconds": 1000,
        },
        TensorBoardOutputConfig={"S3OutputPath": endpoint.uri("board")},
    )

    name = endpoint.run(asked)["TrainingJobName"]

    def uploaded(key: str) -> dict[str, Any]:
        path = f"{endpoint.prefix}/{key}"
        answer = endpoint.client("s3").get_object(Bucket=endpoint.bucket, Key=path)
        content: dict[str, Any] = json.loads(answer["Body"].read())
        return content

    assert uploaded(f"debug/{name}/debug-output/hook") == {
        "LocalPath": "/opt/ml/output/tensors",
        **hook,
    }
    profiler = uploaded(f"profile/{name}/profiler-output/profiler")
    assert profiler["ProfilingParameters"] == {
        "ProfilerEnabled": True,
        "LocalPath": "/opt/ml/output/profiler",
    }
    board = uploaded(f"board/{name}/tensorboard-output/board")
    assert board["LocalPath"] == "/opt/ml/output/tensorboard"


@pytest.mark.parametrize("writes", [False, True], ids=["no hook", "a hook"])
def test_a_log_says_which_tensors_were_asked_for_and_not_saved(
    endpoint: Endpoint, writes: bool
) -> None:
    script = "echo x > /opt/ml/output/tensors/rank-0" if writes else "true"
    hook = {
        "S3OutputPath": endpoint.uri("debug"),
        "CollectionConfigurations": [{"CollectionName": "gradients"}],
    }

    described = endpoint.run({**endpoint.training_request(script), "DebugHookConfig": hook})

    found = endpoint.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs",
        logStreamNamePrefix=f"{described['TrainingJobName']}/",
    )
    lines = "\n".join(event["message"] for event in found["events"])
    said = "DebugHookConfig requests the collections gradients, but nothing was saved"
    assert (said in lines) is not writes


def test_fired_rule_says_so_in_the_services_words_and_stops_the_job(endpoint: Endpoint) -> None:
    asked = request(
        endpoint,
        training(bad=5, last=600),
        DebugRuleConfigurations=[
            rule("nan", "NonFinite", action_json=STOP),
            rule("overfit", "Overfit"),
        ],
    )

    described = endpoint.run(asked)

    assert described["TrainingJobStatus"] == "Stopped"
    assert statuses(described) == {"nan": "IssuesFound", "overfit": "Error"}
    details = described["DebugRuleEvaluationStatuses"][0]["StatusDetails"]
    assert details.startswith(
        "RuleEvaluationConditionMet: Evaluation of the rule NonFinite at step 9 resulted in the condition being met\n"
    )
    arn = described["DebugRuleEvaluationStatuses"][0]["RuleEvaluationJobArn"]
    job = endpoint.describe(arn.rpartition("/")[2], processing=True)
    assert job["ExitMessage"] == details


@pytest.mark.slow
def test_stop_finds_its_job_by_prefix_and_none_where_two_match(endpoint: Endpoint) -> None:
    stem = endpoint.name("pair")
    stop = json.dumps([{"name": "stoptraining", "training_job_prefix": stem}])
    asked = request(
        endpoint,
        training(bad=3, last=12),
        TrainingJobName=f"{stem}-a",
        DebugRuleConfigurations=[rule("nan", "NonFinite", action_json=stop)],
    )
    other = endpoint.start(
        {**endpoint.training_request("sleep 60"), "TrainingJobName": f"{stem}-b"}
    )
    endpoint.reaches(other, "Training")

    described = endpoint.run(asked)

    assert described["TrainingJobStatus"] == "Completed"
    assert statuses(described) == {"nan": "IssuesFound"}
    endpoint.sagemaker.stop_training_job(TrainingJobName=other)
    endpoint.finished(other)


@pytest.mark.slow
def test_mail_action_reaches_the_topic(endpoint: Endpoint) -> None:
    mail = '[{\\"name\\": \\"email\\", \\"endpoint\\": \\"someone@example.com\\"}]'  # as the SDK v2 writes it
    asked = request(
        endpoint,
        training(bad=2),
        DebugRuleConfigurations=[rule("nan", "NonFinite", action_json=mail)],
    )

    endpoint.run(asked)

    sns = endpoint.client("sns")
    found = wait_until(
        lambda: [each["Endpoint"] for each in sns.list_subscriptions()["Subscriptions"]],
        lambda endpoints: "someone@example.com" in endpoints,
        clock=endpoint.clock,
        what="a subscription",
    )
    assert found
    topics = [each["TopicArn"] for each in sns.list_topics()["Topics"]]
    assert any(each.endswith(":SMDebugRules") for each in topics)


def test_profiler_rules_can_be_changed_while_the_job_runs(endpoint: Endpoint) -> None:
    asked = request(endpoint, training(last=600), DebugHookConfig={"S3OutputPath": endpoint.uri()})
    name = endpoint.start(asked)
    endpoint.reaches(name, "Training")

    endpoint.sagemaker.update_training_job(
        TrainingJobName=name, ProfilerRuleConfigurations=[rule("time", "MaxInitializationTime")]
    )
    wait_until(
        lambda: statuses(endpoint.describe(name), "Profiler"),
        lambda found: found == {"time": "InProgress"},
        clock=endpoint.clock,
        what="the rule's status",
    )
    arn = endpoint.describe(name)["ProfilerRuleEvaluationStatuses"][0]["RuleEvaluationJobArn"]
    endpoint.sagemaker.stop_processing_job(ProcessingJobName=arn.rpartition("/")[2])
    wait_until(
        lambda: statuses(endpoint.describe(name), "Profiler"),
        lambda found: found == {"time": "Stopped"},
        clock=endpoint.clock,
        what="the rule's stop",
    )
    endpoint.sagemaker.stop_training_job(TrainingJobName=name)
    assert statuses(endpoint.finished(name), "Profiler") == {"time": "Stopped"}
