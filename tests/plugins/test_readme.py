"""The DAG of the README's example and the operator of the docs' render the jobs that the text promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.specs.fine_tune_conf import FineTuneConf
from trainyard.specs.script_conf import ScriptConf
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.own_script.jobs import script_evaluation_spec, script_training_spec
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from tests.conftest import RunningEngine
    from tests.plugins.conftest import TaskSurroundings

REPOSITORY = Path(__file__).parents[2]
README = REPOSITORY / "README.md"
OWN_SCRIPTS = REPOSITORY / "docs" / "own_scripts.md"
FINE_TUNING = REPOSITORY / "docs" / "fine_tuning.md"

pytestmark = pytest.mark.engine


def examples(page: Path, folder: Path) -> list[str]:
    """Return the Python of a page, with a folder in the place of the user's."""
    (folder / "train.py").write_text("print('trains')\n")
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [each.replace("dags/my_model", str(folder)) for each in found]


def rendered(operator: TrainingJobOperator, task: TaskSurroundings) -> dict[str, Any]:
    """Return the request of an operator's job, on its first rung."""
    name = operator.task_jobs(task.context).name_of(1)
    run = operator.job_run(task.context)
    return run.render(name, place=run.job_type.place([]))[0]


def test_the_readmes_dag_trains_on_spot_under_torchrun_and_measures(
    aws_connection: RunningEngine, task: TaskSurroundings, tmp_path: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (example,) = examples(README, tmp_path)
    (tmp_path / "digits_dag.py").write_text(example)
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")
    assert bag.import_errors == {}
    params = bag.dags["digits"].params
    conf = ScriptConf.from_mapping({name: params[name] for name in params})
    bucket, role = aws_connection.bucket, aws_connection.role_arn
    paths = RunPaths(bucket=bucket, prefix="trainyard", dag_id="digits", run_id="run")

    spec = script_training_spec(conf, paths=paths, role=role, task_id="train")
    request = rendered(TrainingJobOperator(task_id="train", spec=spec), task)

    assert request["RoleArn"] == role
    assert request["EnableManagedSpotTraining"] is True
    assert request["ResourceConfig"]["InstanceType"] == "ml.g5.12xlarge"
    assert request["ResourceConfig"]["InstanceCount"] == 2
    assert request["HyperParameters"]["sagemaker_torch_distributed_enabled"] == "true"
    assert request["CheckpointConfig"]["S3Uri"].endswith("/checkpoints/train/")
    training = {"model_artifact": f"s3://{bucket}/model.tar.gz", "instance_type": "ml.g5.12xlarge"}
    evaluation = script_evaluation_spec(conf, paths=paths, training=training, role=role)
    assert evaluation is not None
    assert [each.input_name for each in evaluation.inputs] == ["model", "test"]
    assert str(conf.condition) == "accuracy >= 0.9"


def test_the_operator_by_itself_trains_under_torchrun(
    aws_connection: RunningEngine, task: TaskSurroundings, tmp_path: Path
) -> None:
    code = examples(OWN_SCRIPTS, tmp_path)[-1]
    names: dict[str, Any] = {}
    exec(compile(code, str(OWN_SCRIPTS), "exec"), names)  # noqa: S102
    operator = names["dag"].get_task("train")

    request = rendered(operator, task)

    assert operator.deferrable is True
    assert request["RoleArn"] == aws_connection.role_arn
    assert request["ResourceConfig"]["InstanceType"] == "ml.g5.12xlarge"
    assert request["HyperParameters"]["sagemaker_torch_distributed_enabled"] == "true"
    assert request["CheckpointConfig"]["S3Uri"].endswith("/my-model/")


def test_the_fine_tuning_of_the_docs_trains_on_spot_and_measures_against_the_base(
    tmp_path: Path,
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (example,) = examples(FINE_TUNING, tmp_path)
    (tmp_path / "answers_dag.py").write_text(example)
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")
    assert bag.import_errors == {}
    params = bag.dags["support_answers"].params
    conf = FineTuneConf.from_mapping({name: params[name] for name in params})

    script = ScriptConf.from_mapping(conf.script_params())

    assert script.use_spot_instances
    assert script.hyperparameters["packing"] is True
    assert script.evaluation_inputs["base"] == script.inputs["model"]
    assert str(script.condition) == "gain > 0.05"


def test_a_wrong_default_of_a_fine_tuning_is_an_import_error(tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (example,) = examples(FINE_TUNING, tmp_path)
    wrong = example.replace("packing=True", "paking=True").replace("2048", "0")
    (tmp_path / "answers_dag.py").write_text(wrong)
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")

    (error,) = bag.import_errors.values()
    assert "defaults.paking" in error
    assert "max_length" in error
