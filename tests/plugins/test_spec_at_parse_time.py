"""A wrong spec is an error when the DAG file is parsed; what only a run knows is left to the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG, BaseOperator, task_group

from trainyard.errors import SpecError
from trainyard_airflow.jobs.model_trainer import from_model_trainer
from trainyard_airflow.operators.automl_tabular import AutoMLTabularOperator
from trainyard_airflow.operators.processing_job import ProcessingJobOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.operators.tune_hyperparameters import TuneHyperparametersOperator
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TRAINING: dict[str, Any] = {"entry_point": "train.py", "instance_type": "ml.m5.large"}
PROCESSING: dict[str, Any] = {"entry_point": "job.py", "instance_type": "ml.m5.large"}
LOSS = {"name": "loss", "regex": "loss=([0-9.]+)"}
TUNING: dict[str, Any] = {
    "training": {**TRAINING, "metric_definitions": [LOSS]},
    "hyperparameter_ranges": {"lr": {"type": "continuous", "min_value": 0.1, "max_value": 0.2}},
    "objective_metric_name": "loss",
    "objective_type": "Minimize",
    "max_jobs": 4,
}
AUTOML: dict[str, Any] = {"train": "s3://bucket/table", "target": "label"}
FILE_SYSTEM = {
    "file_system_id": "fs-0123456789",
    "file_system_type": "FSxLustre",
    "directory_path": "/d",
}
OPERATORS: dict[type[BaseOperator], dict[str, Any]] = {
    TrainingJobOperator: TRAINING,
    WatchedTrainingJobOperator: TRAINING,
    ProcessingJobOperator: PROCESSING,
    TuneHyperparametersOperator: TUNING,
    AutoMLTabularOperator: AUTOML,
}


def findings(operator: Any, spec: Any) -> list[str]:
    """Return the findings of an operator on a spec at parse time, without their details after the first semicolon."""
    try:
        operator(task_id="job", spec=spec)
    except SpecError as error:
        return [str(each).partition(";")[0] for each in error.findings]
    return []


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.__name__)
def test_a_right_spec_needs_nothing_of_the_connection(operator: Any) -> None:
    assert findings(operator, OPERATORS[operator]) == []


def test_the_error_names_operator_and_task() -> None:
    with pytest.raises(SpecError, match=r"^ProcessingJobOperator job: 1 problem"):
        ProcessingJobOperator(task_id="job", spec={})


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.__name__)
def test_an_unknown_key_is_refused(operator: Any) -> None:
    assert findings(operator, {**OPERATORS[operator], "tagz": {}}) == [
        "spec.tagz: is an unknown key"
    ]


@pytest.mark.parametrize(
    ("operator", "spec", "expected"),
    [
        (
            TrainingJobOperator,
            {
                "entry_pont": "train.py",
                "max_run": "long",
                "volume_size": 0,
                "inputs": {"train": {"s3_dta": "s3://b/x"}, "test": "b/x"},
                "rules": [{}] * 21,
            },
            [
                "spec.entry_pont: is an unknown key",
                "spec.inputs.train.s3_dta: is an unknown key",
                "spec.inputs.train.s3_data: is required",
                "spec.inputs.test.s3_data: is not an S3 URI",
                "spec.max_run: has the wrong type or value",
                "spec.instance_type: is required (or instance_groups, instance_preferences or capacity_ladder)",
                "spec.volume_size: is too small",
                "spec.rules: has more rules than SageMaker evaluates for a job",
            ],
        ),
        (
            TrainingJobOperator,
            {**TRAINING, "max_wait": 60, "keep_alive_period_in_seconds": 30_000},
            [
                "spec.max_wait: is allowed for spot instances only",
                "spec.keep_alive_period_in_seconds: is out of range",
            ],
        ),
        (
            ProcessingJobOperator,
            {"max_cost_usd": -1, "inputs": [{"source": "s3://b/x"}], "code_location": "b"},
            [
                "spec.inputs[0].destination: is required",
                "spec.inputs[0].input_name: is required",
                "spec.instance_type: is required",
                "spec.code_location: is not an S3 URI",
                "spec.max_cost_usd: is too small",
            ],
        ),
        (
            TuneHyperparametersOperator,
            {
                **TUNING,
                "training": {**TRAINING, "rules": [{}]},
                "objective_type": "Least",
                "hyperparameter_ranges": {"lr": {"type": "continuous", "min_value": 1}},
                "max_jobs": 1000,
            },
            [
                "spec.hyperparameter_ranges.lr.max_value: is required",
                "spec.objective_type: has the wrong type or value",
                "spec.training.rules: is not supported in a tuning job",
                (
                    "spec.objective_metric_name: is not in training.metric_definitions, so SageMaker could not read it "
                    "from a trial's log"
                ),
                "spec.max_jobs: is out of range",
            ],
        ),
        (
            TuneHyperparametersOperator,
            {**TUNING, "training": {**TRAINING, "max_rn": 3}, "random_seed": -1},
            ["spec.training.max_rn: is an unknown key", "spec.random_seed: is out of range"],
        ),
        (
            AutoMLTabularOperator,
            {"train": "table", "max_candidates": 1000, "problem_type": "Regression"},
            [
                "spec.target: is required",
                "spec.train: is not an S3 URI",
                "spec.max_candidates: is more than the service allows",
                "spec.objective: is required with problem_type",
            ],
        ),
        (TrainingJobOperator, "train.py", ["spec: is not a spec"]),
        (TrainingJobOperator, None, ["spec: is not a spec"]),
        (
            TrainingJobOperator,
            from_model_trainer(lambda: None, budget_usd=-1, heartbeat_timeout=3),
            ["spec.heartbeat_timeout: is an unknown key", "spec.budget_usd: is too small"],
        ),
    ],
    ids=[
        "keys, types and bounds",
        "contradictions",
        "processing",
        "tuning",
        "tuning with a wrong training",
        "automl",
        "text",
        "nothing",
        "model trainer",
    ],
)
def test_all_faults_are_in_one_error(operator: Any, spec: Any, expected: list[str]) -> None:
    assert sorted(findings(operator, spec)) == sorted(expected)


@pytest.mark.parametrize(
    "unknown",
    [
        {"max_run": "{{ params.max_run }}", "use_spot_instances": True, "max_wait": 60},
        {"use_spot_instances": "{% if params.spot %}true{% endif %}", "max_wait": 90000},
        {"capacity_ladder": "{{ params.ladder }}", "max_wait": 90000, "instance_type": None},
        {"inputs": {"train": "{{ params.data }}"}},
        {"inputs": {"train": {"s3_data": "{{ params.data }}", "input_mode": "Pipe"}}},
        {"inputs": {"train": FILE_SYSTEM}},
        {"inputs": "{{ params.inputs }}"},
        {"distribution": {"mpi": {"processes_per_host": "{{ params.ranks }}"}}},
        {
            "distribution": {"smdistributed": "{{ params.smd }}"},
            "framework": "{{ params.framework }}",
        },
        {"hyperparameters": {"sagemaker_key": "{{ params.key }}"}},
        {"metric_definitions": [{"Name": "{{ params.metric }}", "Regex": "x"}]},
        {"instance_type": "{{ params.type }}", "volume_size": 10_000},
        {"entry_point": "{{ params.script }}", "source_dir": "scripts"},
        {"raw_request_overrides": {"A": [{"B": "{{ params.deep }}"}]}},
        {"use_spot_instances": True, "max_wait": 90000},
    ],
    ids=", ".join,
)
def test_what_a_template_decides_is_left_to_the_run(unknown: dict[str, Any]) -> None:
    assert findings(TrainingJobOperator, {**TRAINING, **unknown}) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"max_run": "{{ params.max_run }}", "volume_size": 0}, "spec.volume_size: is too small"),
        (
            {"inputs": {"train": {"s3_data": "{{ params.data }}", "content_typ": "x"}}},
            "spec.inputs.train.content_typ: is an unknown key",
        ),
        (
            {"inputs": {"train": {"s3_data": "{{ params.data }}", "attribute_names": ["a"]}}},
            "spec.inputs.train.attribute_names: is allowed for s3_data_type AugmentedManifestFile only",
        ),
        (
            {"inputs": {"train": "{{ params.data }}", "test": "bucket/x"}},
            "spec.inputs.test.s3_data: is not an S3 URI",
        ),
        (
            {"capacity_ladder": [{"instance_type": "{{ params.type }}", "instance_cuont": 2}]},
            "spec.capacity_ladder[0].instance_cuont: is an unknown key",
        ),
        (
            {"entry_point": "{{ params.script }}", "image_uri": "image", "algorithm_name": "mine"},
            "spec.image_uri: cannot be combined with algorithm_name",
        ),
        (
            {"output_path": "{{ params.out }}", "checkpoint_s3_uri": "bucket/x"},
            "spec.checkpoint_s3_uri: is not an S3 URI",
        ),
        ({"{{ params.key }}": 1}, "spec.{{ params.key }}: is an unknown key"),
    ],
    ids=["bound", "key", "rule", "channel", "rung", "contradiction", "address", "template as key"],
)
def test_templates_hide_no_other_fault(spec: dict[str, Any], expected: str) -> None:
    ladder = {"instance_type": None} if "capacity_ladder" in spec else {}

    assert findings(TrainingJobOperator, {**TRAINING, **ladder, **spec}) == [expected]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.__name__)
def test_a_whole_spec_from_a_template_or_a_function_is_left_to_the_run(operator: Any) -> None:
    def written(context: Context, jinja_env: Any) -> dict[str, Any]:
        return {}

    assert findings(operator, "{{ ti.xcom_pull('plan') }}") == []
    assert findings(operator, written) == []


def _xcom(operator: Any) -> None:
    before = BaseOperator(task_id="before")
    operator(task_id="job", spec={**TRAINING, "max_run": before.output["s"]})
    operator(task_id="all", spec=before.output)


def _mapped(operator: Any) -> None:
    operator.partial(task_id="job").expand(spec=[{"entry_pont": "train.py"}])


def _partial(operator: Any) -> None:
    operator.partial(task_id="job", spec={"entry_pont": "x"}).expand(ledger_uri=["s3://b/a"])


def _mapped_group(operator: Any) -> None:
    @task_group
    def group(size: int) -> None:
        operator(task_id="job", spec={**TRAINING, "volume_size": size})

    group.expand(size=[1, 2])


def _delimiters(operator: Any) -> None:
    operator(task_id="job", spec={**TRAINING, "max_run": "<< params.max_run >>"})


@pytest.mark.parametrize(
    "build", [_xcom, _mapped, _partial, _mapped_group, _delimiters], ids=lambda each: each.__name__
)
def test_values_that_airflow_resolves_are_left_to_the_run(build: Callable[[Any], None]) -> None:
    with DAG("dag", schedule=None, jinja_environment_kwargs={"variable_start_string": "<<"}):
        build(TrainingJobOperator)


def test_spec_of_a_mapped_task_is_read_by_its_run() -> None:
    with DAG("dag", schedule=None) as dag:
        _mapped(TrainingJobOperator)

    made = dag.get_task("job").unmap({"spec": {"entry_pont": "train.py"}})

    assert made.spec == {"entry_pont": "train.py"}
