"""A conf that the params refuse is answered with all its problems, by Airflow's own API server."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from trainyard_airflow.conf_refusal import _Nesting
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.shared.schema_findings import conf_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.testclient import TestClient

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WRONG = {
    "max_steps": -5,
    "learning_rate": "fast",
    "precision": "fp64",
    "instance_type": "m5.large",
    "max_stps": 5,
    "tuning_ranges": {"learning_rate": {"scaling_type": "Log"}},
}


@pytest.fixture(scope="module")
def server(database: Callable[[str], Any]) -> Iterator[TestClient]:
    """Airflow's API server, in this process, whose every caller is an admin."""
    from airflow.api_fastapi.app import create_app
    from starlette.testclient import TestClient

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True")
        environment.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "x" * 64)
        client = TestClient(create_app(), headers={"Accept-Encoding": "gzip"})
        token = client.get("/auth/token").json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def refused(server: TestClient, conf: object, dag_id: str = "train_end_to_end") -> str:
    body = {"logical_date": None, "conf": conf}
    answer = server.post(f"/api/v2/dags/{dag_id}/dagRuns", json=body)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["detail"])


def test_rest_answers_with_every_problem_of_the_conf(server: TestClient) -> None:
    detail = refused(server, WRONG)

    assert (
        "Invalid input for train_end_to_end: 6 problem(s) to fix before anything starts" in detail
    )
    assert "max_steps: is too small; got -5; allowed: at least 1" in detail
    assert "learning_rate: has the wrong type; got 'fast'; allowed: a number" in detail
    assert "precision: is not an allowed value; got 'fp64'; allowed: auto, " in detail
    assert (
        "instance_type: is malformed; got 'm5.large'; allowed: an instance type such as ml.m5.large"
        in detail
    )
    assert "max_stps: is an unknown key; did you mean 'max_steps'?" in detail
    assert "tuning_ranges.learning_rate.scaling_type: is not an allowed value; got 'Log'" in detail
    assert "schema" not in detail


def test_a_refusal_for_another_reason_passes_unchanged(server: TestClient) -> None:
    body = {"logical_date": None, "conf": {}, "dag_run_id": "scheduled__2026-01-01"}

    answer = server.post("/api/v2/dags/train_end_to_end/dagRuns", json=body)

    assert answer.status_code == 400
    assert "is reserved for scheduled runs" in answer.json()["detail"]


def test_a_long_conf_is_answered_at_once_in_airflows_words(server: TestClient) -> None:
    began = time.process_time()

    detail = refused(server, {**WRONG, "text": "x" * 60_000_000})

    assert detail.startswith("Invalid input for param ")
    assert time.process_time() - began < 10  # Copied for each chunk it takes 14 s and more.


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [101, 400, 100_000])
@pytest.mark.parametrize("padding", [0, 3_000_000], ids=["short", "long"])
def test_a_conf_that_is_nested_too_deeply_is_refused_and_starts_nothing(
    server: TestClient, levels: int, padding: int
) -> None:
    runs = "/api/v2/dags/train_end_to_end/dagRuns"
    before = server.get(runs).json()["total_entries"]
    text = "[" * (levels - 1) + "]" * (levels - 1)
    body = f'{{"logical_date": null, "conf": {{"pad": "{"x" * padding}", "zzz": {text}}}}}'

    answer = server.post(runs, content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 400, answer.text
    assert "conf: is nested too deeply; got more than 100 levels" in answer.json()["detail"]
    assert server.get(runs).json()["total_entries"] == before


def test_a_hundred_levels_and_brackets_in_texts_start_a_run(server: TestClient) -> None:
    body = {"logical_date": None, "conf": {"zzz": nested(99), "yyy": '\\"[{' * 200}}

    answer = server.post("/api/v2/dags/train_end_to_end/dagRuns", json=body)

    assert answer.json()["conf"] == body["conf"]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_the_depth_does_not_depend_on_how_the_body_is_cut(size: int) -> None:
    text = json.dumps({"a": [["\\", '"[[[[', "[\\\\"], {"b": [1]}]}).encode()
    for most, is_exceeded in ((3, True), (4, False)):
        nesting = _Nesting()
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert any(nesting.exceeds(each, most) for each in chunks) is is_exceeded


def test_a_name_that_resembles_none_is_not_a_fault_and_an_absent_param_is(
    server: TestClient,
) -> None:
    detail = refused(server, {"zzz": 1, "environment": 5}, dag_id="train_own_script")

    assert "entry_point: is required; allowed: text" in detail
    assert "environment: has the wrong type; got 5; allowed: a mapping" in detail
    assert "zzz" not in detail


def test_a_request_without_a_conf_names_what_is_required(server: TestClient) -> None:
    answer = server.post("/api/v2/dags/train_own_script/dagRuns", json={"logical_date": None})

    assert answer.status_code == 400
    assert "entry_point: is required" in answer.json()["detail"]


def test_a_good_conf_starts_a_run(server: TestClient) -> None:
    body = {"logical_date": None, "conf": {"max_steps": 5}}

    answer = server.post("/api/v2/dags/train_end_to_end/dagRuns", json=body)

    assert answer.json()["conf"] == {"max_steps": 5}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("num_layers", 10**30, "num_layers: is too large; got 1000"),
        ("num_layers", 1.5, "has the wrong type; got 1.5; allowed: a whole number"),
        ("budget_usd", True, "has the wrong type; got True; allowed: a number or nothing"),
        ("ignore_columns", ["a", 5], "ignore_columns[1]: has the wrong type; got 5; allowed: text"),
        ("source", "", "source: is too short; got ''; allowed: at least 1 character(s)"),
    ],
)
def test_a_finding_names_place_value_and_what_is_allowed(
    name: str, value: object, says: str
) -> None:
    schemas = {each: param.schema for each, param in FORM.params().items()}

    (finding,) = conf_findings(schemas, {name: value})

    assert says in str(finding)


def test_the_defaults_have_no_finding() -> None:
    params = FORM.params()
    schemas = {each: param.schema for each, param in params.items()}

    assert not list(conf_findings(schemas, {name: each.value for name, each in params.items()}))
