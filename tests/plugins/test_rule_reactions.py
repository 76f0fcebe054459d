"""What follows a rule's stop beside a lower learning rate: bad batches left out, a human asked."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
from botocore.exceptions import ClientError

from tests.plugins.conftest import StateStore, UnreadableStore, UnwritableStore
from tests.plugins.test_check_rules import watched
from trainyard.errors import SpecError, ThrottledError
from trainyard.rules.rule_retry import (
    ASK,
    RetryRemedy,
    RuleRetry,
    read_retry,
    skipped_steps,
    steps_text,
)
from trainyard.rules.watch_plan import WatchPlan
from trainyard.sagemaker_api.rule_stop import RuleStop, remedy_of, remedy_tag
from trainyard.specs.monitoring import Occasion
from trainyard_airflow.jobs.rule_retry import EarlierStop, change_request
from trainyard_airflow.operators.rule_question import OPTIONS, answer_of, ask_human, question
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunningEngine

# One rank with a checkpoint at step 2; step 4 is NaN unless it is left out; tells where and without what it went on.
SCRIPT = """
import json, os, pathlib, signal, sys, time
hp = json.loads(os.environ["SM_HPS"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
root = pathlib.Path("/opt/ml/checkpoints")
folder = root / "statistics"
folder.mkdir(parents=True, exist_ok=True)
done = sorted(each.name for each in root.glob("step-*"))
attempt = 1 + len(list(folder.iterdir()))
skipped = str(hp.get("skip_steps") or "").split(",")
with (folder / f"rank-00000.attempt-{attempt:04d}.part-0001.jsonl").open("w", buffering=1) as file:
    def write(line):
        file.write(json.dumps({"time": time.time(), **line}) + "\\n")
    write({"format": "trainyard-statistics", "version": 1, "rank": 0, "world_size": 1, "attempt": attempt,
           "resumed_at": 0, "tensors": {}})
    for step in range(1, hp["last"] + 1):
        if str(step) in skipped:
            continue
        if step == 2:
            (root / "step-00000002").mkdir(exist_ok=True)
            (root / "step-00000002" / "manifest.json").write_text("{}")
        if step == 5:
            (root / "step-00000005").mkdir(exist_ok=True)
            (root / "step-00000005" / "manifest.json").write_text("{}")
        is_bad = step == 4 and hp.get("learning_rate", 1) > 0.01
        write({"kind": "step", "step": step, "loss": "nan" if is_bad else 5.0 / step,
               "learning_rate": hp.get("learning_rate", 0.001)})
        time.sleep(0.1)
print("went on from", done, "without", skipped)
"""
SKIP = {"action": "skip_batches"}
ASKING = {"action": "ask", "factor": 0.1, "timeout_s": 60, "default": "end"}


@pytest.mark.parametrize(
    ("step", "onset", "expected"),
    [
        (7, 5, [5, 6, 7]),
        (7, None, [7]),
        (7, 9, [7]),
        (40, 2, list(range(31, 41))),
        (1, 0, [1]),
        (0, 0, []),
    ],
)
def test_bad_steps_are_those_from_the_onset_on_and_not_many(
    step: int, onset: int | None, expected: list[int]
) -> None:
    assert list(skipped_steps(step, onset)) == expected


def test_steps_are_added_to_those_that_the_author_leaves_out() -> None:
    assert steps_text("3", [range(5, 8), range(9, 10)]) == "3,5:7,9"
    assert steps_text(None, [range(4, 5)]) == "4"


class MemoryBucket:
    """S3 with checkpoints of the steps 2, 4 and 6, that remembers what was copied."""

    def __init__(self) -> None:
        self.keys = [f"c/step-0000000{step}/manifest.json" for step in (2, 4, 6)]
        self.copied: list[str] = []

    def get_paginator(self, _: str) -> MemoryBucket:
        return self

    def paginate(self, *, Prefix: str, **_: Any) -> list[dict[str, Any]]:  # noqa: N803
        return [{"Contents": [{"Key": key} for key in self.keys if key.startswith(Prefix)]}]

    def copy(self, _: dict[str, str], bucket: str, name: str) -> None:
        self.copied.append(f"s3://{bucket}/{name}")


def changed(
    retry: RuleRetry, *stops: EarlierStop, **sent: str
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return facts, request and copies of the job after these stops."""
    s3 = MemoryBucket()
    request = {
        "HyperParameters": {"learning_rate": "0.5", **sent},
        "CheckpointConfig": {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/checkpoints"},
    }
    return change_request(s3, request, retry, stops=stops), request, s3.copied


def test_skipping_goes_on_before_the_onset_and_keeps_the_learning_rate() -> None:
    stop = EarlierStop(step=6, onset=5, checkpoints="s3://b/c")

    facts, request, copied = changed(RuleRetry(action=RetryRemedy.SKIP), stop, skip_steps='"1"')

    assert facts == {"rule_retries": 1, "skip_steps": "1,5:6", "resumes_at": 4}
    assert request["HyperParameters"] == {"learning_rate": "0.5", "skip_steps": '"1,5:6"'}
    assert request["CheckpointConfig"]["S3Uri"] == "s3://b/c-rule-retry-1/"
    assert copied == ["s3://b/c-rule-retry-1/step-00000004/manifest.json"]


def test_each_stop_keeps_the_remedy_that_a_human_chose_for_it() -> None:
    retry = RuleRetry(action=ASK, factor=0.1)
    first = EarlierStop(step=5, checkpoints="s3://b/c", chosen=RetryRemedy.LOWER)
    second = EarlierStop(step=6, onset=6, checkpoints="s3://b/c", chosen=RetryRemedy.SKIP)
    third = EarlierStop(step=9, checkpoints="s3://b/c-rule-retry-2", chosen=RetryRemedy.CONTINUE)

    facts, request, _ = changed(retry, first, second)
    assert (facts["rule_retries"], facts["learning_rate"], facts["skip_steps"]) == (2, 0.05, "6")
    assert request["CheckpointConfig"]["S3Uri"].endswith("-rule-retry-2/")

    facts, request, copied = changed(retry, first, second, third)
    assert (facts["learning_rate"], facts["skip_steps"], copied) == (0.05, "6", [])
    assert request["CheckpointConfig"]["S3Uri"] == third.checkpoints


@pytest.mark.parametrize("chosen", [None, RetryRemedy.END])
def test_a_cleared_task_whose_stop_was_left_at_that_goes_on_unchanged(
    chosen: RetryRemedy | None,
) -> None:
    stop = EarlierStop(step=5, checkpoints="s3://b/c", chosen=chosen)
    facts, request, copied = changed(RuleRetry(action=ASK), stop)
    assert facts == {"rule_retries": 0, "learning_rate": 0.5}
    assert (request["CheckpointConfig"]["S3Uri"], copied) == ("s3://b/c", [])


@pytest.mark.parametrize("step", [None, 0])
@pytest.mark.parametrize("action", [RetryRemedy.LOWER, RetryRemedy.SKIP])
def test_stop_without_a_step_goes_on_at_the_last_checkpoint(
    step: int | None, action: RetryRemedy
) -> None:
    stop = EarlierStop(step=step, onset=step, checkpoints="s3://b/c-rule-retry-1")
    facts, request, copied = changed(RuleRetry(action=action), stop)
    assert (request["CheckpointConfig"]["S3Uri"], copied) == (stop.checkpoints, [])
    assert not {"skip_steps", "resumes_at"} & set(facts)
    assert "skip_steps" not in request["HyperParameters"]


def test_human_is_asked_once_only() -> None:
    with pytest.raises(
        SpecError, match=r'most: .*second question.*; got 2; allowed: 1; set "most" to 1'
    ):
        read_retry({"action": "ask", "most": 2})


def test_what_is_no_question_is_refused() -> None:
    with pytest.raises(SpecError, match=r"(?s)action.*timeout_s.*default"):
        read_retry({"action": "pause", "timeout_s": 0, "default": "wait"})


def test_the_onset_of_a_stop_is_on_the_job_for_whoever_goes_on() -> None:
    stop = RuleStop(rule="LossSpike", step=84, onset=82)
    assert RuleStop.from_tags(stop.tags) == stop
    assert RuleStop.from_tags(RuleStop(rule="LossSpike", step=84).tags).onset is None  # type: ignore[union-attr]


def test_default_follows_where_nobody_answers() -> None:
    retry = RuleRetry(action=ASK, default=RetryRemedy.SKIP)
    said = {
        "chosen_options": [OPTIONS[RetryRemedy.LOWER]],
        "responded_by_user": {"id": "7", "name": "Eva"},
    }
    late = {"chosen_options": [OPTIONS[RetryRemedy.SKIP]], "timedout": True}

    verdict = {"step": 4}
    assert answer_of(said, retry, verdict) == (RetryRemedy.LOWER, "Eva")
    assert answer_of(late, retry, verdict) == (RetryRemedy.SKIP, "nobody within 1 day, 0:00:00")
    assert answer_of(late, retry, {"step": None})[0] is RetryRemedy.END


@pytest.mark.parametrize(("option", "step"), [("Pause", 4), (OPTIONS[RetryRemedy.SKIP], 0)])
def test_answer_that_was_not_offered_is_told_as_such(option: str, step: int) -> None:
    event = {"chosen_options": [option], "responded_by_user": {"name": "Eva"}}
    chosen, by = answer_of(event, RuleRetry(action=ASK), {"step": step})
    assert chosen is RetryRemedy.END
    assert by == f"the plan, because Eva chose {option!r}, which was not an option"


def test_question_without_a_step_offers_no_batches_to_leave_out() -> None:
    verdict = {
        "rule": "Overfit",
        "step": None,
        "evidence": "",
        "rules_uri": "",
        "last_checkpoint": None,
    }
    body = question(verdict, RuleRetry(action=ASK, default=RetryRemedy.SKIP))
    assert OPTIONS[RetryRemedy.SKIP] not in body
    assert "step(s) earlier" not in body
    assert body.rstrip().endswith("*End the training*.")


class ReactionSupervisor:
    """Airflow's process beside the task's, as far as the task talks to it."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.is_busy = False

    def send(self, msg: Any) -> None:
        if self.is_busy:
            raise ConnectionError("the API server is busy")
        self.got.append(msg)


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> ReactionSupervisor:
    """What takes the place of Airflow's supervisor, which is not there."""
    made = ReactionSupervisor()
    monkeypatch.setattr(
        "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", made, raising=False
    )
    return made


@pytest.fixture
def questions(supervisor: ReactionSupervisor) -> list[Any]:
    """The messages that reach the supervisor."""
    return supervisor.got


def test_question_has_the_evidence_the_choices_and_what_follows_without_an_answer(
    questions: list[Any], task: Any
) -> None:
    task.context["ti"].id = uuid.uuid4()
    verdict = {"rule": "NonFinite", "step": 4, "evidence": "the loss is nan", "rules_uri": "s3://r"}
    verdict["last_checkpoint"] = "s3://b/c/step-00000002"

    told: list[Any] = []
    with pytest.raises(TaskAwaitingInput) as parked:
        ask_human(
            task.context,
            verdict,
            RuleRetry(action=ASK, timeout_s=60),
            then="execute_answered",
            kwargs={"verdict": verdict},
            send=told.append,
            cost_usd=1.25,
        )

    (notice,) = told
    assert notice.occasion is Occasion.APPROVAL
    assert (notice.facts["step"], notice.facts["cost so far"]) == (4, "$1.25")
    assert str(notice.facts["next"]).endswith("within 1 min 00 s; otherwise: End the training")

    (asked,) = questions
    assert asked.subject == "Rule NonFinite stopped the training at step 4: how should it continue?"
    assert "the loss is nan" in asked.body
    assert "Without an answer within 0:01:00: *End the training*" in asked.body
    assert (asked.options, asked.defaults) == (list(OPTIONS.values()), ["End the training"])
    assert parked.value.timeout.total_seconds() == 60
    assert (parked.value.method_name, parked.value.kwargs) == (
        "execute_answered",
        {"verdict": verdict},
    )


@pytest.mark.parametrize("users", [(), ("7", "alice")], ids=["anybody", "two"])
def test_only_the_named_users_may_answer(
    questions: list[Any], task: Any, users: tuple[str, ...]
) -> None:
    task.context["ti"].id = uuid.uuid4()
    verdict = {"rule": "NonFinite", "step": 4, "evidence": "the loss is nan", "rules_uri": "s3://r"}
    retry = read_retry({"action": "ask", "users": list(users)})
    assert retry is not None

    with pytest.raises(TaskAwaitingInput):
        ask_human(
            task.context, {**verdict, "last_checkpoint": None}, retry, then="answered", kwargs={}
        )

    (asked,) = questions
    assert [each.id for each in asked.assigned_users] == list(users)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"action": "skip_batches", "users": ["7"]},
            'users: has an effect only if action is "ask"; got "action": "skip_batches"',
        ),
        ({"action": "ask", "users": ["7", " "]}, "users: names an empty user id"),
        ({"action": "ask", "users": "7"}, "users"),
    ],
    ids=["nobody is asked", "empty", "no list"],
)
def test_users_that_cannot_be_asked_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        read_retry(given)


@pytest.fixture
def stopped(aws_connection: RunningEngine, script: Any, task: Any) -> Any:
    """Return a function that has a job stopped at its NaN, and returns the operator whose job it was."""
    task.context["ti"].id = uuid.uuid4()

    def make(on_stop: dict[str, Any]) -> WatchedTrainingJobOperator:
        plan = WatchPlan(
            rules=("NonFinite",),
            conf={"model": "gpt", "precision": "bf16"},
            on_stop=on_stop,
            poll_interval_s=0.3,
        )
        spec = script(
            SCRIPT,
            hyperparameters={"last": 600, "learning_rate": 0.05},
            checkpoint_s3_uri=f"s3://{aws_connection.bucket}/watched/{uuid.uuid4().hex}",
        )
        train = WatchedTrainingJobOperator(task_id="train", spec=spec, watch=plan, deferrable=False)
        name = train.task_jobs(task.context).name_of(1)
        train.task_jobs(task.context).service.create(train.job_run(task.context).render(name)[0])
        assert watched(name, plan)["watched"]["stopped_by"]["step"] == 4
        train.spec["hyperparameters"]["last"] = 6
        return train

    return make


@pytest.mark.slow
@pytest.mark.engine
def test_retry_leaves_out_the_bad_batch_and_completes(stopped: Any, task: Any) -> None:
    train = stopped(SKIP)

    result = train.execute(task.context)

    assert (result["attempt"], result["status"]) == (2, "Completed")
    assert (result["skip_steps"], result["resumes_at"]) == ("4", 2)
    assert "verdict" not in result


@pytest.mark.slow
@pytest.mark.engine
def test_human_is_asked_and_the_training_goes_on_as_said(
    stopped: Any, task: Any, questions: list[Any]
) -> None:
    train = stopped(ASKING)
    with pytest.raises(TaskAwaitingInput) as parked:
        train.execute(task.context)
    (asked,) = [each for each in questions if isinstance(each, CreateHITLDetailPayload)]
    assert "the loss is nan" in asked.body
    assert parked.value.timeout.total_seconds() == 60
    assert train.task_jobs(task.context).of_attempt(2) is None, "nothing is paid meanwhile"

    said = {"chosen_options": ["Skip the bad batches"], "responded_by_user": {"name": "Eva"}}
    kwargs = {**parked.value.kwargs, "event": said}
    result = train.resume_execution(parked.value.method_name, kwargs, task.context)

    assert (result["attempt"], result["status"], result["skip_steps"]) == (2, "Completed", "4")
    jobs = train.task_jobs(task.context)
    assert remedy_of(jobs.service.tags(jobs.of_attempt(1).arn)) == "skip_batches"


@pytest.mark.slow
@pytest.mark.engine
def test_no_answer_in_time_ends_the_training_with_its_verdict(
    stopped: Any, task: Any, questions: list[Any]
) -> None:
    train = stopped(ASKING)
    with pytest.raises(TaskAwaitingInput) as parked:
        train.execute(task.context)

    event = {"chosen_options": ["End the training"], "timedout": True}
    kwargs = {**parked.value.kwargs, "event": event}
    result = train.resume_execution(parked.value.method_name, kwargs, task.context)

    assert result["ended_by"] == "rule"
    assert result["verdict"]["decided_by"] == "nobody within 0:01:00"
    assert train.task_jobs(task.context).of_attempt(2) is None


# Stands at the learning rate at which it is stopped, or ends at once by its own guard against NaN.
STANDING = """
import json, os, pathlib, sys, time
hp = json.loads(os.environ["SM_HPS"])
if hp["learning_rate"] > 0.01 and hp.get("guard"):
    pathlib.Path("/opt/ml/output/failure").write_text(
        "NonFiniteError: Training diverged: in step 4 (samples 0 to 1 of the run's order) the loss is nan")
    sys.exit(1)
time.sleep(120 * (hp["learning_rate"] > 0.01))
"""


@pytest.fixture
def ended(aws_connection: RunningEngine, script: Any, task: Any) -> Any:
    """Return a function that has a job ended by a rule, or by its guard, and returns what makes a try of its task."""
    task.context["ti"].id = uuid.uuid4()

    def make(
        on_stop: dict[str, Any], *, step: int = 4, guard: bool = False
    ) -> Callable[[], WatchedTrainingJobOperator]:
        spec = script(
            STANDING,
            hyperparameters={"learning_rate": 0.05, "guard": guard},
            checkpoint_s3_uri=f"s3://{aws_connection.bucket}/watched/{uuid.uuid4().hex}",
        )
        plan = WatchPlan(
            rules=("NonFinite",), conf={"model": "gpt", "precision": "bf16"}, on_stop=on_stop
        )

        def a_try() -> WatchedTrainingJobOperator:
            return WatchedTrainingJobOperator(
                task_id="train", spec=spec, watch=plan, deferrable=False
            )

        run = a_try().job_run(task.context)
        name = run.jobs.name_of(1)
        run.service.create(run.render(name)[0])
        if not guard:
            arn = run.service.describe(name).arn
            for tag in RuleStop(rule="NonFinite", step=step, onset=step).tags:
                run.service.add_tag(arn, tag)
            run.service.stop(name)
        while not run.service.describe(name).is_terminal:
            time.sleep(0.1)
        return a_try

    return make


def parked(train: WatchedTrainingJobOperator, task: Any) -> dict[str, Any]:
    """Return what the task, which asks, is resumed with; nothing is paid while it waits."""
    with pytest.raises(TaskAwaitingInput) as question:
        train.execute(task.context)
    assert num_jobs(train, task) == 1
    return dict(question.value.kwargs)


def num_jobs(train: WatchedTrainingJobOperator, task: Any) -> int:
    """Return how many jobs the task has made."""
    jobs = train.task_jobs(task.context)
    return sum(jobs.of_attempt(attempt) is not None for attempt in (1, 2, 3))


def answered(train: WatchedTrainingJobOperator, task: Any, kwargs: Any, said: RetryRemedy) -> Any:
    """Return what the task returns after an answer."""
    event = {"chosen_options": [OPTIONS[said]], "responded_by_user": {"name": "Eva"}}
    return train.execute_answered(task.context, event, **kwargs)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("guard", "store"),
    [
        (False, StateStore),
        pytest.param(True, StateStore, marks=pytest.mark.slow),
        pytest.param(True, UnreadableStore, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_paid_between_the_question_and_the_answer(
    ended: Any, task: Any, supervisor: ReactionSupervisor, guard: bool, store: type[StateStore]
) -> None:
    a_try, task.store = ended(ASKING, guard=guard), store()
    supervisor.is_busy = True
    with pytest.raises(ConnectionError, match="busy"):
        a_try().execute(task.context)
    supervisor.is_busy = False
    kwargs = parked(a_try(), task)

    train = a_try()
    refused = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
    refusal = ClientError(refused, "AddTags")  # type: ignore[arg-type]  # of botocore's stubs

    def refuse(**_: Any) -> None:
        raise refusal

    events = train.task_jobs(task.context).service._client.meta.events
    events.register("before-call.sagemaker.AddTags", refuse, unique_id="refuse")
    with pytest.raises(ThrottledError):
        answered(train, task, kwargs, RetryRemedy.END)
    events.unregister("before-call.sagemaker.AddTags", unique_id="refuse")
    assert num_jobs(train, task) == 1

    kwargs = parked(a_try(), task)
    told = answered(a_try(), task, kwargs, RetryRemedy.END)
    assert (told["ended_by"], told["verdict"]["decided_by"]) == ("rule", "Eva")


@pytest.mark.engine
@pytest.mark.parametrize("guard", [pytest.param(False, marks=pytest.mark.slow), True])
def test_answer_counts_although_nothing_else_was_kept_of_it(
    ended: Any, task: Any, questions: list[Any], guard: bool
) -> None:
    a_try, task.store = ended(ASKING, guard=guard), UnwritableStore()
    kwargs = parked(a_try(), task)
    answered(a_try(), task, kwargs, RetryRemedy.END)
    again = a_try()
    assert again.execute(task.context)["ended_by"] == "rule"
    assert num_jobs(again, task) == 1

    again.task_jobs(task.context).service.add_tag(
        kwargs["result"]["arn"], remedy_tag(RetryRemedy.LOWER)
    )
    result = a_try().execute(task.context)

    assert (result["attempt"], result["status"]) == (2, "Completed")
    assert result["learning_rate"] == pytest.approx(0.005)
    asked = [each for each in questions if isinstance(each, CreateHITLDetailPayload)]
    assert len(asked) == 1


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("guard", [False, True])
def test_retry_does_not_wait_for_a_store_that_takes_nothing(
    ended: Any, task: Any, guard: bool
) -> None:
    a_try = ended({"action": "retry_with_lower_learning_rate", "factor": 0.1}, guard=guard)
    task.store = UnwritableStore()
    result = a_try().execute(task.context)
    assert (result["attempt"], result["status"]) == (2, "Completed")


@pytest.mark.slow
@pytest.mark.engine
def test_stop_without_a_step_is_the_verdict_where_batches_were_to_be_left_out(
    ended: Any, task: Any
) -> None:
    train = ended(SKIP, step=0)()
    assert train.execute(task.context)["ended_by"] == "rule"
    assert num_jobs(train, task) == 1
