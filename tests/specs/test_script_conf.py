"""The conf of an own script: what it refuses, and the launch that it makes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from trainyard.catalog.instances import catalogue
from trainyard.errors import SpecError
from trainyard.planning.script_plan import (
    plan_script,
    script_cap,
    script_evaluation,
    script_quota_needs,
)
from trainyard.sagemaker_api.images import image_uri
from trainyard.specs.distribution import read_distribution
from trainyard.specs.register_condition import unmeasured_findings
from trainyard.specs.script_conf import CHOICES, ScriptConf

SCRIPT = {"entry_point": "train.py", "source_dir": "dags/mine"}


def conf(**params: Any) -> ScriptConf:
    return ScriptConf.from_mapping({**SCRIPT, **params})


def refusal(**params: Any) -> str:
    with pytest.raises(SpecError) as raised:
        conf(**params)
    return str(raised.value)


def test_script_and_folder_are_required() -> None:
    with pytest.raises(SpecError) as raised:
        ScriptConf.from_mapping({"source_dir": "x"})
    assert "entry_point: is required" in str(raised.value)


def test_all_problems_are_reported_together() -> None:
    told = refusal(
        entry_point=" ",
        inputs={"train": "data/"},
        distribution={"smdistributed": {"dataparalel": {"enabled": True}}},
        register_when="accuracy = 1",
        input_mode="Files",
        color=1,
    )

    assert told.startswith("ScriptConf: 6 problem(s)")


def test_serving_needs_an_image_and_content_types() -> None:
    told = refusal(
        inference_entry_point="inference.py",
        inference_instance_types=["ml.m5.large", "large"],
        inference_content_types=[],
    )

    assert "inference_entry_point: needs an inference_image_uri" in told
    assert "inference_instance_types: needs an inference_image_uri" in told
    assert "inference_instance_types: has a malformed instance type; got 'large'" in told
    assert "inference_content_types: is empty" in told


def test_intended_uses_fit_a_model_card() -> None:
    assert conf(intended_uses="x" * 2048).intended_uses
    assert "intended_uses: is too long for a model card" in refusal(intended_uses="x" * 2049)


@pytest.mark.parametrize(
    ("params", "launch"),
    [
        ({}, {"torch_distributed": {"enabled": True, "processes_per_host": 1}}),
        (
            {"instance_type": "ml.p4d.24xlarge", "framework": "huggingface"},
            {"torch_distributed": {"enabled": True, "processes_per_host": 8}},
        ),
        ({"framework": "tensorflow"}, {}),
        ({"distribution": {}}, {}),
        ({"distribution": {"mpi": {"enabled": True}}}, {"mpi": {"enabled": True}}),
    ],
    ids=["one rank on CPUs", "one for each GPU", "not PyTorch", "plain", "own"],
)
def test_launch_is_torchrun_unless_something_else_is_said(
    params: dict[str, Any], launch: dict[str, Any]
) -> None:
    assert conf(**params).launch == launch


def test_ranks_that_nobody_reads_are_refused() -> None:
    told = refusal(distribution={"mpi": {"enabled": True}}, processes_per_instance=2)

    assert "processes_per_instance: applies to the strategies of torchrun and MPI" in told
    assert "processes_per_instance" in refusal(framework="tensorflow", processes_per_instance=2)


@pytest.mark.parametrize("name", [each for each in CHOICES["strategy"] if each != "auto"])
def test_every_strategy_is_a_distribution_of_the_sdk(name: str) -> None:
    tensorflow = name in {"parameter_server", "multi_worker_mirrored"}
    made = conf(strategy=name, framework="tensorflow" if tensorflow else "pytorch")

    assert list(made.findings()) == []
    assert (read_distribution(made.launch) is None) == (name == "plain")


def test_a_strategy_starts_the_ranks_per_host() -> None:
    assert conf(strategy="mpi", processes_per_instance=2).launch == {
        "mpi": {"enabled": True, "processes_per_host": 2}
    }
    assert "processes_per_instance" in refusal(strategy="plain", processes_per_instance=2)


def test_a_strategy_beside_a_distribution_is_refused() -> None:
    said = refusal(strategy="smddp", distribution={"mpi": {"enabled": True}})
    assert "strategy: cannot be combined with distribution; got smddp" in said


def test_settings_of_an_evaluation_need_its_script() -> None:
    told = refusal(evaluation_instance_type="ml.m5.xlarge", evaluation_inputs={"a": "s3://b/c"})

    assert "evaluation_instance_type: needs an evaluation_entry_point" in told
    assert "evaluation_inputs: needs" in told
    assert "is the name of an input that every evaluation job has" in refusal(
        evaluation_entry_point="e.py", evaluation_inputs={"model": "s3://b/c"}
    )


def test_condition_needs_a_metric_that_something_measures() -> None:
    (found,) = unmeasured_findings(
        conf(register_when="loss < 1").condition, ["l"], next_step="use one of these metrics"
    )
    assert "has a metric that the run does not measure; got 'loss'; allowed: l" in str(found)

    measured = conf(register_when="loss <= 1e-1")
    assert not [
        *unmeasured_findings(measured.condition, ["loss"], next_step="use one of these metrics")
    ]
    assert measured.condition is not None
    assert measured.condition.holds({"loss": 0.1})
    assert not measured.condition.holds({"loss": float("nan")})
    with pytest.raises(SpecError, match="has the metric 'loss', which was not measured"):
        measured.condition.holds({"accuracy": 1.0})


def test_cost_is_that_of_training_and_evaluation_with_every_attempt() -> None:
    alone = plan_script(SCRIPT, job_attempts=4)
    both = plan_script({**SCRIPT, "evaluation_entry_point": "e.py"}, job_attempts=4)

    assert alone.evaluation is None
    assert alone.ceiling_usd == pytest.approx(4 * 2 * 0.115)
    assert both.ceiling_usd == pytest.approx(4 * 3 * 0.115)


def test_budget_says_how_long_a_training_it_is_enough_for() -> None:
    with pytest.raises(Exception, match=r"lower max_run_s to 1956") as raised:
        plan_script({**SCRIPT, "budget_usd": 0.5}, job_attempts=4)
    assert type(raised.value).__name__ == "BudgetExceededError"


def test_evaluation_is_on_a_type_that_processing_jobs_may_have() -> None:
    measured = conf(evaluation_entry_point="e.py", instance_type="ml.p4d.24xlarge")
    plan = script_evaluation(measured)

    assert plan is not None
    assert plan.instance_type == "ml.m5.xlarge"
    assert "processing jobs cannot have ml.p4d.24xlarge" in plan.reason
    names = [each.name for each in script_quota_needs(measured)]
    assert names[1:] == [
        "ml.p4d.24xlarge for training job usage",
        "ml.m5.xlarge for processing job usage",
    ]


def test_evaluation_by_a_framework_without_cpu_images_is_on_gpus() -> None:
    measured = conf(
        evaluation_entry_point="e.py", framework="huggingface", instance_type="ml.p4d.24xlarge"
    )
    plan = script_evaluation(measured)

    assert plan is not None
    assert plan.instance_type == "ml.g5.12xlarge"
    assert catalogue().types[plan.instance_type].is_for_processing
    image = image_uri(region="us-east-1", instance_type=plan.instance_type, framework="huggingface")
    assert "/huggingface-pytorch-training:" in image
    assert "ml.m5.xlarge" not in str(list(script_quota_needs(measured)))


def test_evaluation_has_at_most_the_volume_of_its_types_disks() -> None:
    measured = {"evaluation_entry_point": "e.py", "evaluation_instance_type": "ml.g5.xlarge"}
    plan = script_evaluation(conf(**measured, volume_size_gb=500))

    assert plan is not None
    assert plan.volume_size_gb == 250
    with pytest.raises(
        SpecError, match=r"evaluation_volume_size_gb: .* local disks, .*at most 250"
    ):
        plan_script({**SCRIPT, **measured, "evaluation_volume_size_gb": 251})


def test_arguments_are_a_list_of_texts() -> None:
    assert conf(arguments=["config/small.py", "--resume"]).arguments == (
        "config/small.py",
        "--resume",
    )
    assert "arguments" in refusal(arguments="--resume")


TRAIN = {"instance_group_name": "train", "instance_type": "ml.g5.12xlarge", "instance_count": 2}
FEED = {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "instance_count": 3}
ON_TRAIN = {"torch_distributed": {"enabled": True}, "instance_groups": ["train"]}
GROUPED: dict[str, Any] = {"instance_groups": [FEED, TRAIN], "distribution": ON_TRAIN}


def test_ranks_are_on_the_group_of_the_distribution() -> None:
    grouped = conf(**GROUPED)

    assert (grouped.instance_type, grouped.instance_count) == ("ml.g5.12xlarge", 2)
    assert grouped.world_size == 8
    assert grouped.instances_on(grouped.rungs[0]) == {"ml.c5.xlarge": 3, "ml.g5.12xlarge": 2}
    assert ScriptConf.from_mapping(json.loads(json.dumps(asdict(grouped)))) == grouped


def test_groups_without_a_distribution_train_alone_on_the_first() -> None:
    grouped = conf(**{**GROUPED, "distribution": {}})

    assert (grouped.instance_type, grouped.instance_count) == ("ml.c5.xlarge", 3)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"instance_type": "ml.m5.xlarge"},
            "instance_type: differs from the group 'train' of instance_groups, which replaces it; got ml.m5.xlarge",
        ),
        ({"instance_count": 5}, "instance_count: differs from the group 'train'"),
        (
            {"capacity_ladder": [{"instance_type": "ml.g5.12xlarge"}]},
            "instance_groups: cannot be combined with capacity_ladder",
        ),
        (
            {"instance_groups": [{**FEED, "instance_type": "c5"}, TRAIN]},
            "instance_groups[0].instance_type: is malformed; got 'c5'",
        ),
        (
            {"instance_groups": [{**FEED, "instance_count": 0}, TRAIN]},
            "instance_groups[0].instance_count: is too small; got 0; allowed: at least 1",
        ),
        (
            {"instance_groups": [{**FEED, "instances": 2}, TRAIN]},
            "instance_groups[0].instances",
        ),
    ],
    ids=["type", "count", "ladder", "malformed type", "no instances", "unknown key"],
)
def test_what_groups_replace_is_not_said_twice(params: dict[str, Any], says: str) -> None:
    assert says in refusal(**{**GROUPED, **params})


def test_cost_and_quotas_are_those_of_all_groups() -> None:
    per_hour = 3 * 0.204 + 2 * 7.09
    plan = plan_script({**SCRIPT, **GROUPED}, job_attempts=4)

    assert plan.ceiling_usd == pytest.approx(4 * per_hour)
    assert (
        "3 x ml.c5.xlarge at 0.204 USD/h + 2 x ml.g5.12xlarge at 7.09 USD/h for at most 1 h 00 min"
        in plan.cost_note
    )
    needs = {each.name: each.amount for each in script_quota_needs(conf(**GROUPED))}
    assert needs["ml.c5.xlarge for training job usage"] == 3
    assert needs["ml.g5.12xlarge for training job usage"] == 2


def test_cap_counts_all_groups() -> None:
    plan = script_cap(conf(**GROUPED, max_cost_usd=20))

    assert plan is not None
    per_s = (3 * 0.204 + 2 * 7.09) / 3600
    assert plan.least_training_usd == pytest.approx(per_s * (60 + conf().stop_reserve_s))


def test_type_of_any_group_must_be_known() -> None:
    with pytest.raises(SpecError, match=r"instance_groups\[0\].instance_type: is not a training"):
        plan_script(
            {**SCRIPT, **GROUPED, "instance_groups": [{**FEED, "instance_type": "ml.c5.z"}, TRAIN]}
        )
