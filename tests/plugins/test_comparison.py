"""A comparison's form, its cells' jobs, and what preflight says of them."""

from __future__ import annotations

from typing import Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from trainyard.errors import Severity
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.planning.comparison_plan import plan_comparison
from trainyard.specs.comparison_conf import Comparison, is_of_other_runs
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.tasks.comparison.jobs import cell_spec, comparison_findings
from trainyard_airflow.tasks.comparison.params import FORM
from trainyard_airflow.tasks.end_to_end.lint import UNSET_PATHS, UNSET_ROLE

SCRIPTS = TRAINING_SCRIPTS


@pytest.fixture
def defaults() -> dict[str, Any]:
    return {name: param.resolve() for name, param in FORM.params().items()}


def said(**params: Any) -> list[str]:
    return [str(each) for each in comparison_findings(params, scripts=SCRIPTS)]


def test_form_has_every_field_of_a_comparison(defaults: dict[str, Any]) -> None:
    shared = {name for name in RunConf.__dataclass_fields__ if not is_of_other_runs(name)}

    assert set(defaults) == shared | set(Comparison.__dataclass_fields__)


def test_defaults_make_five_trainings_that_nothing_is_said_against(
    defaults: dict[str, Any],
) -> None:
    plan = plan_comparison(defaults)

    names = [each.name for each in plan.cells]
    assert names == ["ddp x 1", "ddp x 2", "fsdp x 1", "fsdp x 2", "tensor x 2"]
    findings = [*plan.warnings, *comparison_findings(defaults, scripts=SCRIPTS)]
    assert [each for each in findings if each.severity is Severity.ERROR] == []


def test_cell_trains_the_run_s_model_its_own_way(defaults: dict[str, Any]) -> None:
    plan = plan_comparison({**defaults, "learning_rate": 2e-3})
    spec = cell_spec(
        plan.cells[-1],
        run=plan.conf.run,
        paths=UNSET_PATHS,
        dataset_uri="s3://b/d",
        role=UNSET_ROLE,
    )

    assert (spec.entry_point, spec.instance_count) == ("train_fsdp.py", 2)
    assert spec.hyperparameters["tensor_parallel_degree"] == 2
    assert spec.hyperparameters["learning_rate"] == 2e-3
    assert spec.tags == {"trainyard:cell": "tensor-x2"}
    assert spec.checkpoint_s3_uri is None


def test_cells_on_spot_keep_checkpoints_apart(defaults: dict[str, Any]) -> None:
    spot = {"use_spot_instances": True, "checkpoint_interval": 10}
    plan = plan_comparison({**defaults, **spot})
    uris = {
        cell_spec(
            each, run=plan.conf.run, paths=UNSET_PATHS, dataset_uri="s3://b/d", role=UNSET_ROLE
        ).checkpoint_s3_uri
        for each in plan.cells
    }

    assert len(uris) == len(plan.cells)


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ({"entry_point": "train_nowhere.py"}, "got train_nowhere.py"),
        ({"distribution": {"pytorchx": {"enabled": True}}}, "pytorchx"),
        ({"distribution": {"smdistributed": {"dataparallel": {"enabled": True}}}}, "ml.p4d"),
        ({"hyperparameters": {"learing_rate": 1}}, "did you mean 'learning_rate'?"),
        (
            {"entry_point": "train_fsdp.py", "hyperparameters": {"tensor_parallel_degree": 3}},
            "does not divide the 2 ranks",
        ),
    ],
    ids=["no script", "no such strategy", "no GPUs", "no such hyperparameter", "odd degree"],
)
def test_bad_cell_is_told_before_anything_is_paid(strategy: dict[str, Any], says: str) -> None:
    found = said(strategies=[{"name": "ddp"}, {"name": "bad", **strategy}], ranks=[2])

    assert any(says in each for each in found)


def test_batch_that_does_not_fit_hides_nothing_else() -> None:
    found = said(strategies=[{"name": "bad", "entry_point": "train_nowhere.py"}], ranks=[3])

    assert any("train_nowhere.py" in each for each in found)
