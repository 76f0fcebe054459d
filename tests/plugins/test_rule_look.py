"""Look after look at a job whose services fail here and there: what was found is not lost, the stop is sent."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import pytest
from botocore.exceptions import ClientError

from trainyard.errors import RejectedRequestError
from trainyard.rules.watch_plan import WatchPlan, with_idle_rule
from trainyard.sagemaker_api.rule_stop import RuleStop
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.triggers.answers import Answers, is_refusal
from trainyard_airflow.triggers.renewed_clients import RenewedClients
from trainyard_airflow.triggers.rule_look import RuleLook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
OURS = {"model": "gpt", "precision": "bf16"}
"""Conf of a script that is known to skip no steps."""
PLAN = WatchPlan(rules=("NonFinite",), conf=OURS)
STREAM = "watched/checkpoints-statistics/0001.algo-1/"
STATISTICS = "watched/checkpoints/statistics/rank-00000.attempt-0001.part-{part:04d}.jsonl"


def refused(code: str, message: str = "", *, status: int = 400) -> ClientError:
    """Return what the client raises for a refusal."""
    told = {"Code": code, "Message": message}
    answer: Any = {"Error": told, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Operation")


@dataclass
class Body:
    """A streamed answer."""

    content: bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> bytes:
        return self.content


@dataclass
class Services:
    """SageMaker and S3 with one job; an operation in `fails` is refused."""

    status: str = "InProgress"
    hyperparameters: dict[str, str] = field(default_factory=dict)
    ended: str = ""
    """In what the job ends when it is asked to stop, if it is not stopped by that."""
    files: dict[str, bytes] = field(default_factory=dict)
    trains_since: float | None = None
    """When the instances of a job whose hosts upload their statistics began to train."""
    documents: dict[str, Any] = field(default_factory=dict)
    tags: list[dict[str, str]] = field(default_factory=list)
    evaluations: list[dict[str, str]] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def _ask(self, operation: str) -> None:
        self.asked.append(operation)
        if operation in self.fails:
            raise refused("AccessDenied", operation)

    async def describe_training_job(self, **_: Any) -> dict[str, Any]:
        since, uri = self.trains_since, f"s3://bucket/{STREAM.partition('0001.')[0]}"
        trains = {"Status": "Training", "StartTime": datetime.fromtimestamp(since or 0, UTC)}
        shipped = {
            "Environment": {"TRAINYARD_STATISTICS_S3_URI": uri},
            "SecondaryStatusTransitions": [trains],
        }
        return {
            **({} if since is None else shipped),
            "TrainingJobName": "job",
            "TrainingJobArn": "arn:aws:sagemaker:us-east-1:111122223333:training-job/job",
            "TrainingJobStatus": self.status,
            "SecondaryStatus": "Training" if self.status == "InProgress" else self.status,
            "CreationTime": CREATED,
            "HyperParameters": self.hyperparameters,
            "DebugRuleEvaluationStatuses": self.evaluations,
            "TrainingStartTime": CREATED,
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "CheckpointConfig": {"S3Uri": "s3://bucket/watched/checkpoints"},
        }

    async def stop_training_job(self, **_: Any) -> None:
        self._ask("stop_training_job")
        if self.ended:
            self.status = self.ended
            raise refused("ValidationException", f"cannot stop a job in status {self.ended}")
        self.status = "Stopped"

    async def add_tags(self, *, Tags: list[dict[str, str]], **_: Any) -> None:  # noqa: N803
        self._ask("add_tags")
        self.tags += Tags

    async def list_tags(self, **_: Any) -> dict[str, Any]:
        return {"Tags": self.tags}

    def get_paginator(self, _: str) -> Services:
        return self

    async def paginate(self, *, Prefix: str, **more: Any) -> AsyncIterator[dict[str, Any]]:  # noqa: N803
        yield await self.list_objects_v2(Prefix=Prefix, **more)

    async def list_objects_v2(
        self,
        *,
        Prefix: str,  # noqa: N803
        Delimiter: str = "",  # noqa: N803
        StartAfter: str = "",  # noqa: N803
        **_: Any,
    ) -> dict[str, Any]:
        keys = [key for key in sorted(self.files) if key.startswith(Prefix) and key > StartAfter]
        if Delimiter:
            return {"CommonPrefixes": [{"Prefix": STREAM}] if keys else []}
        return {"Contents": [{"Key": key, "Size": len(self.files[key])} for key in keys]}

    async def get_object(self, *, Key: str, Range: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803
        if not Range:
            return {"Body": Body(self.files[Key])}
        start, _, end = Range.removeprefix("bytes=").partition("-")
        self._ask(f"get {Key[-10:-6]}:{start}")
        return {"Body": Body(self.files[Key][int(start) : int(end) + 1])}

    async def put_object(self, *, Key: str, Body: bytes, **_: Any) -> None:  # noqa: N803
        self._ask("put_object")
        self.documents[Key] = json.loads(Body)


def statistics(*, bad: int = 3, **values: float) -> dict[str, bytes]:
    """Return a rank's file: four steps with these values, NaN at `bad`."""
    head: dict[str, Any] = {"format": "trainyard-statistics", "version": 1, "rank": 0}
    head |= {"world_size": 1, "attempt": 1, "resumed_at": 0, "tensors": {}}
    lines = [{**head, "time": CREATED.timestamp() + 1}]
    for step in range(1, 5):
        loss = "nan" if step == bad else 1.0
        told = {"kind": "step", "step": step, "time": CREATED.timestamp() + 1 + step, "loss": loss}
        lines.append({**told, **values})
    return {
        STATISTICS.format(part=1): b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    }


def shipped(began: float, *ages: float) -> dict[str, bytes]:
    """Return one object per step, as a host uploads them; the steps ended so many seconds ago."""
    head: dict[str, Any] = {"format": "trainyard-statistics", "version": 1, "rank": 0}
    head |= {"world_size": 1, "attempt": 1, "resumed_at": 0, "tensors": {}, "time": began}
    found = {}
    for step, age in enumerate(ages, 1):
        told = {"kind": "step", "step": step, "time": time.time() - age, "loss": 1.0}
        lines = [head, told] if step == 1 else [told]
        content = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
        name = {"file": "rank-00000.attempt-0001.part-0001.jsonl", "bytes": len(content)}
        found[f"{STREAM}{step:08d}.bundle"] = json.dumps(name).encode() + b"\n" + content
    return found


def looking(services: Services, plan: WatchPlan = PLAN) -> RuleLook:
    """Return a look whose clients are these services."""
    clients = RenewedClients(ConnectionArguments(), "sagemaker", "s3")
    clients._by_service = {"sagemaker": services, "s3": services}
    return RuleLook("job", plan, clients, gives_up_at=0.0)


def looks(look: RuleLook, count: int = 2) -> dict[str, Any] | None:
    """Look so often, also after a refusal; return what the last look fires."""

    async def all_of_them() -> dict[str, Any] | None:
        told = None
        for _ in range(count):
            try:
                told = await look.now()
            except ClientError:
                told = None
        return told

    return asyncio.run(all_of_them())


def test_idle_accelerators_stop_the_job_for_money_and_not_by_a_verdict() -> None:
    head, began = {"format": "trainyard-statistics", "version": 1}, CREATED.timestamp() + 1
    head |= {"rank": 0, "world_size": 1, "attempt": 1, "resumed_at": 0, "time": began}
    lines = [{**head, "tensors": {}}]
    for step in range(1, 9):
        at = {"step": step, "time": began + 60 * step}
        lines.append({"kind": "host", **at, "gpus": [{"utilization_percent": 0}]})
        lines.append({"kind": "step", **at, "loss": 1.0, "step_seconds": 60})
    content = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    services = Services(files={STATISTICS.format(part=1): content}, fails={"stop_training_job"})
    plan = WatchPlan(rules=with_idle_rule((), 5))
    looks(looking(services, plan), 1)
    services.fails.clear()

    looks(looking(services, plan), 1)  # another watcher, which reads everything again
    told = looks(looking(services, plan), 1)

    assert services.status == "Stopped"
    assert StopCause.IDLE.tag in services.tags
    assert RuleStop.from_tags(services.tags) is None
    assert told is not None
    assert (told["watched"]["stopped_by"]["rule"], told["watched"]["stopped_by"]["step"]) == (
        "IdleAccelerators",
        6,
    )


@pytest.mark.parametrize(
    ("silence", "found"), [(100.0, []), (170.0, ["Stalled"])], ids=["upload due", "hang"]
)
def test_silence_of_an_old_job_is_no_hang_until_its_upload_is_late(
    silence: float, found: list[str]
) -> None:
    now = time.time()
    files = shipped(now - silence - 3, silence + 2, silence + 1, silence)
    look = looking(Services(files=files, trains_since=now - 7200), WatchPlan(rules=("Stalled",)))

    looks(look, 1)

    assert [each.name for each in look.findings.found] == found


def test_silence_is_not_judged_while_objects_are_left_to_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainyard_airflow.triggers.synced_statistics.MOST_BYTES", 1)
    began = time.time() - 600
    files = shipped(began, *(float(age) for age in range(590, 0, -10)))
    look = looking(Services(files=files, trains_since=began), WatchPlan(rules=("Stalled",)))

    looks(look, 1)

    assert look._live is not None
    assert look._live.num_records == 1 + len(files)
    assert look.findings.found == []


def test_neither_document_nor_tag_keeps_a_job_from_its_stop() -> None:
    services = Services(files=statistics(), fails={"put_object", "add_tags"})
    look = looking(services)

    assert looks(look, 1) is None
    assert (services.status, services.asked[-1]) == ("Stopped", "stop_training_job")

    services.fails.clear()
    told = looks(look, 1)
    assert told is not None
    assert told["watched"]["stopped_by"]["step"] == 3
    assert {"Key": "trainyard:stopped-by-rule", "Value": "NonFinite@3"} in services.tags
    document = services.documents["out/job/rule-output/rules.json"]
    assert document["stopped_by"]["step"] == 3


def test_what_was_judged_before_a_failure_stops_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    files = statistics(bad=1)
    (data,) = files.values()
    first = data.index(b"\n", data.index(b"nan")) + 1
    monkeypatch.setattr("trainyard.rules.live.MOST_BYTES", first)
    services = Services(files=files, fails={f"get 0001:{first}"})
    look = looking(services)

    looks(look, 1)

    assert services.asked[:2] == ["get 0001:0", f"get 0001:{first}"]
    assert services.status == "Stopped"
    services.fails.clear()
    told = looks(look, 1)
    assert told is not None
    assert [each["step"] for each in told["watched"]["issues"]] == [1]
    assert told["watched"]["num_records"] == 5


def test_a_stop_that_is_refused_is_asked_for_again_and_the_issue_told_later() -> None:
    services = Services(files=statistics(), fails={"stop_training_job"})
    look = looking(services)

    looks(look, 1)
    assert [each.issue.step for each in look.findings._unreported] == [3]

    services.fails.clear()
    assert looks(look, 1) is None
    assert services.status == "Stopped"
    assert look.findings._unreported == []


def test_a_retry_is_judged_by_the_learning_rate_that_it_was_sent() -> None:
    conf = {"model": "mlp", "learning_rate": 1e-3, "warmup_steps": 0, "max_steps": 4}
    conf |= {"min_learning_rate_ratio": 1.0, "on_rule_stop": {"factor": 0.3}}
    services = Services(files=statistics(bad=0, learning_rate=3e-4), status="Completed")
    services.hyperparameters = {"learning_rate": "0.001"}

    told = looks(looking(services, WatchPlan(rules=("LRSanity",), conf=conf)), 1)

    assert told is not None
    assert [each["rule"] for each in told["watched"]["issues"]] == ["LRSanity"]


def evaluation(status: str, details: str = "") -> dict[str, str]:
    """Return what Describe says of the service's rule NonFinite."""
    told = {"RuleConfigurationName": "NonFinite", "RuleEvaluationStatus": status}
    return {**told, "StatusDetails": details}


def test_issue_of_the_services_own_rule_stops_the_job_and_ours_leaves_it_alone() -> None:
    said = "RuleEvaluationConditionMet: Evaluation of the rule NonFinite at step 3 resulted in the condition being met"
    services = Services(files=statistics(), evaluations=[evaluation("InProgress")])
    look = looking(services)
    assert looks(look, 1) is None
    assert services.status == "InProgress"

    services.evaluations = [evaluation("IssuesFound", said)]
    told = looks(look, 2)

    assert told is not None
    assert (told["watched"]["num_issues"], told["watched"]["stopped_by"]["step"]) == (1, 3)
    document = services.documents["out/job/rule-output/rules.json"]
    (verdict,) = document["verdicts"]
    assert (verdict["status"], verdict["num_issues"], verdict["not_evaluated"]) == (
        "IssuesFound",
        1,
        None,
    )
    assert verdict["issues"][0]["text"] == said
    assert document["worst"] == "error"
    assert document["service_rules"][0]["details"] == said


def test_an_evaluator_of_the_service_that_failed_says_nothing_of_the_training() -> None:
    services = Services(
        evaluations=[evaluation("Error", "InternalServerError")], status="Completed"
    )
    told = looks(looking(services), 1)
    assert told is not None
    assert told["watched"]["num_issues"] == 0


def test_a_rule_that_the_service_gave_up_is_judged_by_us_from_the_first_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = WatchPlan(rules=("NonFinite", "LRSanity"), conf=OURS)
    files = statistics(learning_rate=0.0)
    services = Services(files=files, evaluations=[evaluation("InProgress")])
    services.fails = {"stop_training_job"}
    look = looking(services, plan)
    looks(look, 1)
    found_before = [each.name for each in look.findings.found]
    assert found_before
    assert set(found_before) == {"LRSanity"}

    services.evaluations = [evaluation("Error", "InternalServerError")]
    looks(look, 2)
    services.fails.clear()
    told = looks(look, 2)

    assert told is not None
    names = [each["name"] for each in told["watched"]["issues"]]
    assert names == [*found_before, "NonFinite"], "nothing is told twice"
    document = services.documents["out/job/rule-output/rules.json"]
    verdict = next(each for each in document["verdicts"] if each["name"] == "NonFinite")
    assert (verdict["status"], verdict["num_issues"]) == ("IssuesFound", 1)
    (warning,) = [each for each in caplog.messages if "Debugger's evaluator" in each]
    assert "NonFinite failed" in warning
    assert "InternalServerError" in warning


@pytest.mark.parametrize("unknown", ["", "Waiting"])
def test_a_status_that_nobody_knows_keeps_no_job_from_its_stop(
    unknown: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = WatchPlan(rules=("NonFinite", {"rule": "NonFinite", "name": "ours"}), conf=OURS)
    services = Services(files=statistics(), evaluations=[evaluation(unknown)])

    told = looks(looking(services, plan), 2)

    assert told is not None
    assert told["watched"]["stopped_by"]["name"] == "ours"
    document = services.documents["out/job/rule-output/rules.json"]
    statuses = {each["name"]: each["status"] for each in document["verdicts"]}
    assert statuses == {"NonFinite": "InProgress", "ours": "IssuesFound"}
    assert sum(f"has the status {unknown!r}" in each for each in caplog.messages) == 1


@pytest.mark.parametrize("status", ["Failed", "Completed"])
def test_a_job_that_ended_by_itself_was_stopped_by_nothing(status: str) -> None:
    found_late = Services(files=statistics(), status=status)
    stopped_late = Services(files=statistics(), ended=status)

    for services, count in ((found_late, 1), (stopped_late, 2)):
        told = looks(looking(services), count)
        assert told is not None
        assert told["watched"]["stopped_by"] is None
        assert [each["step"] for each in told["watched"]["issues"]] == [3]
        assert [each["stopped_by"] for each in services.documents.values()] == [None]


def test_a_watcher_that_begins_again_knows_its_stop_by_the_tag() -> None:
    services = Services(files=statistics())
    looks(looking(services), 1)
    by_hand = Services(files=statistics(), status="Stopped")

    told, other = looks(looking(services), 1), looks(looking(by_hand), 1)

    assert told is not None
    assert told["watched"]["stopped_by"]["step"] == 3
    assert other is not None
    assert other["watched"]["stopped_by"] is None


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (refused("AccessDenied", status=403), True),
        (refused("ExpiredToken"), False),
        (refused("InternalError", status=500), False),
    ],
)
def test_old_credentials_and_faults_are_no_refusals(error: ClientError, is_one: bool) -> None:
    assert is_refusal(error) is is_one


def test_an_answer_between_refusals_begins_the_counting_anew() -> None:
    answers, no = Answers(where="job a"), refused("AccessDenied", status=403)

    waits = [answers.delay_s(no) for _ in range(4)]
    answers.answered()
    again = [answers.delay_s(no) for _ in range(4)]

    doubled = pytest.approx([1.0, 2.0, 4.0, 8.0], rel=0.2)  # jitter
    assert waits == doubled
    assert again == doubled
    with pytest.raises(RejectedRequestError, match="job a"):
        answers.delay_s(no)


def test_refusals_of_another_call_do_not_end_the_polls_of_a_job_that_is_described() -> None:
    answers, waits = Answers(where="job a"), []
    for _ in range(9):
        answers.described()
        waits.append(answers.delay_s(refused("AccessDenied", status=403)))

    assert waits[-3:] == pytest.approx([30.0] * 3, rel=0.2)


def test_a_service_that_is_away_is_asked_for_ever() -> None:
    answers = Answers(where="job a")
    waits = [answers.delay_s(OSError("away")) for _ in range(9)]

    assert waits[-3:] == pytest.approx([30.0] * 3, rel=0.2)


def test_findings_that_stop_nothing_are_written_while_the_job_trains_and_once_each() -> None:
    warns = WatchPlan(rules=({"rule": "NonFinite", "action": "warn"},), conf=OURS)
    services = Services(files=statistics())
    look = looking(services, warns)
    looks(look, count=3)
    (key,) = services.documents
    assert key == "out/job/rule-output/rules-so-far.json"
    assert services.documents[key]["worst"] == "error"
    assert services.asked.count("put_object") == 1
    services.status = "Completed"
    looks(look, count=1)
    assert set(services.documents) == {key, "out/job/rule-output/rules.json"}


def test_findings_that_cannot_be_written_yet_are_written_later() -> None:
    warns = WatchPlan(rules=({"rule": "NonFinite", "action": "warn"},), conf=OURS)
    services = Services(files=statistics(), fails={"put_object"})
    look = looking(services, warns)
    looks(look, count=2)
    services.fails.clear()
    looks(look, count=1)
    assert list(services.documents) == ["out/job/rule-output/rules-so-far.json"]
