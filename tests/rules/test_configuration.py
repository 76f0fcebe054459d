"""What an author asks for becomes rules: by name, as AWS writes it, or as we do; every fault at once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from trainyard.errors import Severity, SpecError
from trainyard.rules.catalogue import FAMILIES, RULES
from trainyard.rules.configuration import configured_rules, default_rules, make_rule
from trainyard.rules.document import judge_log
from trainyard.rules.evaluation import Issue
from trainyard.rules.learning import LossNotDecreasing
from trainyard.rules.loss import LossSpike
from trainyard.rules.reactions import Reactions
from trainyard.rules.rule import Origin, RuleAction, RuleProfile
from trainyard.rules.service_rules import service_rules
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.tasks.end_to_end.lint import params_findings

# Of the field study: every built-in rule, but the two that only write a report (ProfilerReport, CreateXgboostReport).
DEBUGGER = {
    "VanishingGradient", "ExplodingTensor", "PoorWeightInitialization", "SaturatedActivation", "DeadRelu",
    "WeightUpdateRatio", "AllZero", "TensorVariance", "UnchangedTensor", "SimilarAcrossRuns", "LossNotDecreasing",
    "Overfit", "Overtraining", "ClassImbalance", "StalledTrainingRule", "Confusion", "FeatureImportanceOverweight",
    "TreeDepth", "CheckInputImages", "NLPSequenceRatio",
}  # fmt: skip
PROFILER = {
    "BatchSize", "CPUBottleneck", "GPUMemoryIncrease", "IOBottleneck", "LoadBalancing", "LowGPUUtilization",
    "OverallSystemUsage", "MaxInitializationTime", "OverallFrameworkMetrics", "StepOutlier", "Dataloader",
}  # fmt: skip
OURS = {
    "NonFinite", "LossSpike", "GradNormSpike", "NotLearning", "Plateau", "ValRise", "ThroughputRegression",
    "Straggler", "DataStall", "MemoryGrowth", "LRSanity", "UpdateRatio", "ReplicaDivergence", "Stalled", "TokenStats",
    "IdleAccelerators",
}  # fmt: skip
# Parameter, documented default: SageMaker Developer Guide, 2023-03-17.
DOCUMENTED = [
    ("VanishingGradient", "threshold", 1e-7),
    ("ExplodingTensor", "only_nan", False),
    ("PoorWeightInitialization", "distribution_range", 0.001),
    ("SaturatedActivation", "threshold_sigmoid_max", 16.99999),
    ("DeadRelu", "threshold_inactivity", 1.0),
    ("WeightUpdateRatio", "small_threshold", 1e-8),
    ("AllZero", "threshold", 100.0),
    ("UnchangedTensor", "num_steps", 3),
    ("LossNotDecreasing", "increase_threshold_percent", 5.0),
    ("LossNotDecreasing", "num_steps", 10),
    ("LossNotDecreasing", "diff_percent", 0.1),
    ("Overfit", "ratio_threshold", 0.1),
    ("Overtraining", "patience_train", 5),
    ("Overtraining", "patience_validation", 10),
    ("ClassImbalance", "threshold_misprediction", 0.7),
    ("StalledTrainingRule", "threshold", 1800.0),
    ("Confusion", "min_diag", 0.9),
    ("FeatureImportanceOverweight", "nfeatures", 3),
    ("TreeDepth", "depth", 4),
    ("CheckInputImages", "threshold_mean", 0.2),
    ("NLPSequenceRatio", "token_thresholds_percent", "50"),
    ("BatchSize", "patience", 100),
    ("CPUBottleneck", "cpu_threshold", 90.0),
    ("GPUMemoryIncrease", "increase", 10.0),
    ("IOBottleneck", "gpu_threshold", 70.0),
    ("LoadBalancing", "threshold", 0.5),
    ("LowGPUUtilization", "threshold_p5", 10.0),
    ("MaxInitializationTime", "threshold", 20.0),
    ("StepOutlier", "stddev", 5.0),
    ("Dataloader", "max_threshold", 200.0),
]


def refusal(*wanted: object) -> str:
    """Return what is said of rules that are refused."""
    with pytest.raises(SpecError) as raised:
        configured_rules(wanted)
    return str(raised.value)


@pytest.mark.parametrize(("name", "value", "least"), [("persistence", 0, 1), ("warm_up", -1, 0)])
def test_counts_below_their_least_are_refused(name: str, value: int, least: int) -> None:
    text = refusal({"rule": "LossSpike", "parameters": {name: value}})

    assert f"rules[0].{name}: is too small; got {value}; allowed: at least {least}" in text


def test_the_catalogue_has_every_rule_with_its_origin() -> None:
    origins = {
        origin: {name for name, rule in RULES.items() if rule.ORIGIN is origin} for origin in Origin
    }

    assert origins == {
        Origin.DEBUGGER: DEBUGGER, Origin.PROFILER: PROFILER, Origin.TRAINYARD: OURS, Origin.AUTHOR: set()
    }  # fmt: skip
    assert sum(len(each) for each in FAMILIES.values()) == len(RULES)


@pytest.mark.parametrize(("name", "parameter", "value"), DOCUMENTED)
def test_the_documented_profile_has_the_documented_defaults(
    name: str, parameter: str, value: object
) -> None:
    assert getattr(make_rule(name, {}, profile=RuleProfile.DOCUMENTED), parameter) == value


@pytest.mark.parametrize("name", RULES)
def test_a_robust_profile_changes_parameters_that_there_are(name: str) -> None:
    known = {each.name for each in fields(RULES[name])}

    assert set(RULES[name].ROBUST) <= known
    assert make_rule(name, {}, profile=RuleProfile.ROBUST).NEEDS


def test_a_name_an_own_and_an_aws_configuration_are_rules() -> None:
    aws = {
        "RuleConfigurationName": "falling",
        "RuleEvaluatorImage": "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest",
        "RuleParameters": {
            "rule_to_invoke": "LossNotDecreasing",
            "num_steps": "50",
            "action_json": "[]",
        },
    }
    own = {"rule": "LossSpike", "name": "spikes", "parameters": {"ratio": "2"}, "severity": "error"}

    named, spikes, falling = configured_rules(["LossNotDecreasing", own, aws])

    assert (named.name, named.rule) == (
        "LossNotDecreasing",
        LossNotDecreasing(**LossNotDecreasing.ROBUST),
    )
    assert (spikes.name, spikes.severity, spikes.rule) == (
        "spikes",
        Severity.ERROR,
        LossSpike(ratio=2.0),
    )
    assert (falling.name, falling.rule) == ("falling", LossNotDecreasing(num_steps=50))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("LosSpike", "rules[0]: is not a known rule; got 'LosSpike'; did you mean 'LossSpike'?"),
        ({"rule": "LossSpike", "parameter": {}}, "rules[0].parameter: is an unknown key"),
        (
            {"rule": "LossSpike", "parameters": {"ratio": "much"}},
            "rules[0].ratio: has the wrong type",
        ),
        ({"rule": "LossSpike", "severity": "fatal"}, "one of error, warning"),
        (
            {"name": "x"},
            "an entry needs exactly one of the keys `rule`, `expression` and `file`; got none",
        ),
        ({"rule": "LossSpike", "expression": "loss > 1"}, "got `rule`, `expression`"),
        ({"expression": "loss > 1"}, "name: is required for an expression"),
        ({"name": "x", "expression": "los > 1"}, "did you mean 'loss'?"),
        ({"RuleConfigurationName": "x"}, "has neither rule_to_invoke nor expression; got None"),
        ({"RuleParameters": {"rule_to_invoke": "X"}}, "is not a known rule; got 'X'"),
        (3, "rules[0]: has the wrong type"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_with_its_place(wanted: Any, words: str) -> None:
    assert words in refusal(wanted)


def test_every_fault_is_reported_at_once_and_names_are_given_once() -> None:
    said = refusal("Lossy", {"rule": "ValRise", "parameters": {"x": 1}}, "NonFinite", "NonFinite")

    assert said.startswith("rules: 3 problem(s)")
    assert "two rules have the same name; got NonFinite" in said


def test_rules_of_expectation_wait_until_they_are_asked_for() -> None:
    left_out = {each.name for each in default_rules() if each.left_out}

    assert left_out == {"Confusion", "TreeDepth", "Dataloader", "IdleAccelerators"}
    assert configured_rules(["Confusion"])[0].left_out is None


def test_a_runs_conf_says_which_rules_judge_it() -> None:
    rows = [
        {"time_ms": 1000 * n, "job": "j", "stream": "s", "line": f"trainyard step={n} loss=3.0"}
        for n in range(9)
    ]
    conf = RunConf(rules=("NonFinite", {"name": "high", "expression": "loss > 2"}))

    document = judge_log(rows, {"rules": conf.rules})

    assert [(each["name"], each["status"]) for each in document["verdicts"]] == [
        ("NonFinite", "NoIssuesFound"), ("high", "IssuesFound")
    ]  # fmt: skip
    assert len(judge_log(rows, {})["verdicts"]) == len(RULES)


def test_preflight_refuses_rules_that_there_are_not() -> None:
    found = params_findings({"rules": ["LossSpike", "Nonfinite", {"name": "x", "file": "x.py:f"}]})

    assert [each.where for each in found if each.where.startswith("rules")] == [
        "rules[1]",
        "rules[2].file",
    ]
    assert not [
        each for each in params_findings({"rules": ["LossSpike"]}) if each.where.startswith("rules")
    ]


def test_default_stands_for_the_rules_that_no_other_entry_names() -> None:
    stops = {"rule": "NotLearning", "action": "stop"}

    found = configured_rules(["default", stops])

    assert {each.rule.name for each in found} == set(RULES)
    assert [each.action for each in found if each.name == "NotLearning"] == [RuleAction.STOP]
    assert [each.left_out for each in found if each.name == "TreeDepth"] != [None]
    assert service_rules(["default", "Overfit"]) == service_rules(["Overfit"])


def test_a_warning_that_its_author_wants_to_stop_stops() -> None:
    rules = configured_rules(["default", {"rule": "NotLearning", "action": "stop"}])
    issue = Issue(step=1, onset=1, rank=0, key="", severity=Severity.WARNING, text="")

    assert Reactions(rules).of("NotLearning", issue).action is RuleAction.STOP
    assert Reactions(rules).of("ValRise", issue).action is RuleAction.WARN


def test_a_rule_on_silence_warns_unless_its_author_wants_more() -> None:
    stops = {"rule": "StalledTrainingRule", "action": "stop"}
    silence = Issue(step=1, onset=1, rank=0, key="", severity=Severity.ERROR, text="")

    by_default = Reactions(configured_rules(["StalledTrainingRule"]))
    by_wish = Reactions(configured_rules([stops]))

    assert by_default.of("StalledTrainingRule", silence).action is RuleAction.WARN
    assert by_default.of_rule("StalledTrainingRule") is RuleAction.WARN
    assert by_wish.of_rule("StalledTrainingRule") is RuleAction.STOP


def test_idle_rule_that_is_named_twice_is_found_before_the_run() -> None:
    params = {"instance_type": "ml.g5.xlarge", "instance_count": 1, "stop_if_idle_minutes": 30}

    assert "rules" not in {each.where.partition("[")[0] for each in params_findings(params)}
    found = params_findings({**params, "rules": ["IdleAccelerators"]})
    assert any("IdleAccelerators" in str(each) for each in found)
