"""Policies decide as IAM documents it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from sagemaker_engine.access.policy import Ask, Policy, PolicyError, refusal

TRAIN = Ask(
    action="sagemaker:CreateTrainingJob",
    resource="arn:aws:sagemaker:us-east-1:123456789012:training-job/a",
    context={
        "sagemaker:InstanceTypes": ("ml.p5.48xlarge", "ml.m5.large"),
        "sagemaker:NetworkIsolation": ("true",),
        "sagemaker:MaxRuntimeInSeconds": ("3600",),
        "aws:RequestTag/team": ("vision",),
    },
)


def policy(effect: str = "Allow", *, action: Any = "sagemaker:*", **more: Any) -> Policy:
    resource = {} if "NotResource" in more else {"Resource": "*"}
    statement = {"Effect": effect, "Action": action, **resource, **more}
    return Policy.from_document({"Version": "2012-10-17", "Statement": statement})


def allows(*policies: Policy, ask: Ask = TRAIN) -> bool:
    return refusal(ask, allowing=policies) is None


def test_nothing_is_allowed_that_no_policy_allows() -> None:
    why = refusal(TRAIN, allowing=[])

    assert why == "because no identity-based policy allows the sagemaker:CreateTrainingJob action"
    assert refusal(TRAIN, allowing=None) is None, "an identity that nobody gave policies"


def test_a_denial_wins_over_every_allowance() -> None:
    why = refusal(TRAIN, allowing=[policy(), policy("Deny")])
    assert why == "with an explicit deny in an identity-based policy"
    rail = refusal(TRAIN, allowing=[policy()], denying=[policy("Deny")])
    assert rail == "with an explicit deny in a service control policy"


@pytest.mark.parametrize(
    ("action", "is_allowed"),
    [
        ("sagemaker:CreateTrainingJob", True),
        ("sagemaker:createtrainingjob", True),
        ("sagemaker:Create*Job", True),
        ("sagemaker:CreateTrainingJo?", True),
        (["s3:*", "sagemaker:*"], True),
        ("sagemaker:CreateTraining", False),
        ("s3:*", False),
    ],
)
def test_actions_match_by_wildcards_and_in_any_case(action: Any, is_allowed: bool) -> None:
    assert allows(policy(action=action)) is is_allowed


@pytest.mark.parametrize(
    ("more", "is_allowed"),
    [
        ({"Resource": "arn:aws:sagemaker:*:123456789012:training-job/*"}, True),
        ({"Resource": "arn:aws:sagemaker:*:123456789012:processing-job/*"}, False),
        ({"NotResource": "arn:aws:s3:::*"}, True),
        ({"NotResource": "arn:aws:sagemaker:*"}, False),
    ],
)
def test_resources_match_by_wildcards(more: Any, is_allowed: bool) -> None:
    assert allows(policy(**more)) is is_allowed


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"StringEquals": {"aws:requesttag/team": "vision"}}, True),
        ({"StringEquals": {"aws:RequestTag/team": ["speech", "vision"]}}, True),
        ({"StringEquals": {"aws:RequestTag/owner": "vision"}}, False),
        ({"StringNotEquals": {"aws:RequestTag/owner": "vision"}}, True),
        ({"StringEqualsIfExists": {"aws:RequestTag/owner": "vision"}}, True),
        ({"Null": {"aws:RequestTag/owner": "true"}}, True),
        ({"Null": {"aws:RequestTag/team": True}}, False),
        ({"Bool": {"sagemaker:NetworkIsolation": True}}, True),
        ({"StringLike": {"sagemaker:InstanceTypes": "ml.p5.*"}}, False),
        ({"ForAnyValue:StringLike": {"sagemaker:InstanceTypes": "ml.p5.*"}}, True),
        ({"ForAllValues:StringLike": {"sagemaker:InstanceTypes": ["ml.p5*", "ml.m5*"]}}, True),
        ({"ForAllValues:StringLike": {"sagemaker:Absent": "x"}}, True),
        ({"ForAnyValue:StringLike": {"sagemaker:Absent": "x"}}, False),
        ({"ForAnyValue:StringNotEquals": {"sagemaker:Absent": "x"}}, False),
        ({"ForAllValues:StringNotEquals": {"sagemaker:Absent": "x"}}, True),
        ({"NumericLessThanEquals": {"sagemaker:MaxRuntimeInSeconds": "3600"}}, True),
        ({"NumericLessThanEquals": {"sagemaker:MaxRuntimeInSeconds": 3599}}, False),
    ],
)
def test_conditions_hold_as_documented(condition: Any, holds: bool) -> None:
    assert allows(policy(Condition=condition)) is holds


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ([], "policy: got .*a policy document is an object with a Statement"),
        ({"Statement": [1]}, r"Statement\[0\]: got 1"),
        ({"Statement": {"Effect": "Maybe", "Action": "*", "Resource": "*"}}, "write Allow or Deny"),
        ({"Statement": {"Effect": "Deny", "Action": "*"}}, "either Resource or NotResource"),
        (
            {"Statement": {"Effect": "Deny", "Action": "*", "Resource": "*", "Principal": "*"}},
            "Principal is not supported",
        ),
        (
            {"Statement": {"Effect": "Deny", "Action": "*", "Resource": "${aws:x}"}},
            "without policy variables",
        ),
        (
            {
                "Statement": {
                    "Effect": "Deny",
                    "Action": "*",
                    "Resource": "*",
                    "Condition": {"DateLessThan": {"aws:CurrentTime": "x"}},
                }
            },
            "DateLessThan is not supported",
        ),
        (
            {
                "Statement": {
                    "Effect": "Deny",
                    "Action": "*",
                    "Resource": "*",
                    "Condition": {"StringEquals": 5},
                }
            },
            r"Condition\.StringEquals: got 5",
        ),
    ],
)
def test_what_would_be_misread_is_refused(document: Any, names: str) -> None:
    with pytest.raises(PolicyError, match=names):
        Policy.from_document(document)


ACTIONS = st.sampled_from(["s3:GetObject", "s3:PutObject", "sagemaker:StopTrainingJob"])
POLICIES = st.builds(
    policy, st.sampled_from(["Allow", "Deny"]), action=st.sampled_from(["*", "s3:*", "s3:Get*"])
)


@given(ACTIONS, st.lists(POLICIES), POLICIES)
def test_a_further_denial_allows_nothing_more(
    action: str, policies: list[Policy], more: Policy
) -> None:
    ask = Ask(action=action)
    denial = Policy(tuple(each for each in more.statements if each.effect == "Deny"))

    assert not (allows(*policies, denial, ask=ask) and not allows(*policies, ask=ask))
    assert allows(*policies, ask=ask) == allows(*reversed(policies), ask=ask)
