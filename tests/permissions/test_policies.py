"""`trainyard permissions`: policies that IAM's evaluation reads as meant; the DAGs' tests run under them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sagemaker_engine.access.policy import Ask, Policy, refusal
from trainyard.permissions.__main__ import main
from trainyard.permissions.policies import Account, Feature, airflow_policy, execution_policy

ACCOUNT = Account(
    account="111122223333",
    region="eu-west-1",
    bucket="runs",
    role_arn="arn:aws:iam::111122223333:role/TrainyardExecution",
    deployment="team-a",
    sources=("s3://data/tables",),
    kms_keys=("arn:aws:kms:eu-west-1:111122223333:key/1",),
)
TAG = "trainyard:deployment"
JOB = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/dag-train-1"


def allows(document: dict[str, Any], action: str, resource: str = "*", **context: str) -> bool:
    keys = {key.replace("__", "/"): (value,) for key, value in context.items()}
    ask = Ask(action=action, resource=resource, context=keys)
    return refusal(ask, allowing=[Policy.from_document(document)]) is None


def tagged(kind: str, deployment: str) -> dict[str, str]:
    return {f"aws:{kind}Tag/{TAG}": deployment}


@pytest.mark.parametrize("action", ["StopTrainingJob", "AddTags"])
def test_a_deployment_can_end_and_tag_its_own_jobs_only(action: str) -> None:
    policy = airflow_policy(ACCOUNT)
    name = f"sagemaker:{action}"

    assert allows(policy, name, JOB, **tagged("Resource", "team-a"))
    assert not allows(policy, name, JOB, **tagged("Resource", "team-b"))
    assert not allows(policy, name, JOB)
    assert allows(airflow_policy(replace(ACCOUNT, deployment=None)), name, JOB)


def test_no_deployment_can_take_over_anothers_job() -> None:
    policy = airflow_policy(ACCOUNT)
    taken = {**tagged("Request", "team-a"), "aws:TagKeys": TAG}

    assert not allows(policy, "sagemaker:AddTags", JOB, **taken, **tagged("Resource", "team-b"))
    assert not allows(policy, "sagemaker:AddTags", JOB, **taken, **tagged("Resource", "team-a"))
    new = {"sagemaker:TaggingAction": "CreateTrainingJob"}
    assert allows(policy, "sagemaker:AddTags", JOB, **taken, **new)


def test_a_deployment_makes_jobs_with_its_own_tag_only() -> None:
    policy = airflow_policy(ACCOUNT)

    assert allows(policy, "sagemaker:CreateTrainingJob", JOB, **tagged("Request", "team-a"))
    assert not allows(policy, "sagemaker:CreateTrainingJob", JOB, **tagged("Request", "team-b"))


@pytest.mark.parametrize(
    "policy", [airflow_policy(ACCOUNT), execution_policy(ACCOUNT)], ids=["airflow", "jobs"]
)
def test_objects_of_another_deployment_are_out_of_reach(policy: dict[str, Any]) -> None:
    for action in ("GetObject", "PutObject", "DeleteObject"):
        assert allows(policy, f"s3:{action}", "arn:aws:s3:::runs/trainyard/team-a/x")
        assert not allows(policy, f"s3:{action}", "arn:aws:s3:::runs/trainyard/team-b/x")
    assert allows(policy, "s3:GetObject", "arn:aws:s3:::data/tables/part-0")
    assert not allows(policy, "s3:PutObject", "arn:aws:s3:::data/tables/part-0")
    assert not allows(policy, "s3:GetObject", "arn:aws:s3:::data/other")


def test_an_airflow_without_a_name_can_claim_the_bucket() -> None:
    marker = "arn:aws:s3:::runs/trainyard/unnamed-airflow.json"

    assert allows(airflow_policy(replace(ACCOUNT, deployment=None)), "s3:PutObject", marker)
    assert not allows(airflow_policy(ACCOUNT), "s3:PutObject", marker)


@pytest.mark.parametrize("deployment", [None, "team-a"])
def test_a_prefix_adds_its_keys_to_those_that_are_always_written(
    deployment: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    name, folder = (["--deployment", deployment], f"/{deployment}") if deployment else ([], "")
    assert main([*GIVEN, *name, "--prefix", "ml"]) == 0
    policies = json.loads(capsys.readouterr().out)

    for each in (policies["airflow"], policies["execution_role"]):
        for root in ("trainyard", "ml"):
            assert allows(each, "s3:PutObject", f"arn:aws:s3:::runs/{root}{folder}/x")
        assert not allows(each, "s3:PutObject", "arn:aws:s3:::runs/other/x")


def test_the_role_goes_to_sagemaker_and_to_no_other_service() -> None:
    policy = airflow_policy(ACCOUNT)
    service = "iam:PassedToService"

    assert allows(policy, "iam:PassRole", ACCOUNT.role_arn, **{service: "sagemaker.amazonaws.com"})
    assert not allows(policy, "iam:PassRole", ACCOUNT.role_arn, **{service: "ec2.amazonaws.com"})
    assert not allows(policy, "iam:PassRole", f"{ACCOUNT.role_arn}Admin")


def test_each_feature_adds_what_it_needs_and_nothing_else() -> None:
    def actions(*features: Feature) -> set[tuple[str, str]]:
        statements = airflow_policy(ACCOUNT, features)["Statement"]
        return {
            (action, resource)
            for each in statements
            for action in each["Action"]
            for resource in each["Resource"]
        }

    base = actions()
    names = {action for action, _ in base}
    assert not any("Tuning" in each or "AutoML" in each or "sns" in each for each in names)
    for feature in Feature:
        assert actions(feature) > base
    assert set.union(*(actions(each) for each in Feature)) <= actions(*Feature)


def test_no_statement_allows_every_action_or_shares_its_name() -> None:
    for document in (airflow_policy(ACCOUNT), execution_policy(ACCOUNT)):
        names = [each["Sid"] for each in document["Statement"]]
        assert len(set(names)) == len(names)
        assert all(name.isalnum() for name in names)
        assert not any("*" in action for each in document["Statement"] for action in each["Action"])


GIVEN = ["--bucket", "runs", "--role", ACCOUNT.role_arn, "--region", "eu-west-1"]


def test_the_templates_hold_the_printed_policies(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(name: str) -> dict[str, Any]:
        assert main([*GIVEN, "--feature", "tune", "--vpc", "--format", name]) == 0
        return dict(json.loads(capsys.readouterr().out))

    policies = printed("policies")
    stack, plan = printed("cloudformation")["Resources"], printed("terraform")["resource"]

    managed = stack["AirflowPolicy1"]["Properties"]
    assert managed["PolicyDocument"] == policies["airflow"]
    assert json.loads(plan["aws_iam_policy"]["airflow_1"]["policy"]) == policies["airflow"]
    role = stack["ExecutionRole"]["Properties"]
    assert role["Policies"][0]["PolicyDocument"] == policies["execution_role"]
    assert role["AssumeRolePolicyDocument"] == policies["execution_role_trust"]
    assert stack["Bucket"]["DeletionPolicy"] == "Retain"
    assert "ec2:CreateNetworkInterface" in json.dumps(policies["execution_role"])


ALL = [
    *(word for each in Feature for word in ("--feature", each.value)),
    *("--vpc", "--deployment", "team-a", "--source", "s3://raw/tables"),
    *("--kms-key", "arn:aws:kms:eu-west-1:111122223333:key/11111111-2222-3333-4444-555555555555"),
]


@pytest.mark.slow  # 10 s
@pytest.mark.parametrize("more", [[], ALL], ids=["fewest", "all"])
def test_cfn_lint_accepts_the_cloudformation_template(
    more: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*GIVEN, *more, "--format", "cloudformation"]) == 0
    template = tmp_path / "template.json"
    template.write_text(capsys.readouterr().out)
    bad = tmp_path / "bad.json"
    bad.write_text(template.read_text().replace('"Effect": "Allow"', '"Effect": "Maybe"'))

    def lint(file: Path) -> subprocess.CompletedProcess[str]:
        program = str(Path(sys.executable).with_name("cfn-lint"))
        command = [program, "--regions", "eu-west-1", "--", str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    accepted, refused = lint(template), lint(bad)
    assert (accepted.returncode, accepted.stdout) == (0, ""), accepted.stdout + accepted.stderr
    assert "'Maybe' is not one of" in refused.stdout
    assert refused.returncode != 0


@pytest.mark.parametrize("more", [[], ALL], ids=["fewest", "all"])
def test_every_reference_of_the_terraform_configuration_has_its_resource(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GIVEN, *more, "--format", "terraform"]) == 0
    text = capsys.readouterr().out
    resources = json.loads(text)["resource"]

    references = re.findall(r"\$\{([^}]+)\}", text)

    assert references
    for each in references:
        kind, name, attribute = each.split(".")
        assert name in resources[kind]
        assert attribute in {"id", "arn"}
    policies = [each["policy"] for each in resources["aws_iam_policy"].values()]
    assert all(json.loads(each)["Version"] == "2012-10-17" for each in policies)


def test_no_managed_policy_is_larger_than_iam_takes(capsys: pytest.CaptureFixture[str]) -> None:
    many = [f"arn:aws:kms:eu-west-1:111122223333:key/{number:036}" for number in range(9)]
    options = [word for each in many for word in ("--kms-key", each)]
    options += [word for each in Feature for word in ("--feature", each.value)]
    assert main([*GIVEN, *options, "--deployment", "a", "--format", "cloudformation"]) == 0

    resources = json.loads(capsys.readouterr().out)["Resources"].values()
    parts = [each for each in resources if each["Type"] == "AWS::IAM::ManagedPolicy"]
    documents = [each["Properties"]["PolicyDocument"] for each in parts]
    assert len(documents) > 1
    assert all(len("".join(json.dumps(each).split())) <= 6144 for each in documents)
    names = [each["Properties"]["ManagedPolicyName"] for each in parts]
    assert names == ["TrainyardAirflow-a-1", "TrainyardAirflow-a-2"][: len(names)]


def test_an_alias_is_no_key_for_iam(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--kms-key", "alias/runs"]) == 2
    assert "accepts the ARN of a key only, not an alias" in capsys.readouterr().err


def test_a_role_that_is_no_role_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN[:2], "--role", "TrainyardExecution", *GIVEN[4:]]) == 2
    assert "write the ARN of the jobs' execution role" in capsys.readouterr().err


def test_airflow_may_ask_for_digests_of_any_account_in_the_region_only() -> None:
    policy, action = airflow_policy(ACCOUNT), "ecr:BatchGetImage"

    assert allows(policy, action, "arn:aws:ecr:eu-west-1:763104351884:repository/pytorch")
    assert not allows(policy, action, "arn:aws:ecr:us-east-1:763104351884:repository/pytorch")
