"""Training plans: offers, purchase, windows on the plans' clock, and jobs that run in a window only.

On a real account these tests would buy instances for thousands of USD: the clock cannot be moved there, and the suite
stops before the first purchase.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_engine.testing import advance_plans

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

TYPE = "ml.p5.4xlarge"
DAY_S, LEAD_S = 86400.0, 1800.0


@pytest.fixture
def advance(endpoint: Endpoint, request: pytest.FixtureRequest) -> Callable[[float], None]:
    """Move the clock of the engine's plans ahead by seconds."""
    if request.config.getoption("--aws"):
        pytest.fail("a training plan costs thousands of USD: run this file against the engine")

    return partial(advance_plans, endpoint.sagemaker.meta.endpoint_url)


def offers(endpoint: Endpoint, **members: Any) -> list[dict[str, Any]]:
    """Return the offers for one instance of TYPE, unless the members have others."""
    asked = {
        "InstanceType": TYPE,
        "InstanceCount": 1,
        "DurationHours": 24,
        "TargetResources": ["training-job"],
        **members,
    }
    found = endpoint.sagemaker.search_training_plan_offerings(
        **{key: value for key, value in asked.items() if value is not None}
    )
    return list(found["TrainingPlanOfferings"])


def bought(endpoint: Endpoint, offer: dict[str, Any], **members: Any) -> str:
    """Buy an offer and return the name of the plan."""
    name = endpoint.name("plan")
    endpoint.sagemaker.create_training_plan(
        TrainingPlanName=name,
        TrainingPlanOfferingId=offer["TrainingPlanOfferingId"],
        **members,
    )
    return name


def described(endpoint: Endpoint, plan: str) -> dict[str, Any]:
    return dict(endpoint.sagemaker.describe_training_plan(TrainingPlanName=plan))


def until(moment: datetime) -> float:
    """Return the seconds until a moment."""
    return (moment - datetime.now(UTC)).total_seconds()


def active(endpoint: Endpoint, advance: Callable[[float], None], **members: Any) -> dict[str, Any]:
    """Buy a plan, move the clock to its begin, and return its description."""
    plan = bought(endpoint, offers(endpoint, **members)[0])
    advance(until(described(endpoint, plan)["StartTime"]) + 60)
    return described(endpoint, plan)


def job_in(endpoint: Endpoint, plan: dict[str, Any], script: str = "true", **members: Any) -> Any:
    """Return a request for one instance of a plan."""
    resources = {
        "InstanceType": TYPE,
        "InstanceCount": 1,
        "VolumeSizeInGB": 1,
        "TrainingPlanArn": plan["TrainingPlanArn"],
        **members.pop("resources", {}),
    }
    return endpoint.training_request(script, ResourceConfig=resources, **members)


def statuses(job: dict[str, Any]) -> list[str]:
    return [each["Status"] for each in job["SecondaryStatusTransitions"]]


def rejected(call: Callable[..., Any], **members: Any) -> dict[str, Any]:
    """Return the error with which the service rejects a call."""
    with pytest.raises(ClientError) as caught:
        call(**members)
    return dict(caught.value.response["Error"])


def test_offers_have_windows_within_the_search(endpoint: Endpoint) -> None:
    after = datetime.now(UTC) + timedelta(days=3)
    found = offers(endpoint, DurationHours=48, StartTimeAfter=after, InstanceCount=2)

    assert found
    for offer in found:
        windows = offer["ReservedCapacityOfferings"]
        assert offer["TargetResources"] == ["training-job"]
        assert (offer["DurationHours"], offer["DurationMinutes"]) == (48, 0)
        assert float(offer["UpfrontFee"]) > 0
        assert offer["CurrencyCode"] == "USD"
        assert all(each["StartTime"] >= after for each in windows)
        assert {(each["InstanceType"], each["InstanceCount"]) for each in windows} == {(TYPE, 2)}
        lengths = [each["EndTime"] - each["StartTime"] for each in windows]
        assert sum(lengths, timedelta(0)) == timedelta(hours=48)


def test_search_without_a_type_or_with_reversed_times_is_rejected(endpoint: Endpoint) -> None:
    search = endpoint.sagemaker.search_training_plan_offerings
    now = datetime.now(UTC)

    nothing = rejected(search, DurationHours=24)
    reversed_times = rejected(
        search, InstanceType=TYPE, StartTimeAfter=now, EndTimeBefore=now - timedelta(days=1)
    )

    assert nothing["Code"] == "ValidationException"
    assert "StartTimeAfter must be earlier" in reversed_times["Message"]


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"InstanceCount": 3}, id="count"),
        pytest.param({"DurationHours": 183 * 24}, id="too-long"),
        pytest.param({"EndTimeBefore": datetime(2026, 1, 1, tzinfo=UTC)}, id="ends-too-late"),
    ],
)
def test_search_without_a_match_finds_nothing(endpoint: Endpoint, members: Any) -> None:
    assert offers(endpoint, **members) == []


def test_bought_plan_is_scheduled_active_and_expired(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    offer = offers(endpoint, InstanceCount=2)[0]
    plan = bought(endpoint, offer, Tags=[{"Key": "team", "Value": "research"}])
    scheduled = described(endpoint, plan)

    advance(until(scheduled["StartTime"]) + 60)
    begun = described(endpoint, scheduled["TrainingPlanArn"])
    advance(DAY_S)
    ended = described(endpoint, plan)

    assert (scheduled["Status"], begun["Status"], ended["Status"]) == (
        "Scheduled",
        "Active",
        "Expired",
    )
    assert scheduled["UpfrontFee"] == offer["UpfrontFee"]
    assert scheduled["EndTime"] - scheduled["StartTime"] == timedelta(days=1)
    counts = ("TotalInstanceCount", "AvailableInstanceCount", "InUseInstanceCount")
    assert [scheduled[each] for each in counts] == [2, 0, 0]
    assert [begun[each] for each in counts] == [2, 2, 0]
    tags = endpoint.sagemaker.list_tags(ResourceArn=scheduled["TrainingPlanArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "research"}]


def test_offer_is_bought_once_and_a_name_is_used_once(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    create = endpoint.sagemaker.create_training_plan
    first, second = offers(endpoint), offers(endpoint)
    plan = bought(endpoint, first[0])

    again = rejected(
        create,
        TrainingPlanName=endpoint.name(),
        TrainingPlanOfferingId=first[0]["TrainingPlanOfferingId"],
    )
    taken = rejected(
        create, TrainingPlanName=plan, TrainingPlanOfferingId=second[0]["TrainingPlanOfferingId"]
    )
    advance(DAY_S)
    late = rejected(
        create,
        TrainingPlanName=endpoint.name(),
        TrainingPlanOfferingId=second[0]["TrainingPlanOfferingId"],
    )

    assert [each["Code"] for each in (again, taken, late)] == [
        "ResourceNotFound",
        "ResourceInUse",
        "ResourceNotFound",
    ]


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("describe_training_plan", {"TrainingPlanName": "nobody-made-this"}),
        (
            "describe_training_plan_extension_history",
            {
                "TrainingPlanArn": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/nobody-made-this"
            },
        ),
        ("extend_training_plan", {"TrainingPlanExtensionOfferingId": "tpeo-nobody"}),
        (
            "describe_reserved_capacity",
            {
                "ReservedCapacityArn": "arn:aws:sagemaker:us-east-1:123456789012:reserved-capacity/nobody"
            },
        ),
    ],
)
def test_unknown_plan_is_not_found(endpoint: Endpoint, operation: str, members: Any) -> None:
    assert rejected(getattr(endpoint.sagemaker, operation), **members)["Code"] == "ResourceNotFound"


def test_list_filters_sorts_and_pages(endpoint: Endpoint, advance: Callable[[float], None]) -> None:
    begun = active(endpoint, advance)["TrainingPlanName"]
    later = [bought(endpoint, each) for each in offers(endpoint)[:2]]

    def names(**members: Any) -> list[str]:
        pages = endpoint.sagemaker.get_paginator("list_training_plans").paginate(
            PaginationConfig={"PageSize": 1}, **members
        )
        found = [each["TrainingPlanName"] for p in pages for each in p["TrainingPlanSummaries"]]
        return [each for each in found if each in {begun, *later}]

    assert names(SortBy="StartTime", SortOrder="Ascending") == [begun, *later]
    assert names(Filters=[{"Name": "Status", "Value": "Active"}]) == [begun]
    assert sorted(names(StartTimeAfter=datetime.now(UTC))) == sorted(later)


def test_extension_moves_the_end_and_is_in_the_history(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    plan = active(endpoint, advance)
    arn = plan["TrainingPlanArn"]
    found = endpoint.sagemaker.search_training_plan_offerings(TrainingPlanArn=arn, DurationHours=72)
    (offer,) = found["TrainingPlanExtensionOfferings"]

    made = endpoint.sagemaker.extend_training_plan(
        TrainingPlanExtensionOfferingId=offer["TrainingPlanExtensionOfferingId"]
    )["TrainingPlanExtensions"]

    history = endpoint.sagemaker.describe_training_plan_extension_history(TrainingPlanArn=arn)
    longer = described(endpoint, arn)
    assert found["TrainingPlanOfferings"] == []
    assert longer["EndTime"] - plan["EndTime"] == timedelta(days=3)
    assert longer["DurationHours"] == 96
    assert [each["Status"] for each in made] == ["Scheduled"]
    assert [
        each["TrainingPlanExtensionOfferingId"] for each in history["TrainingPlanExtensions"]
    ] == [offer["TrainingPlanExtensionOfferingId"]]


def test_ultra_servers_are_reserved_whole_with_spares(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    servers = {"UltraServerType": "ml.u-p6e-gb200x72", "UltraServerCount": 2}
    offer = offers(endpoint, InstanceType=None, InstanceCount=None, **servers)[0]
    plan = described(endpoint, bought(endpoint, offer, SpareInstanceCountPerUltraServer=2))
    advance(until(plan["StartTime"]) + 60)
    arn = plan["ReservedCapacitySummaries"][0]["ReservedCapacityArn"]

    capacity = endpoint.sagemaker.describe_reserved_capacity(ReservedCapacityArn=arn)
    listed = endpoint.sagemaker.list_ultra_servers_by_reserved_capacity(ReservedCapacityArn=arn)

    assert capacity["ReservedCapacityType"] == "UltraServer"
    assert (capacity["TotalInstanceCount"], capacity["AvailableInstanceCount"]) == (36, 32)
    assert capacity["UltraServerSummary"]["UltraServerCount"] == 2
    assert [each["HealthStatus"] for each in listed["UltraServers"]] == ["OK", "OK"]
    assert [each["ConfiguredSpareInstanceCount"] for each in listed["UltraServers"]] == [2, 2]


def test_capacity_of_single_instances_has_no_ultra_servers(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    del advance  # a plan is bought: not on a real account
    plan = described(endpoint, bought(endpoint, offers(endpoint)[0]))
    arn = plan["ReservedCapacitySummaries"][0]["ReservedCapacityArn"]
    listed = endpoint.sagemaker.list_ultra_servers_by_reserved_capacity(ReservedCapacityArn=arn)
    assert listed["UltraServers"] == []


@pytest.mark.parametrize(
    ("resources", "members", "message"),
    [
        ({"InstanceType": "ml.p5.48xlarge"}, {}, "does not match ml.p5.4xlarge"),
        ({"InstanceCount": 2}, {}, "needs 2 instances"),
        (
            {},
            {
                "EnableManagedSpotTraining": True,
                "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 600},
            },
            "EnableManagedSpotTraining",
        ),
    ],
    ids=["type", "count", "spot"],
)
def test_job_that_does_not_fit_its_plan_is_rejected(
    endpoint: Endpoint,
    advance: Callable[[float], None],
    resources: Any,
    members: Any,
    message: str,
) -> None:
    plan = active(endpoint, advance)
    request = job_in(endpoint, plan, resources=resources, **members)
    error = rejected(endpoint.sagemaker.create_training_job, **request)
    assert error["Code"] == "ValidationException"
    assert message in error["Message"]


def test_plan_of_another_resource_or_of_the_past_takes_no_job(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    create = endpoint.sagemaker.create_training_job
    cluster = active(endpoint, advance, TargetResources=["hyperpod-cluster"])
    foreign = rejected(create, **job_in(endpoint, cluster))
    own = active(endpoint, advance)
    advance(DAY_S)
    expired = rejected(create, **job_in(endpoint, own))
    missing = rejected(
        create, **job_in(endpoint, {"TrainingPlanArn": own["TrainingPlanArn"] + "-nobody"})
    )

    assert "hyperpod-cluster" in foreign["Message"]
    assert "Expired" in expired["Message"]
    assert missing["Code"] == "ResourceNotFound"


def test_job_waits_until_its_plan_begins(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    plan = described(endpoint, bought(endpoint, offers(endpoint)[0]))
    name = endpoint.start(job_in(endpoint, plan))
    time.sleep(1)
    waiting = endpoint.describe(name)

    advance(until(plan["StartTime"]) + 60)
    job = endpoint.finished(name)

    assert (waiting["TrainingJobStatus"], waiting["SecondaryStatus"]) == ("InProgress", "Pending")
    assert job["TrainingJobStatus"] == "Completed"
    assert statuses(job)[:2] == ["Pending", "Starting"]
    listed = endpoint.sagemaker.list_training_jobs(
        TrainingPlanArnEquals=plan["TrainingPlanArn"], NameContains=name
    )
    assert [each["TrainingJobName"] for each in listed["TrainingJobSummaries"]] == [name]


@pytest.mark.slow
def test_job_waits_for_the_instances_that_another_job_uses(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    plan = active(endpoint, advance)
    first = endpoint.start(job_in(endpoint, plan, "sleep 600"))
    endpoint.reaches(first, "Training")
    second = endpoint.start(job_in(endpoint, plan))
    used = described(endpoint, plan["TrainingPlanName"])
    time.sleep(1)
    waiting = endpoint.describe(second)["SecondaryStatus"]

    endpoint.sagemaker.stop_training_job(TrainingJobName=first)

    assert (used["InUseInstanceCount"], used["AvailableInstanceCount"]) == (1, 0)
    assert waiting == "Pending"
    assert endpoint.finished(second)["TrainingJobStatus"] == "Completed"
    assert described(endpoint, plan["TrainingPlanName"])["InUseInstanceCount"] == 0


def test_pending_time_ends_a_job_in_an_active_plan_only(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    plan = described(endpoint, bought(endpoint, offers(endpoint)[0]))
    first = endpoint.start(job_in(endpoint, plan, "sleep 600"))
    advance(until(plan["StartTime"]) + 60)
    endpoint.reaches(first, "Training")
    limit = {"MaxRuntimeInSeconds": 600, "MaxPendingTimeInSeconds": 1800}
    second = endpoint.start(job_in(endpoint, plan, StoppingCondition=limit))
    time.sleep(1)
    assert endpoint.describe(second)["SecondaryStatus"] == "Pending"

    advance(1900)

    ended = endpoint.finished(second)
    endpoint.sagemaker.stop_training_job(TrainingJobName=first)
    assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Stopped", "Stopped")
    endpoint.finished(first)


def test_job_ends_before_its_plan_and_knows_when(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    plan = active(endpoint, advance)
    script = (
        "echo $SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP > /opt/ml/checkpoints/end; "
        "trap 'echo term > /opt/ml/checkpoints/term' TERM; while true; do sleep 0.1; done"
    )
    folder = endpoint.name("checkpoints")
    checkpoints = {"S3Uri": endpoint.uri(folder)}
    name = endpoint.start(job_in(endpoint, plan, script, CheckpointConfig=checkpoints))
    endpoint.reaches(name, "Training")
    time.sleep(3)

    advance(until(plan["EndTime"]) - LEAD_S + 1)
    job = endpoint.finished(name)

    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("CapacityError")
    assert plan["TrainingPlanArn"] in job["FailureReason"]
    s3, prefix = endpoint.client("s3"), f"{endpoint.prefix}/{folder}/"
    kept = s3.list_objects_v2(Bucket=endpoint.bucket, Prefix=prefix).get("Contents", [])
    assert [each["Key"].removeprefix(prefix) for each in kept] == ["end"]
    end = s3.get_object(Bucket=endpoint.bucket, Key=f"{prefix}end")["Body"].read()
    assert int(end) / 1000 == pytest.approx(plan["EndTime"].timestamp(), abs=1)


def test_job_continues_in_the_next_window_from_its_checkpoint(
    endpoint: Endpoint, advance: Callable[[float], None]
) -> None:
    split = next(
        each
        for each in offers(endpoint, DurationHours=48)
        if len(each["ReservedCapacityOfferings"]) == 2
    )
    plan = described(endpoint, bought(endpoint, split))
    windows = plan["ReservedCapacitySummaries"]
    script = "test -e /opt/ml/checkpoints/half && exit 0; touch /opt/ml/checkpoints/half; sleep 600"
    checkpoints = {"S3Uri": endpoint.uri(endpoint.name("checkpoints"))}
    name = endpoint.start(job_in(endpoint, plan, script, CheckpointConfig=checkpoints))
    gap = windows[1]["StartTime"] - windows[0]["EndTime"]
    advance(until(windows[0]["StartTime"]) + 60)
    endpoint.reaches(name, "Training")
    time.sleep(3)

    advance(DAY_S - 60)
    endpoint.reaches(name, "Pending")
    between = described(endpoint, plan["TrainingPlanName"])["Status"]
    advance(gap.total_seconds() + 60)
    job = endpoint.finished(name)

    assert between == "Scheduled"
    assert job["TrainingJobStatus"] == "Completed"
    assert statuses(job).count("Pending") == 2
    assert statuses(job).count("Starting") == 2
