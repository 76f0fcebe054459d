"""A training that the service's Debugger is to judge: with what its rules need, and without them where it cannot."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.plugins.test_check_rules import watched
from trainyard.errors import QuotaExceededError, RejectedRequestError, Severity, SpecError
from trainyard.planning.linter.linter import lint
from trainyard.rules.service_rules import service_rules
from trainyard.rules.watch_plan import WatchPlan
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.service_debugger import OWN_EVALUATOR, service_evaluator
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.run_conf import RunConf
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.jobs.debugged_job import rule_evaluator
from trainyard_airflow.jobs.task_jobs import TaskJobs, TaskKey
from trainyard_airflow.jobs.training import TrainingJobType
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.end_to_end.jobs import with_judge
from trainyard_airflow.tasks.end_to_end.lint import params_findings

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

RULE = {
    "RuleConfigurationName": "Overfit",
    "RuleParameters": {"rule_to_invoke": "Overfit", "patience": "2"},
}
PROFILER_RULE = {
    "RuleConfigurationName": "IOBottleneck",
    "RuleParameters": {"rule_to_invoke": "IOBottleneck"},
}
TWO_RANKS = {
    "distribution": {"torch_distributed": {"enabled": True}},
    "instance_count": 2,
    "checkpoint_s3_uri": "s3://bucket/checkpoints",
}


def asked(**members: Any) -> TrainingJobSpec:
    """Return a training that the service is to judge."""
    given: dict[str, Any] = {
        "role": "arn:aws:iam::111122223333:role/train",
        "output_path": "s3://bucket/out",
        "image_uri": "111122223333.dkr.ecr.us-east-1.amazonaws.com/mine:1",
        "entry_point": "train.py",
        "instance_type": "ml.m5.large",
        "instance_count": 1,
        "debugger": "service",
        "rules": [RULE],
        **members,
    }
    return TrainingJobSpec.from_mapping(given)


def evaluated(
    spec: TrainingJobSpec, *, region: str, image_uri: str | None = None
) -> tuple[TrainingJobSpec, dict[str, Any]]:
    """Return the job with the settings of its rule evaluator, and the facts about the choice."""
    changes, facts = rule_evaluator(spec, region=region, image_uri=image_uri)
    return replace(spec, **changes), facts


def test_rules_get_the_regions_evaluator_and_a_place_below_the_output() -> None:
    spec, facts = evaluated(asked(profiler_rules=[PROFILER_RULE]), region="us-west-2")

    image = "895741380848.dkr.ecr.us-west-2.amazonaws.com/sagemaker-debugger-rules:latest"
    assert spec.rules == ({"RuleEvaluatorImage": image, **RULE},)
    assert spec.profiler_rules == ({"RuleEvaluatorImage": image, **PROFILER_RULE},)
    assert spec.debugger_hook_config == spec.profiler_config == {"S3OutputPath": "s3://bucket/out"}
    assert facts == {"debugger": "service"}


def test_what_the_author_wrote_of_image_and_hook_stays() -> None:
    hook = {"S3OutputPath": "s3://bucket/elsewhere", "HookParameters": {"save_interval": "10"}}
    own = {**RULE, "RuleEvaluatorImage": "111122223333.dkr.ecr.us-east-1.amazonaws.com/rules:2"}

    spec, _ = evaluated(asked(rules=[own], debugger_hook_config=hook), region="us-east-1")

    assert spec.rules == (own,)
    assert spec.debugger_hook_config == hook


def test_hook_and_profiler_without_an_address_write_below_the_output() -> None:
    collections = {"CollectionConfigurations": [{"CollectionName": "losses"}]}
    interval = {"ProfilingIntervalInMilliseconds": 500}
    given = asked(debugger_hook_config=collections, profiler_config=interval)

    spec, _ = evaluated(given, region="us-east-1")

    place = {"S3OutputPath": "s3://bucket/out"}
    assert spec.debugger_hook_config == {**place, **collections}
    assert spec.profiler_config == {**place, **interval}
    request = render_training_job(
        spec, name="job", region="us-east-1", code_s3_uri="s3://bucket/c", image_uri=spec.image_uri
    )
    assert request["DebugHookConfig"] == {**place, **collections}


@pytest.mark.parametrize("members", [{"DisableProfiler": True}, None])
def test_a_profiler_that_is_off_gets_no_address(members: dict[str, Any] | None) -> None:
    given = asked(profiler_config=members, disable_profiler=None if members else True)
    assert evaluated(given, region="us-east-1")[0].profiler_config == members


@pytest.mark.parametrize(
    ("members", "says"),
    [
        (TWO_RANKS, "checkpoints of a distributed job: SageMaker never evaluates"),
        (
            {
                "enable_network_isolation": True,
                "entry_point": None,
                "rules": [
                    {
                        **RULE,
                        "RuleParameters": {**RULE["RuleParameters"], "action_json": "[]"},  # type: ignore[dict-item]
                    }
                ],
            },
            "network isolation",
        ),
    ],
    ids=["ranks-with-checkpoints", "actions-in-isolation"],
)
def test_known_refused_combination_is_judged_by_us_and_says_what_why_and_source(
    members: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        spec, facts = evaluated(asked(**members), region="us-east-1")

    assert (spec.rules, spec.profiler_rules, spec.debugger_hook_config) == ((), (), None)
    assert facts["debugger"] == "own"
    assert says in facts["debugger_why"]
    assert "(developer guide, debugger" in facts["debugger_why"]
    (line,) = [each.getMessage() for each in caplog.records]
    assert facts["debugger_why"] in line
    assert line.endswith(
        "(watch_rules) evaluates its own plan's rules; without one, only the run's report has "
        "verdicts. Dropped settings: rules (Overfit)."
    )


PYTORCH = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:{}-cpu-py312"


@pytest.mark.parametrize(
    ("members", "looked_up"),
    [
        ({"image_uri": PYTORCH.format("2.1.0")}, None),
        ({"image_uri": None}, PYTORCH.format("2.6.0")),
    ],
    ids=["image-of-the-spec", "image-looked-up"],
)
def test_rules_over_an_image_without_a_hook_are_judged_by_us(
    members: dict[str, Any], looked_up: str | None
) -> None:
    spec, facts = evaluated(asked(**members), region="us-east-1", image_uri=looked_up)

    assert (spec.rules, spec.debugger_hook_config, spec.image_uri) == (
        (),
        None,
        members["image_uri"],
    )
    assert facts["debugger"] == "own"
    assert "has no hook in the image, so no tensors will be saved" in facts["debugger_why"]


@pytest.mark.parametrize(
    "members",
    [
        {"image_uri": PYTORCH.format("2.0.1")},
        {"image_uri": PYTORCH.format("2.6.0"), "rules": [], "profiler_rules": [PROFILER_RULE]},
    ],
    ids=["hook-in-the-image", "rules-that-need-no-hook"],
)
def test_rules_that_have_what_they_need_go_to_the_service(members: dict[str, Any]) -> None:
    _, facts = evaluated(asked(**members), region="us-east-1")
    assert facts == {"debugger": "service"}


def test_linter_says_who_judges_an_image_without_a_hook() -> None:
    def told(debugger: str) -> str | None:
        spec = asked(debugger=debugger, image_uri=PYTORCH.format("2.6.0"))
        (found,) = [each for each in lint(spec) if "has no hook in the image" in each.what]
        return found.next_step

    assert "Trainyard evaluates the rules instead" in str(told("service"))
    assert "install smdebug" in str(told("own"))


def test_region_without_an_evaluator_is_judged_by_us() -> None:
    spec, facts = evaluated(asked(), region="xx-nowhere-1")
    assert spec.rules == ()
    assert "region xx-nowhere-1 has no rule evaluator image" in facts["debugger_why"]


def test_evaluators_set_fields_of_a_training_only() -> None:
    names = {*OWN_EVALUATOR, *service_evaluator(asked(), evaluator_image="image")}
    assert names <= {each.name for each in fields(TrainingJobSpec)}


def test_rules_without_the_word_service_are_sent_word_for_word() -> None:
    given = asked(debugger="own", rules=[{**RULE, "RuleEvaluatorImage": "x"}])
    assert evaluated(given, region="us-east-1") == (given, {})


def test_linter_refuses_the_combination_and_warns_of_it_where_we_would_judge() -> None:
    def found(debugger: str) -> set[Severity]:
        spec = asked(debugger=debugger, **TWO_RANKS)
        return {each.severity for each in lint(spec) if "checkpoints of" in each.what}

    assert found("own") == {Severity.ERROR}
    assert found("service") == {Severity.WARNING}


def test_more_rules_than_the_service_takes_are_refused_before_anything_is_sent() -> None:
    many = [{**RULE, "RuleConfigurationName": f"overfit-{n}"} for n in range(21)]
    with pytest.raises(
        SpecError, match=r"(?s)rules: has more rules.*21.*at most 20.*Trainyard's own rules"
    ):
        asked(rules=many)
    with pytest.raises(SpecError, match="profiler_rules: has more rules"):
        asked(debugger="own", rules=[], profiler_rules=many)
    assert len(asked(rules=many[:20]).rules) == 20


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"debugger": "aws"}, "debugger: is not a known evaluator"),
        ({"rules": []}, "no rule to evaluate"),
    ],
)
def test_a_judge_without_sense_is_refused(members: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        asked(**members)


def test_of_a_confs_rules_the_service_gets_those_that_it_has() -> None:
    given = ["NonFinite", {"rule": "Overfit", "parameters": {"patience": 2}}, "IOBottleneck"]
    given.append({"name": "hot", "expression": "loss > 9"})
    made = service_rules(given)
    assert (made.debugger, made.profiler) == ((RULE,), (PROFILER_RULE,))
    assert service_rules([RULE]).debugger == (RULE,)


def test_preflight_names_the_rules_that_the_service_could_judge_by() -> None:
    (found,) = [
        each
        for each in params_findings({"debugger": "service", "rules": ["NonFinite"]})
        if each.where == "debugger"
    ]
    assert found.severity is Severity.ERROR
    assert "Overfit" in str(found.allowed)


def test_a_run_of_many_ranks_is_warned_at_preflight_that_we_judge() -> None:
    conf = {"debugger": "service", "rules": ["Overfit"], "instance_count": 2}
    warned = [each for each in params_findings(conf) if "checkpoints of" in each.what]
    assert {each.severity for each in warned} == {Severity.WARNING}
    assert with_judge(asked(), RunConf()) == asked()


@pytest.mark.parametrize(
    ("debugger", "watch_rules", "count"),
    [("service", False, 1), ("service", True, 0), ("own", False, 0)],
)
def test_preflight_warns_where_the_service_judges_and_nothing_watches(
    debugger: str, watch_rules: bool, count: int
) -> None:
    conf = {"debugger": debugger, "rules": ["Overfit"], "watch_rules": watch_rules}
    found = [each for each in params_findings(conf) if each.where == "watch_rules"]
    assert [each.severity for each in found] == [Severity.WARNING] * count


@dataclass
class DebuggerService:
    """The service of an account without Debugger, or without anything: `refuses` tells of a request."""

    refusals: list[tuple[str, str]]
    created: list[dict[str, Any]] = field(default_factory=list)

    def client(self, _: str) -> DebuggerService:
        return self

    def create_training_job(self, **request: Any) -> dict[str, str]:
        if self.refusals:
            code, message = self.refusals.pop(0)
            answer: Any = {"Error": {"Code": code, "Message": message}}
            raise ClientError(answer, "CreateTrainingJob")
        self.created.append(request)
        return {"TrainingJobArn": "arn"}


REQUEST = {
    "TrainingJobName": "job",
    "DebugHookConfig": {"S3OutputPath": "s3://bucket/out"},
    "DebugRuleConfigurations": [RULE],
    "ProfilerConfig": {},
    "ProfilerRuleConfigurations": [PROFILER_RULE],
}
CLOSED = ("ValidationException", "Amazon SageMaker Debugger is not open to new customers.")
BY_SERVICE = {"debugger": "service"}


def created(service: DebuggerService, facts: dict[str, Any]) -> dict[str, Any]:
    """Create the job at a service; return the facts that changed."""
    key = TaskKey(dag_id="dag", run_id="run", task_id="train", map_index=-1)
    jobs = TaskJobs(task=key, kind=JobKind.TRAINING, clients=service, project=None)  # type: ignore[arg-type]
    return TrainingJobType(jobs, asked(), context={}, mask=lambda _: None).create(REQUEST, facts)


def test_account_without_debugger_gets_one_job_that_we_judge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = DebuggerService([CLOSED])

    with caplog.at_level(logging.WARNING):
        facts = created(service, BY_SERVICE)

    assert service.created == [{"TrainingJobName": "job"}]
    assert facts["debugger"] == "own"
    assert "not open to new customers" in facts["debugger_why"]
    assert "not open to new customers" in caplog.text
    assert (
        "Dropped settings: DebugHookConfig, DebugRuleConfigurations (Overfit), ProfilerRuleConfigurations "
        "(IOBottleneck)."
    ) in caplog.text


def test_account_with_debugger_gets_the_rules() -> None:
    service = DebuggerService([])
    assert created(service, BY_SERVICE) == {}
    assert service.created == [REQUEST]


def test_a_request_that_is_wrong_with_and_without_rules_makes_no_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = DebuggerService([CLOSED, ("ValidationException", "no such role")])
    with pytest.raises(RejectedRequestError, match="no such role"):
        created(service, BY_SERVICE)
    assert service.created == []
    assert "Dropped settings" not in caplog.text


@pytest.mark.parametrize(
    ("facts", "refusal", "error"),
    [
        ({}, CLOSED, RejectedRequestError),
        (
            BY_SERVICE,
            ("ResourceLimitExceeded", "The account-level service limit is 2 Instances"),
            QuotaExceededError,
        ),
    ],
    ids=["rules-word-for-word", "quota"],
)
def test_other_refusals_are_told_as_they_are(
    facts: dict[str, Any], refusal: tuple[str, str], error: type[Exception]
) -> None:
    service = DebuggerService([refusal])
    with pytest.raises(error):
        created(service, facts)
    assert service.created == []
    assert service.refusals == []


SCRIPT = """
import json, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
path = pathlib.Path("/opt/ml/output/tensors")
path.mkdir(parents=True, exist_ok=True)
with (path / "rank-00000.attempt-0001.part-0001.jsonl").open("w", buffering=1) as file:
    def write(line):
        file.write(json.dumps({"time": time.time(), **line}) + "\\n")
    write({"format": "trainyard-statistics", "version": 1, "rank": 0, "world_size": 1, "attempt": 1,
           "resumed_at": 0, "tensors": {}})
    for step in range(1, 600):
        write({"kind": "step", "step": step, "loss": "nan" if step > 9 else 5.0 / step, "learning_rate": 0.0})
        time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.engine
def test_service_judges_a_live_job_and_its_verdict_is_followed_by_our_stop(
    aws_connection: RunningEngine, script: Any, task: Any
) -> None:
    nan = {"RuleConfigurationName": "nan", "RuleParameters": {"rule_to_invoke": "NonFinite"}}
    # The last image of AWS's that has the hook; here the script itself writes what the rules read.
    with_hook = PYTORCH.format("2.0.1").replace("py312", "py310")
    spec = script(SCRIPT, debugger="service", rules=[nan], image_uri=with_hook)
    made = TrainingJobOperator(task_id="train", spec=spec)
    name = made.task_jobs(task.context).name_of(1)
    request, facts = made.job_run(task.context).render(name)
    assert made.job_run(task.context).job_type.create(request, facts) == {}
    ours = {"rule": "LRSanity", "action": "warn"}
    plan = WatchPlan(rules=({"rule": "NonFinite", "name": "nan"}, ours), poll_interval_s=0.3)

    found = watched(name, plan)["watched"]

    assert facts["debugger"] == "service"
    assert found["job_status"] == "Stopped"
    assert (found["stopped_by"]["name"], found["stopped_by"]["step"]) == ("nan", 10)
    assert found["service_rules"][0]["status"] == "IssuesFound"
    assert "RuleEvaluationConditionMet" in found["stopped_by"]["evidence"]
    # Our evaluator reads the same statistics, where the hook writes them, for the rules that the service lacks.
    assert {each["name"] for each in found["issues"]} == {"nan", "LRSanity"}
