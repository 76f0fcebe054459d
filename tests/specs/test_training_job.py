"""A training job spec knows what it alone can get wrong."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.specs.channel import TrainingInput
from trainyard.specs.distribution import Distribution
from trainyard.specs.strategies.torch_distributed import TorchDistributed
from trainyard.specs.training_job import TrainingJobSpec

GOOD: dict[str, Any] = {
    "role": "arn:aws:iam::123456789012:role/Training",
    "output_path": "s3://bucket/output",
    "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
    "instance_type": "ml.m5.large",
}
RUNG: dict[str, Any] = {"instance_type": "ml.g5.xlarge"}
GROUPS = [
    {"instance_group_name": "a", "instance_type": "ml.m5.large", "instance_count": 1},
    {"instance_group_name": "b", "instance_type": "ml.g5.xlarge", "instance_count": 2},
]


def refusal(**changes: Any) -> str:
    with pytest.raises(SpecError) as caught:
        TrainingJobSpec.from_mapping({**GOOD, **changes})
    return str(caught.value)


def test_channels_are_read_from_addresses_and_mappings() -> None:
    spec = TrainingJobSpec.from_mapping({**GOOD, "inputs": {"train": "s3://bucket/train"}})

    assert spec.inputs == {"train": TrainingInput(s3_data="s3://bucket/train")}


def test_the_strategy_is_read_from_the_distribution() -> None:
    spec = TrainingJobSpec.from_mapping(
        {
            **GOOD,
            "entry_point": "train.py",
            "distribution": {"torch_distributed": {"enabled": True, "processes_per_host": 2}},
        }
    )

    assert spec.launch == Distribution(strategy=TorchDistributed(processes_per_host=2))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"train_use_spot_instances": True}, "did you mean 'use_spot_instances'?"),
        ({"instance_type": None}, "instance_type: is required (or instance_groups"),
        ({"instance_groups": GROUPS}, "instance_type: cannot be combined with instance_groups"),
        (
            {"instance_type": None, "instance_groups": GROUPS, "instance_count": 2},
            "instance_count: cannot be combined with instance_groups",
        ),
        (
            {"instance_type": None, "instance_groups": [*GROUPS, GROUPS[0]]},
            "instance_groups: contain several groups with the same name; got 'a'; give each group its own name",
        ),
        (
            {
                "instance_type": None,
                "instance_groups": [
                    {**GROUPS[0], "instance_group_name": str(each)} for each in range(6)
                ],
            },
            "instance_groups: are too many; got 6; allowed: at most 5",
        ),
        ({"instance_count": 0}, "instance_count: is too small; got 0; allowed: at least 1"),
        ({"volume_size": 0}, "volume_size: is too small"),
        (
            {"instance_type": "ml.g5.xlarge", "volume_size": 251},
            "volume_size: is larger than the instance type's local disks",
        ),
        ({"max_run": 0}, "max_run: is too small"),
        ({"use_spot_instances": True}, "max_wait: is required for spot instances"),
        ({"max_wait": 90000}, "max_wait: is allowed for spot instances only"),
        (
            {"use_spot_instances": True, "max_run": 3601, "max_wait": 7200},
            "checkpoint_s3_uri: is required for long spot jobs, because an interruption would lose the whole training",
        ),
        (
            {"instance_type": None, "capacity_ladder": [RUNG], "max_run": 3601},
            "checkpoint_s3_uri: is required for long spot jobs, because an interruption would lose the whole training",
        ),
        ({"capacity_ladder": [RUNG]}, "instance_type: cannot be combined with capacity_ladder"),
        (
            {"instance_type": None, "capacity_ladder": [RUNG, RUNG]},
            "capacity_ladder[1]: is the same capacity as capacity_ladder[0]; got ml.g5.xlarge spot",
        ),
        (
            {"instance_type": None, "capacity_ladder": [RUNG], "use_spot_instances": True},
            "use_spot_instances: cannot be combined with capacity_ladder",
        ),
        (
            {
                "instance_type": None,
                "capacity_ladder": [RUNG],
                "keep_alive_period_in_seconds": 60,
            },
            "keep_alive_period_in_seconds: cannot be combined with spot instances",
        ),
        (
            {"instance_type": None, "capacity_ladder": [{**RUNG, "instance_type": "g5"}]},
            "capacity_ladder[0].instance_type: is malformed",
        ),
        ({"heartbeat_timeout_s": -1}, "heartbeat_timeout_s: is too small"),
        ({"max_quota_wait_s": -1}, "max_quota_wait_s: is too small"),
        ({"budget_usd": 0}, "budget_usd: is too small"),
        (
            {"use_spot_instances": True, "max_run": 100, "max_wait": 99},
            "max_wait: is shorter than max_run; got 99; allowed: at least 100",
        ),
        (
            {
                "instance_type": None,
                "instance_preferences": [{"instance_type": "ml.m5.large"}],
                "use_spot_instances": True,
                "max_wait": 90000,
            },
            "use_spot_instances: cannot be combined with instance_preferences",
        ),
        (
            {"keep_alive_period_in_seconds": 21_601},
            "keep_alive_period_in_seconds: is out of range; got 21601; allowed: 0 to 21600 seconds",
        ),
        (
            {"keep_alive_period_in_seconds": 60, "use_spot_instances": True, "max_wait": 90000},
            "keep_alive_period_in_seconds: cannot be combined with spot instances",
        ),
        (
            {"subnets": ["subnet-1"]},
            "got only subnets: subnet-1; allowed: both or neither; set security_group_ids, or remove",
        ),
        (
            {"inputs": {"train": {"s3_data": "s3://b/x", "instance_groups": ["a"]}}},
            (
                "inputs.train.instance_groups: names a group that is not an instance group of this job; got 'a'; "
                "allowed: no group, because the job has no instance_groups"
            ),
        ),
        (
            {
                "instance_type": None,
                "instance_groups": GROUPS,
                "inputs": {"x": {"s3_data": "s3://b/x", "instance_groups": ["a"]}, "y": "s3://b/y"},
            },
            "inputs: must name instance_groups on every channel or on none; got no instance_groups on 'y'",
        ),
        ({"entry_point": "t.py", "container_entry_point": ["sh"]}, "entry_point: needs the"),
        ({"source_dir": "src"}, "source_dir: is set, but entry_point is not"),
        (
            {"distribution": {"torch_distributed": {"enabled": True}}},
            "distribution: needs an entry_point to start",
        ),
        (
            {"entry_point": "t.sh", "distribution": {"torch_distributed": {"enabled": True}}},
            "entry_point: must be a Python file for torchrun; got t.sh",
        ),
        ({"algorithm_name": "xgboost"}, "image_uri: cannot be combined with algorithm_name"),
        ({"output_path": "/data/x"}, "output_path: is not an S3 URI"),
        (
            {"checkpoint_local_path": "/c"},
            "checkpoint_local_path: needs checkpoint_s3_uri, the S3 prefix of the checkpoints",
        ),
        (
            {"hyperparameters": {f"h{i}": i for i in range(101)}},
            "hyperparameters: are too many; got 101; allowed: at most 100",
        ),
        (
            {"entry_point": "t.py", "hyperparameters": {f"h{i}": i for i in range(95)}},
            "hyperparameters: are too many; got 95; allowed: at most 94",
        ),
        (
            {"entry_point": "t.py", "hyperparameters": {"sagemaker_program": "x"}},
            "hyperparameters.sagemaker_program: is a reserved name of the toolkit",
        ),
        (
            {"hyperparameters": {"plan": "x" * 2499}},
            "hyperparameters.plan: is too long as JSON; got 2501 characters",
        ),
        ({"hyperparameters": {"x": {1, 2}}}, "hyperparameters.x: is not JSON"),
        ({"hyperparameters": {"x": float("nan")}}, "hyperparameters.x: is not JSON"),
        (
            {"hyperparameters": {"x" * 257: 1}},
            "is empty or too long; got 257 characters; allowed: 1 to 256 characters",
        ),
    ],
    ids=lambda v: v[:45] if isinstance(v, str) else None,
)
def test_a_contradiction_is_refused(changes: dict[str, Any], says: str) -> None:
    assert says in refusal(**changes)


def test_every_fault_is_in_one_message() -> None:
    message = refusal(output_path="x", max_run=0, subnets=["s"], inputs={"a": 1, "b": "c"})

    assert message.startswith("TrainingJobSpec: 5 problem(s) to fix before anything starts")


def test_a_value_at_the_limit_is_taken() -> None:
    spec = TrainingJobSpec.from_mapping({**GOOD, "hyperparameters": {"plan": "x" * 2498}})

    assert len(spec.hyperparameters["plan"]) == 2498
