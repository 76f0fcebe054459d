"""The operator of the README's example renders the job that the text promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import RunningEngine
    from tests.plugins.conftest import TaskSurroundings

README = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.engine


def test_the_example_renders_a_job_on_the_first_rung(
    aws_connection: RunningEngine, task: TaskSurroundings, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('trains')\n")
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    code = example.replace("/opt/airflow/my_model", str(tmp_path))
    names: dict[str, object] = {}
    exec(compile(code, str(README), "exec"), names)  # noqa: S102
    operator = names["dag"].get_task("train")  # type: ignore[attr-defined]

    name = operator.task_jobs(task.context).name_of(1)
    request, _ = operator.job_run(task.context).render(name, place={"rung": 0})

    assert operator.deferrable is True
    assert request["RoleArn"] == aws_connection.role_arn
    assert request["EnableManagedSpotTraining"] is True
    assert request["ResourceConfig"]["InstanceType"] == "ml.g5.12xlarge"
    assert request["ResourceConfig"]["InstanceCount"] == 2
    assert request["HyperParameters"]["sagemaker_torch_distributed_enabled"] == "true"
    assert request["CheckpointConfig"]["S3Uri"].endswith("/my-model/")
