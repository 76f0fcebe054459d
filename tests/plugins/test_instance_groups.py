"""A run on instance groups: its job, image, cap and preflight."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.conftest import IMAGE
from trainyard.errors import BudgetExceededError, SpecError
from trainyard.specs.script_conf import ScriptConf
from trainyard_airflow.jobs.job_code import job_image
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.end_to_end.jobs import evaluation_image
from trainyard_airflow.tasks.end_to_end.monitoring import monitored_training
from trainyard_airflow.tasks.own_script.jobs import script_training_spec
from trainyard_airflow.tasks.own_script.params import FORM
from trainyard_airflow.tasks.own_script.preflight import ScriptPreflightOperator
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

FEED = {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "instance_count": 1}
TRAIN = {"instance_group_name": "train", "instance_type": "ml.m5.large", "instance_count": 2}
GPUS = {**TRAIN, "instance_type": "ml.g5.xlarge"}
ON_TRAIN = {"torch_distributed": {"enabled": True}, "instance_groups": ["train"]}
PATHS = RunPaths(bucket="bucket", prefix="trainyard", dag_id="dag", run_id="run")
ROLE = "arn:aws:iam::123456789012:role/Role"
USD_PER_S = (0.204 + 2 * 0.115) / 3600


def conf(*groups: dict[str, Any], **params: Any) -> ScriptConf:
    given = {"entry_point": "train.py", "source_dir": "mine", "distribution": ON_TRAIN, **params}
    return ScriptConf.from_mapping({**given, "instance_groups": list(groups)})


def spec_of(of: ScriptConf) -> Any:
    return script_training_spec(of, paths=PATHS, role=ROLE, task_id="train")


def test_job_has_the_groups_and_no_instances_besides() -> None:
    spec = spec_of(conf(FEED, TRAIN, use_spot_instances=True))

    assert [each.instance_group_name for each in spec.instance_groups] == ["feed", "train"]
    assert (spec.instance_type, spec.instance_count) == (None, None)
    assert spec.max_wait == 7200


def test_image_is_for_the_group_with_accelerators() -> None:
    """All groups run one image, so that of the CPUs would leave the GPUs idle (as the SDK's estimator chooses)."""
    version = {"framework_version": "2.3.0", "py_version": "py311"}
    images = [
        job_image(spec_of(conf(FEED, each, **version)), region="us-east-1")
        for each in (GPUS, TRAIN)
    ]

    assert "-gpu-" in str(images[0])
    assert "-cpu-" in str(images[1])


@pytest.mark.parametrize(
    ("groups", "image"), [([FEED, GPUS], None), ([FEED, TRAIN], "image")], ids=["GPUs", "CPUs"]
)
def test_evaluation_on_cpus_has_no_image_for_gpus(
    groups: list[dict[str, Any]], image: str | None
) -> None:
    types = ", ".join(each["instance_type"] for each in groups)
    training = {"instance_type": types, "instance_groups": groups, "image_uri": "image"}

    assert evaluation_image(conf(*groups), training, "ml.m5.xlarge") == image


def test_alarms_look_at_the_hosts_of_all_groups() -> None:
    state = RunState(conf=conf(GPUS, FEED), paths=PATHS, role=ROLE, region="us-east-1", plan={})

    training = monitored_training(state)

    assert training.num_hosts == 3
    assert training.has_gpus


@pytest.fixture
def limited(aws_connection: Any, script: Any, task: Any) -> Any:
    """Return a function that returns the limits of the first job on two groups."""

    def place(**members: Any) -> Any:
        given = script("pass", instance_type=None, instance_count=None, **members)
        spec = {**given, "instance_groups": [FEED, TRAIN]}
        made = TrainingJobOperator(task_id="train", spec=spec)
        return made.job_run(task.context).job_type.place([])

    return place


@pytest.mark.engine
def test_cap_counts_the_instances_of_all_groups(limited: Any) -> None:
    place = limited(max_cost_usd=USD_PER_S * (61 + 120), stop_reserve_s=120)

    assert place.max_billed_s == pytest.approx(61)
    assert place.usd_per_s == pytest.approx(USD_PER_S)


@pytest.mark.engine
@pytest.mark.parametrize("limit", ["max_cost_usd", "budget_usd"])
def test_job_that_its_limit_does_not_pay_is_not_created(limited: Any, limit: str) -> None:
    with pytest.raises(BudgetExceededError, match=r"1 x ml.c5.xlarge \+ 2 x ml.m5.large"):
        limited(**{limit: 0.001})


@pytest.fixture
def preflight(aws_connection: Any, task: Any, tmp_path: Any) -> Any:
    """Return a function that returns the result of `preflight` for a run on groups."""
    (tmp_path / "train.py").write_text("pass")
    given = {
        "entry_point": "train.py",
        "source_dir": str(tmp_path),
        "image_uri": IMAGE,
        "instance_groups": [FEED, TRAIN],
        "distribution": ON_TRAIN,
    }

    def run(**params: Any) -> Any:
        context = task.context | {
            "params": {**FORM.defaults, **given, **params},
            "triggering_asset_events": {},
        }
        made = ScriptPreflightOperator(task_id="preflight")
        return ScriptPreflightOperator.execute.__wrapped__(made, context)

    return run


@pytest.mark.engine
def test_preflight_plans_for_all_groups(preflight: Any) -> None:
    state = preflight()

    assert state["plan"]["world_size"] == 2
    assert state["plan"]["once_usd"] == pytest.approx(USD_PER_S * 3600)
    assert RunState.from_dict(state).conf.instance_groups[0].instance_group_name == "feed"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"distribution": None},
            'runs on only one of them; allowed: feed, train; add "instance_groups": ["train"] to distribution',
        ),
        ({"keep_alive_period_in_seconds": 600}, "cannot be combined with instance_groups"),
        (
            {"inputs": {"train": {"s3_data": "s3://b/x", "instance_groups": ["gpu"]}}},
            "inputs.train.instance_groups: names a group that is not an instance group of this job; got 'gpu'",
        ),
        (
            {"instance_groups": [FEED, {**FEED}]},
            "instance_groups: contain several groups with the same name",
        ),
    ],
    ids=["no group of the distribution", "warm pool", "channel", "names"],
)
def test_preflight_refuses_what_aws_would(
    preflight: Any, params: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        preflight(**params)
    assert says in str(caught.value)


@pytest.mark.engine
def test_preflight_warns_of_groups_on_spot(preflight: Any) -> None:
    warnings = preflight(use_spot_instances=True)["plan"]["warnings"]

    assert any("not documented as supported together with instance_groups" in w for w in warnings)
