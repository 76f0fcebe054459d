"""The pool of training instances holds every training and every search of every DAG, by Airflow's own policy call."""

from __future__ import annotations

from functools import cache
from typing import Any
from uuid import uuid4

import airflow.settings  # first: it imports the policy, which imports it
import pytest

from trainyard.planning.pool_slots import PoolDemand
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.cluster_policy import activate, task_instance_mutation_hook
from trainyard_airflow.operators.training_job import TrainingJobOperator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

POOL = "training_instances"
CONF = {"instance_count": 4, "tuning_max_parallel_jobs": 3, "cells_at_once": 2}
SLOTS = {
    PoolDemand.TRAINING: 4,
    PoolDemand.SEARCH: 12,
    PoolDemand.TRIAL: 4,
    PoolDemand.CELL: 8,
}
TRAINING_KINDS = {JobKind.TRAINING, JobKind.TUNING}


@pytest.fixture(autouse=True)
def pool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", POOL)


def operator_class(task: Any) -> type:
    return task.operator_class if task.is_mapped else type(task)


@cache
def stored(dag: Any) -> Any:
    """Return the DAG as the scheduler has it: serialised, and read back."""
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


def scheduled(dag: Any, task_id: str, conf: dict[str, Any] | None = CONF) -> Any:
    """Return a task's instance as the scheduler makes it: from the stored DAG, with its run."""
    from airflow.models.dagrun import DagRun  # noqa: TID251  # the scheduler's own objects
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251  # likewise

    task = stored(dag).get_task(task_id)
    instance = TaskInstance(task, run_id="run", dag_version_id=None)
    run = None if conf is None else DagRun(dag_id=dag.dag_id, run_id="run", conf=conf)
    instance.refresh_from_task(task, dag_run=run)
    return instance


def takes_instances(task: Any) -> bool:
    return getattr(operator_class(task), "job_kind", None) in TRAINING_KINDS


ON_CPUS = {"instance_type": "ml.m5.large"}


def of(count: int) -> dict[str, Any]:
    return {**ON_CPUS, "instance_count": count}


def every_task(bag: Any) -> list[tuple[Any, Any]]:
    return [(dag, task) for dag in bag.dags.values() for task in dag.tasks]


def test_every_task_that_takes_training_instances_is_in_the_pool_and_no_other(bag: Any) -> None:
    placed = {
        f"{dag.dag_id}.{task.task_id}": scheduled(dag, task.task_id).pool
        for dag, task in every_task(bag)
    }
    wanted = {
        f"{dag.dag_id}.{task.task_id}": POOL if takes_instances(task) else "default_pool"
        for dag, task in every_task(bag)
    }

    assert placed == wanted
    for name in ("train_end_to_end.train", "train_on_schedule.tune", "compare_strategies.cells"):
        assert placed[name] == POOL


def test_each_of_them_has_the_slots_of_its_instances(bag: Any) -> None:
    for dag, task in every_task(bag):
        if takes_instances(task):
            demand = PoolDemand(operator_class(task).custom_operator_name)
            assert scheduled(dag, task.task_id).pool_slots == SLOTS[demand], task.task_id


def test_an_operator_of_a_users_own_is_in_the_pool(bag: Any) -> None:
    from airflow.sdk import DAG

    class OwnTraining(TrainingJobOperator):
        pass

    with DAG(uuid4().hex, schedule=None) as dag:
        OwnTraining(task_id="own", spec=ON_CPUS)
        OwnTraining.partial(task_id="mapped").expand(spec=[{}])

    for task_id in ("own", "mapped"):
        instance = scheduled(dag, task_id)
        assert (instance.pool, instance.pool_slots) == (POOL, 4)


@pytest.mark.parametrize(
    ("count", "conf", "slots"),
    [
        (5, {}, 5),
        (5, {"instance_count": 2}, 5),
        ("{{ params.machines }}", {}, 3),
        ("{{ params.machines }}", {"machines": 7}, 7),
        ("{{ params['machines'] }}", {"machines": 99}, 16),
        ("{{ dag_run.conf['machines'] }}", {"machines": 6}, 6),
        ("{{ ti.xcom_pull('plan') }}", {"instance_count": 9}, 9),
        (None, {}, 4),
    ],
)
def test_a_training_of_an_own_dag_has_the_slots_of_its_own_spec(
    count: object, conf: dict[str, Any], slots: int
) -> None:
    from airflow.sdk import DAG, Param

    given = {} if count is None else {"instance_count": count}
    params = {"machines": Param(3), "instance_count": Param(4)}
    with DAG(uuid4().hex, schedule=None, params=params) as dag:
        TrainingJobOperator(task_id="own", spec={"entry_point": "train.py", **ON_CPUS, **given})

    assert scheduled(dag, "own", conf).pool_slots == slots


def test_the_instances_of_a_spec_may_be_groups() -> None:
    from airflow.sdk import DAG

    groups = [
        {"instance_group_name": "a", "instance_count": 2, **ON_CPUS},
        {"instance_group_name": "b", "instance_count": "{{ params.more }}", **ON_CPUS},
    ]
    with DAG(uuid4().hex, schedule=None, params={"more": 3}) as dag:
        TrainingJobOperator(task_id="own", spec={"instance_groups": groups})
        TrainingJobOperator.partial(task_id="mapped").expand(
            spec=[{"instance_count": 4}, {"instance_count": 6}]
        )

    assert scheduled(dag, "own", {}).pool_slots == 5
    assert scheduled(dag, "mapped", {}).pool_slots == 6


def test_a_pipeline_with_defaults_of_its_own_has_their_slots() -> None:
    from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

    dag = script_pipeline(dag_id=uuid4().hex, entry_point="train.py", instance_count=8)

    assert scheduled(dag, "train", {}).pool_slots == 8
    assert scheduled(dag, "train", {"instance_count": 2}).pool_slots == 2


def test_a_pool_that_the_dags_author_chose_stays(bag: Any) -> None:
    from airflow.sdk import DAG

    with DAG(uuid4().hex, schedule=None) as dag:
        TrainingJobOperator(task_id="own", spec=ON_CPUS, pool="reserved")

    assert (scheduled(dag, "own").pool, scheduled(dag, "own").pool_slots) == ("reserved", 1)


def test_each_of_several_pools_has_the_slots_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import DAG

    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", f"{POOL}, team_a_instances")
    monkeypatch.setenv("TRAINYARD_TRAINING_POOL_SLOTS", "16, 3")
    with DAG(uuid4().hex, schedule=None) as dag:
        TrainingJobOperator(task_id="own", spec=of(4))
        TrainingJobOperator(task_id="team", spec=of(4), pool="team_a_instances")
        TrainingJobOperator(task_id="small", spec=of(2), pool="team_a_instances")
        TrainingJobOperator(task_id="other", spec=of(4), pool="reserved")

    placed = {each: scheduled(dag, each) for each in ("own", "team", "small", "other")}

    assert {task_id: (each.pool, each.pool_slots) for task_id, each in placed.items()} == {
        "own": (POOL, 4),
        "team": ("team_a_instances", 3),
        "small": ("team_a_instances", 2),
        "other": ("reserved", 1),
    }


PLANNED = {"instance_type": "{{ ti.xcom_pull('plan') }}"}
FAMILIES = "p4d=ml.p4d.*|ml.p4de.*, a_p4d@aws_a=ml.p4d.*, team_a@aws_a, training_instances"
LADDER = [{"instance_type": "ml.p4d.24xlarge"}, {"instance_type": "ml.g5.12xlarge"}]


@pytest.mark.parametrize(
    ("named", "spec", "connection", "conf", "pool"),
    [
        (FAMILIES, {"instance_type": "ml.p4de.24xlarge"}, "aws_default", {}, "p4d"),
        (FAMILIES, {"instance_type": "ml.g5.xlarge"}, "aws_default", {}, POOL),
        (FAMILIES, {"instance_type": "ml.g5.xlarge"}, "aws_a", {}, "team_a"),
        (FAMILIES, PLANNED, "aws_default", {"instance_type": "ml.p4d.24xlarge"}, "p4d"),
        (FAMILIES, PLANNED, "aws_default", {}, POOL),
        (FAMILIES, PLANNED, "{{ params.who }}", {"who": "aws_a"}, "team_a"),
        (FAMILIES, {"instance_type": "{{ params.kind }}"}, "x", {"kind": "ml.p4d.24xlarge"}, "p4d"),
        (FAMILIES, {"capacity_ladder": LADDER, "max_run": 3600}, "aws_default", {}, "p4d"),
        (
            FAMILIES.partition(",")[2],
            {"capacity_ladder": LADDER, "max_run": 3600},
            "aws_a",
            {},
            "a_p4d",
        ),
        ("p4d=ml.p4d.*", {"instance_type": "ml.g5.xlarge"}, "aws_default", {}, "default_pool"),
        ("=ml.g5.*, all", {"instance_type": "ml.g5.xlarge"}, "aws_default", {}, "all"),
    ],
    ids=[
        *("a family", "another family", "a connection", "the conf's type", "the default type"),
        *("a template of a connection", "a template of a type", "a ladder's first type"),
        *("a family of a connection", "no pool fits", "an entry without a name"),
    ],
)
def test_a_pool_may_be_of_an_instance_family_and_of_a_connection(
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    spec: dict[str, Any],
    connection: str,
    conf: dict[str, Any],
    pool: str,
) -> None:
    from airflow.sdk import DAG

    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", named)
    with DAG(uuid4().hex, schedule=None) as dag:
        TrainingJobOperator(
            task_id="own", spec={"instance_count": 3, **spec}, aws_conn_id=connection
        )
        TrainingJobOperator.partial(task_id="mapped", aws_conn_id=connection).expand(
            spec=[{"instance_count": 3, **spec}]
        )

    slots = 1 if pool == "default_pool" else 3
    for task_id in ("own", "mapped"):
        placed = scheduled(dag, task_id, conf)
        assert (placed.pool, placed.pool_slots) == (pool, slots), task_id


def test_a_shipped_dag_of_another_connection_is_in_the_pool_of_it(
    bag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", "mine@aws_default=ml.m5.*, other")
    dag = bag.dags["train_end_to_end"]

    assert scheduled(dag, "train").pool == "mine"
    assert scheduled(dag, "train", {"instance_type": "ml.g5.xlarge"}).pool == "other"
    assert scheduled(dag, "tune", {"instance_type": "ml.g5.xlarge"}).pool == "other"


def test_each_pool_of_a_family_has_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import DAG

    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", f"p4d=ml.p4d.*, {POOL}")
    monkeypatch.setenv("TRAINYARD_TRAINING_POOL_SLOTS", "2, 16")
    with DAG(uuid4().hex, schedule=None) as dag:
        for name in ("p4d.24xlarge", "g5.xlarge"):
            spec = {"instance_count": 4, "instance_type": f"ml.{name}"}
            TrainingJobOperator(task_id=name, spec=spec)

    assert scheduled(dag, "p4d.24xlarge").pool_slots == 2
    assert scheduled(dag, "g5.xlarge").pool_slots == 4


@pytest.mark.parametrize(
    ("pool", "conf"), [("", CONF), (POOL, None)], ids=["no pool is named", "the run is not known"]
)
def test_without_a_pool_or_a_run_nothing_is_changed(
    bag: Any, monkeypatch: pytest.MonkeyPatch, pool: str, conf: dict[str, Any] | None
) -> None:
    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", pool)
    instance = scheduled(bag.dags["train_end_to_end"], "train", conf)

    assert (instance.pool, instance.pool_slots) == ("default_pool", 1)


def test_the_policy_is_applied_anew_to_a_task_that_is_cleared(bag: Any) -> None:
    instance = scheduled(bag.dags["train_end_to_end"], "train")
    instance.refresh_from_task(instance.task, dag_run=None)
    assert instance.pool == "default_pool"

    from airflow.models.dagrun import DagRun  # noqa: TID251  # the scheduler's own objects

    run = DagRun(dag_id="train_end_to_end", run_id="run", conf={"instance_count": 99})
    instance.refresh_from_task(instance.task, pool_override=POOL, dag_run=run)

    assert (instance.pool, instance.pool_slots) == (POOL, 16)


def test_a_task_is_in_the_trace_of_its_run_although_a_policy_is_installed(bag: Any) -> None:
    """Airflow 3.3 gives a task no span if the hook of any policy is called for it."""
    from airflow.models.dagrun import DagRun  # noqa: TID251  # the scheduler's own objects

    instance = scheduled(bag.dags["train_end_to_end"], "preflight", conf=None)
    assert instance.context_carrier is None
    run = DagRun(dag_id="train_end_to_end", run_id="run", conf={})
    trace_id = run.context_carrier["traceparent"].split("-")[1]

    instance.refresh_from_task(instance.task, dag_run=run)
    given = dict(instance.context_carrier)
    instance.refresh_from_task(instance.task, dag_run=run)

    assert given["traceparent"].split("-")[1] == trace_id
    assert instance.context_carrier == given


@pytest.mark.parametrize(("pools", "is_noop"), [("", True), (POOL, False)], ids=["none", "one"])
def test_airflow_calls_the_hook_only_if_a_pool_is_named(
    monkeypatch: pytest.MonkeyPatch, pools: str, is_noop: bool
) -> None:
    monkeypatch.setattr(airflow.settings.task_instance_mutation_hook, "is_noop", True)
    monkeypatch.setenv("TRAINYARD_TRAINING_POOL", pools)

    activate()

    assert airflow.settings.task_instance_mutation_hook.is_noop == is_noop


def test_a_run_that_cannot_be_read_leaves_its_tasks_where_they_are(
    bag: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the hook would end the scheduler's loop."""
    task = scheduled(bag.dags["train_end_to_end"], "train")
    task.pool, task.pool_slots = "default_pool", 1

    task_instance_mutation_hook(task, dag_run="no run")

    assert (task.pool, task.pool_slots) == ("default_pool", 1)
    assert "stays in its pool" in caplog.text
