"""Every DAG file parses, quickly, and is accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from datetime import timedelta

import pytest
from airflow.sdk.exceptions import ParamValidationError

from tests.dags.airflow_home import REPOSITORY
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.tasks.end_to_end.params import FORM

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PIPELINES = {"train_end_to_end": "train_end_to_end.py", "train_on_schedule": "train_end_to_end.py"}
DAG_IDS = {
    **PIPELINES,
    "clean_up_orphans": "janitor.py",
    "plan_training": "plan_training.py",
    "autopilot_tabular": "autopilot_tabular.py",
    "tune_mapped": "tune_mapped.py",
    "compare_strategies": "compare_strategies.py",
    "train_own_script": "train_own_script.py",
    "fine_tune": "fine_tune.py",
}
PIPELINE_TASKS = [
    *(
        "preflight",
        "shard",
        "smoke_test",
        "tune",
        "train",
        "evaluate",
        "register",
        "report",
        "outcome",
    ),
]
MONITORED_TASKS = [
    *("preflight", "shard", "smoke_test", "tune", "train", "watch_rules", "set_up_monitoring"),
    *("tear_down_monitoring", "evaluate", "register", "report", "outcome"),
]
SCRIPT_TASKS = [each for each in MONITORED_TASKS if each not in {"shard", "tune"}]
FINE_TUNE_TASKS = ["preflight", "check_data", *SCRIPT_TASKS[1:]]
AUTOML_TASKS = ["prepare", "search", "evaluate", "register", "report", "outcome"]
ROUNDS = [f"{kind}_{number}" for number in range(1, 7) for kind in ("ask", "trials")]
TASKS = dict.fromkeys(PIPELINES, MONITORED_TASKS) | {
    "clean_up_orphans": ["stop_orphans"],
    "plan_training": ["plan"],
    "autopilot_tabular": AUTOML_TASKS,
    "compare_strategies": ["preflight", "shard", "plan", "cells", "report", "outcome"],
    "train_own_script": SCRIPT_TASKS,
    "fine_tune": FINE_TUNE_TASKS,
    "tune_mapped": [*PIPELINE_TASKS[:2], *ROUNDS, *PIPELINE_TASKS[3:]],
}
HEAVY = ["torch", "pandas", "pyarrow", "numpy", "sagemaker", "matplotlib", "boto3", "botocore"]
HEAVY += ["aiobotocore", "moto", "airflow.providers.amazon.aws", "trainyard.runs.report.page"]
PARSE_LIMIT = 0.22
"""CPU time of a DAG file as a share of what importing Airflow takes in the same process."""

DAG_FILES = sorted({file.removesuffix(".py") for file in DAG_IDS.values()})
USER_FILE = "specs_of_operators"
"""A DAG file of a user, with a spec of each kind of job."""

MEASURE = """
import json, os, sys, time
import airflow.sdk
from airflow.sdk import Asset, AssetOrTimeSchedule, BaseOperator, CronTriggerTimetable, DAG, Param
from airflow.providers.standard.operators.empty import EmptyOperator
airflow_s = time.process_time()
for name in 3 * sys.argv[1:]:
    if os.fork() == 0:
        started = time.process_time()
        __import__(name)
        share = (time.process_time() - started) / airflow_s
        print(json.dumps({"name": name, "share": share, "modules": sorted(sys.modules)}), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


@pytest.fixture(scope="module")
def imports():
    """Share of CPU time and loaded modules of each DAG file, imported in a fork of a process that has Airflow."""
    command = [sys.executable, "-W", "ignore", "-c", MEASURE, *DAG_FILES, USER_FILE]
    path = ":".join(str(REPOSITORY / part) for part in ("include", "plugins", "dags", "tests/dags"))
    environment = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "AIRFLOW_HOME": "/nonexistent"}
    from tests.dags.airflow_home import prepared_airflow_home

    environment["AIRFLOW_HOME"] = str(prepared_airflow_home())
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    # What else the machine does adds to CPU time, too: the least of three is the file's own.
    measured.sort(key=lambda each: -each["share"])
    return {each["name"]: each for each in measured}


@pytest.fixture(params=[*DAG_FILES, USER_FILE])
def parsed(request, imports):
    """Share of CPU time and loaded modules of one DAG file."""
    return imports[request.param]


def test_no_dag_file_fails_to_import(bag):
    assert bag.import_errors == {}


def test_a_wrong_spec_of_a_users_dag_is_an_import_error_with_all_problems(tmp_path):
    from airflow.dag_processing.dagbag import DagBag

    text = (REPOSITORY / "tests" / "dags" / f"{USER_FILE}.py").read_text()
    wrong = text.replace('"entry_point": "train.py"', '"entry_pont": "train.py", "max_run": 0')
    file = tmp_path / f"{USER_FILE}.py"
    file.write_text(wrong)

    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")

    assert bag.dags == {}
    (error,) = bag.import_errors.values()
    assert "TrainingJobOperator train: 4 problem(s)" in error
    assert "spec.entry_pont: is an unknown key; did you mean 'entry_point'?" in error
    assert "spec.max_run: is too small; got 0; allowed: at least 1" in error


def test_every_dag_file_is_accounted_for(bag):
    files = {path.name for path in (REPOSITORY / "dags").glob("*.py")}
    assert files == set(DAG_IDS.values())
    assert {dag_id: dag.fileloc.rpartition("/")[2] for dag_id, dag in bag.dags.items()} == DAG_IDS


@pytest.mark.slow
def test_dag_file_parses_within_its_limit(parsed):
    assert parsed["share"] < PARSE_LIMIT


def test_parsing_loads_no_heavy_module(parsed):
    loaded = set(parsed["modules"])
    assert [name for name in HEAVY if name in loaded] == []


def test_package_is_imported_by_its_own_name_only(parsed):
    bare = {"links", "retry_policy", "operators", "triggers", "hooks", "tasks", "types_"}
    assert not bare & set(parsed["modules"])
    assert "plugins.trainyard_airflow" not in parsed["modules"]


def test_plugin_loader_sees_one_file_and_no_module_of_the_package():
    from airflow._shared.module_loading.file_discovery import find_path_from_directory

    folder = str(REPOSITORY / "plugins")
    found = [str(path) for path in find_path_from_directory(folder, ".airflowignore", "glob")]
    python = [path for path in found if path.endswith(".py")]
    assert [path.rpartition("/")[2] for path in python] == ["trainyard_plugin.py"]


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_dag_says_who_what_and_how_often(bag, dag_id):
    dag = bag.dags[dag_id]
    assert dag.doc_md
    assert dag.tags
    assert dag.owner == "trainyard"
    assert dag.max_active_runs >= 1
    assert [task.task_id for task in dag.topological_sort()] == TASKS[dag_id]


def test_every_job_is_retried_by_the_table_of_errors(bag):
    jobs = [
        task
        for dag in bag.dags.values()
        for task in dag.tasks
        if hasattr(task, "spec") or task.is_mapped
    ]
    kinds = {task.task_id: type(task.retry_policy).__name__ for task in jobs}
    assert {"train", "trials_1", "cells", "evaluate"} <= set(kinds)
    assert set(kinds.values()) == {"TrainingRetryPolicy"}


@pytest.mark.parametrize("dag_id", ["train_end_to_end", "train_on_schedule", "tune_mapped"])
def test_every_evaluation_of_a_run_can_be_the_training_s_own(bag, dag_id):
    assert bag.dags[dag_id].get_task("evaluate").task_type == "EvaluationJobOperator"


@pytest.mark.parametrize("dag_id", sorted(PIPELINES))
def test_report_runs_after_a_failure_and_the_outcome_decides_the_run(bag, dag_id):
    dag = bag.dags[dag_id]
    assert dag.get_task("report").is_teardown
    # Before such a teardown no task is a last one for Airflow, so a failed watch_rules does not fail the run.
    assert dag.get_task("report").on_failure_fail_dagrun
    assert dag.get_task("watch_rules").downstream_task_ids == {"report"}
    assert dag.get_task("outcome").upstream_task_ids == {"register", "report"}
    assert dag.get_task("outcome").trigger_rule == "all_success"


@pytest.mark.parametrize("dag_id", sorted(PIPELINES))
def test_training_follows_the_shards_also_where_the_search_is_skipped(bag, dag_id):
    dag = bag.dags[dag_id]
    assert dag.get_task("tune").upstream_task_ids == {"preflight", "shard", "smoke_test"}
    assert dag.get_task("train").upstream_task_ids == {"shard", "smoke_test", "tune"}
    assert dag.get_task("tune").trigger_rule == "none_failed_min_one_success"
    assert dag.get_task("train").trigger_rule == "none_failed_min_one_success"


@pytest.mark.parametrize("dag_id", sorted(PIPELINES))
def test_alarms_are_set_up_around_the_training_and_removed_whatever_happens(bag, dag_id):
    dag = bag.dags[dag_id]
    set_up, tear_down = dag.get_task("set_up_monitoring"), dag.get_task("tear_down_monitoring")
    assert set_up.is_setup
    assert set_up.upstream_task_ids == {"preflight"}
    assert set_up.downstream_task_ids == {"tear_down_monitoring"}
    assert tear_down.upstream_task_ids == {"train", "set_up_monitoring"}
    assert tear_down.is_teardown
    assert not tear_down.on_failure_fail_dagrun
    assert tear_down.trigger_rule == "all_done_setup_success"


def test_the_training_knows_whom_to_tell(bag):
    for dag_id in (*PIPELINES, "tune_mapped"):
        assert "['notifier'] | tojson" in bag.dags[dag_id].get_task("train").notifier


def test_scheduled_variant_starts_by_time_and_by_asset(bag):
    schedule = bag.dags["train_on_schedule"].timetable
    assert schedule.timetable.expression == "0 3 * * 1"
    uris = [asset.uri for asset in schedule.asset_condition.objects]
    assert uris == ["x-trainyard://dataset"]


def test_tasks_carry_no_copies_of_their_dags_params(bag):
    copies = {
        f"{dag_id}.{task.task_id}": sorted(task.params)
        for dag_id, dag in bag.dags.items()
        for task in dag.tasks
        if len(dag.tasks) > 1 and getattr(task, "params", None)
    }
    assert copies == {}


def test_params_are_the_fields_of_the_run_conf():
    params = FORM.params()
    assert set(params) == {each.name for each in fields(RunConf)}
    assert RunConf.from_mapping({name: param.value for name, param in params.items()}) == RunConf()


@pytest.mark.parametrize("dag_id", ["train_end_to_end", "train_own_script", "fine_tune"])
def test_form_begins_with_what_most_runs_change(bag, dag_id):
    params = bag.dags[dag_id].params
    sections = [params.get_param(name).schema["section"] for name in params]

    basics = [each for each in sections if each == "Basics"]
    assert sections[: len(basics)] == basics
    assert 5 <= len(basics) <= 8


@pytest.mark.parametrize(
    ("dag_id", "required"),
    [
        ("train_own_script", {"entry_point", "source_dir"}),
        ("fine_tune", {"base_model", "train_data"}),
    ],
)
def test_a_script_needs_no_more_than_its_place_and_data(bag, dag_id, required):
    params = bag.dags[dag_id].params
    refused = set()
    for name in params:
        try:
            params.get_param(name).resolve()
        except ParamValidationError:
            refused.add(name)

    assert refused == required


def test_every_param_has_title_and_section_and_accepts_its_default():
    for name, param in FORM.params().items():
        assert param.schema["title"], name
        assert param.schema["section"], name
        param.resolve()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("instance_count", -1),
        ("instance_type", "m5.large"),
        ("max_steps", "many"),
        ("precision", "fp64"),
        ("validation_fraction", 1),
        ("sample_fraction", 0),
        ("learning_rate", 0),
        ("model", "llama"),
        ("use_spot_instances", "yes"),
        ("budget_usd", -1),
        ("prefix", "/no"),
        ("bucket", "s3://bucket"),
        ("role", "not a role!"),
        ("evaluation_instance_type", "large"),
        ("ignore_columns", "id"),
        ("tune", "perhaps"),
        ("tuning_strategy", "Genetic"),
        ("tuning_objective", "loss"),
        ("tuning_max_jobs", 0),
        ("tuning_max_jobs", 751),
        ("tuning_budget_share", 1),
        ("tuning_max_time_s", 60),
        ("tuning_ranges", {"learning_rate": 0.1}),
        ("notifications", {"topic_arn": "training"}),
        ("notifications", {"topic_arn": "arn:aws:sns:us-east-1:111122223333:t", "on": ["spt"]}),
        ("notifications", {"on": ["spot"]}),
        ("monitoring", {"alarm": True}),
        ("monitoring", {"dashboard": "forever"}),
        ("tuning_ranges", {"learning_rate": {"scaling_type": "Log"}}),
        ("max_steps", 10**30),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("learning_rate", None),
        ("budget_usd", float("inf")),
        ("budget_usd", float("nan")),
        ("capacity_ladder", [{"instance_type": "ml.m5.large", "max_cost_usd": float("nan")}]),
        ("hyperparameters", {"dropout": float("nan")}),
        ("hyperparameters", {"epochs": 10**30}),
        ("image_uri", "docker.io/evil/img:latest; rm -rf /"),
        ("prefix", "a/../../x"),
        ("prefix", "trainyard\n"),
        ("bucket", "my-bucket\n"),
        ("source", "a\0b"),
        ("source", "x" * 5000),
    ],
)
def test_schema_refuses_a_wrong_value(name, value):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        FORM.params()[name].resolve(value)


def numbers(schema, path):
    """Yield every schema of a number with its place."""
    types = schema.get("type", ())
    if {"integer", "number"} & ({types} if isinstance(types, str) else set(types)):
        yield path, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from numbers(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if inner := schema.get(key):
            yield from numbers(inner, f"{path}.{key}")


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_every_number_has_a_minimum_and_a_maximum(bag, dag_id):
    found = [
        each
        for name in bag.dags[dag_id].params
        for each in numbers(bag.dags[dag_id].params.get_param(name).schema, name)
    ]

    unbounded = [
        path
        for path, schema in found
        if not {"minimum", "exclusiveMinimum"} & set(schema)
        or not {"maximum", "exclusiveMaximum"} & set(schema)
    ]
    assert unbounded == []
    assert found


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_every_param_says_what_it_is(bag, dag_id):
    params = bag.dags[dag_id].params
    silent = [name for name in params if not params.get_param(name).description]
    assert silent == []


def test_unknown_default_of_a_param_is_refused():
    with pytest.raises(KeyError, match="max_stepz"):
        replace(FORM, defaults={"max_stepz": 3})


def test_job_tasks_wait_deferred_with_retries(bag):
    for task_id in ("tune", "train", "evaluate"):
        task = bag.dags["train_end_to_end"].get_task(task_id)
        assert task.deferrable
        assert task.retries == 3
        assert task.retry_delay == timedelta(seconds=10)


def test_janitor_comes_every_quarter_of_an_hour_and_never_twice_at_once(bag):
    dag = bag.dags["clean_up_orphans"]
    assert dag.timetable.expression == "*/15 * * * *"
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert {name: param.value for name, param in dag.params.items()} == {
        "dry_run": False,
        "grace_minutes": 5,
    }
