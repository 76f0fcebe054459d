"""The part of Airflow's REST API (v2) that the launcher uses."""

from __future__ import annotations

import json
import time
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests

from trainyard.errors import RejectedRequestError
from trainyard.stack.identity import USER

if TYPE_CHECKING:
    from collections.abc import Mapping

PAUSES_S = (0.5, 1.0, 2.0)
"""Pauses in seconds before a request that had a 5xx response is sent again; a POST is sent once."""
TIMEOUT_S = 120
"""Longest wait for a response, in seconds: an api-server on a busy machine is slow but alive."""


class AirflowApi:
    """A client of one api-server. It logs in on first use, and again when its token expires.

    Methods raise `requests.RequestException` if the api-server does not respond, or responds with 5xx several times.
    """

    def __init__(self, url: str, *, password: str) -> None:
        self._url = url
        self._password = password
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the user's shell has no business on loopback

    def health(self) -> dict[str, Any] | None:
        """Return the state of Airflow's services by name; None without a successful response."""
        try:
            answer = self._session.get(f"{self._url}/api/v2/monitor/health", timeout=5)
        except requests.RequestException:
            return None
        return dict(answer.json()) if answer.ok else None

    def has_dag(self, dag_id: str) -> bool:
        """Return whether Airflow has parsed the DAG."""
        return self._call("GET", f"/dags/{quote(dag_id)}", allow_missing=True) is not None

    def import_errors(self) -> list[dict[str, Any]]:
        """Return the DAG files that Airflow could not import, each with `filename` and `stack_trace`."""
        return list(self._get("/importErrors")["import_errors"])

    def task_order(self, dag_id: str) -> list[str]:
        """Return the DAG's task ids, each after its upstream tasks."""
        tasks = self._get(f"/dags/{quote(dag_id)}/tasks")["tasks"]
        graph: dict[str, set[str]] = {str(task["task_id"]): set() for task in tasks}
        for task in tasks:
            for downstream in task.get("downstream_task_ids") or ():
                graph[str(downstream)].add(str(task["task_id"]))
        return list(TopologicalSorter(graph).static_order())

    def set_paused(self, dag_id: str, *, paused: bool) -> None:
        """Pause or unpause a DAG; a run of a paused DAG waits."""
        self._call("PATCH", f"/dags/{quote(dag_id)}", body={"is_paused": paused})

    def trigger(self, dag_id: str, *, conf: Mapping[str, Any]) -> str:
        """Start a run and return its id.

        Raises RejectedRequestError with Airflow's message if the conf does not match the params.
        """
        body = {"logical_date": None, "conf": dict(conf)}
        answer = self._call("POST", f"/dags/{quote(dag_id)}/dagRuns", body=body)
        return str((answer or {})["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return a run: `state`, `start_date`, `end_date`, ..."""
        return self._get(_run_path(dag_id, run_id))

    def unfinished_runs(self, dag_id: str) -> list[str]:
        """Return the ids of the runs that are queued or running."""
        answer = self._get(f"/dags/{quote(dag_id)}/dagRuns?state=queued&state=running&limit=100")
        return [str(run["dag_run_id"]) for run in answer["dag_runs"]]

    def fail_run(self, dag_id: str, run_id: str) -> None:
        """Mark a run as failed. This ends its tasks, and they stop their jobs."""
        self._call("PATCH", _run_path(dag_id, run_id), body={"state": "failed"})

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the run's task instances: `task_id`, `state`, `try_number`, `duration`, ..."""
        return list(
            self._get(f"{_run_path(dag_id, run_id)}/taskInstances?limit=200")["task_instances"]
        )

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str) -> Any:
        """Return an XCom value; None if the task has not pushed it."""
        path = (
            f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key)}"
        )
        entry = self._call("GET", f"{path}?deserialize=false", allow_missing=True)
        return None if entry is None else _decoded(entry["value"])

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[dict[str, Any]]:
        """Return a task log's lines: `timestamp`, `level`, `event` and, for some, `error_detail`."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/logs/{try_number}"
        answer = self._call("GET", f"{path}?full_content=true", allow_missing=True) or {}
        return [line for line in answer.get("content", []) if isinstance(line, dict)]

    def _get(self, path: str) -> dict[str, Any]:
        return self._call("GET", path) or {}

    def _call(
        self, method: str, path: str, *, body: object = None, allow_missing: bool = False
    ) -> dict[str, Any] | None:
        if "Authorization" not in self._session.headers:
            self._log_in()
        answer = self._send(method, path, body)
        if answer.status_code == requests.codes.unauthorized:
            self._log_in()
            answer = self._send(method, path, body)
        if answer.status_code == requests.codes.not_found and allow_missing:
            return None
        if answer.status_code >= requests.codes.server_error:
            answer.raise_for_status()
        if not answer.ok:
            raise RejectedRequestError(
                _reason(answer),
                operation=f"{method} {path}",
                code=str(answer.status_code),
                where=f"{method} {path}, which Airflow rejected with status {answer.status_code}",
            )
        return dict(answer.json() or {}) if answer.content else {}

    def _send(self, method: str, path: str, body: object) -> requests.Response:
        url = f"{self._url}/api/v2{path}"
        for pause_s in () if method == "POST" else PAUSES_S:
            answer = self._session.request(method, url, json=body, timeout=TIMEOUT_S)
            if answer.status_code < requests.codes.server_error:
                return answer
            time.sleep(pause_s)
        return self._session.request(method, url, json=body, timeout=TIMEOUT_S)

    def _log_in(self) -> None:
        self._session.headers.pop("Authorization", None)
        answer = self._session.post(
            f"{self._url}/auth/token",
            json={"username": USER, "password": self._password},
            timeout=TIMEOUT_S,
        )
        answer.raise_for_status()
        self._session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _decoded(value: Any) -> Any:
    """Return an XCom value, which the API returns as a JSON string."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _reason(answer: requests.Response) -> str:
    """Return the server's message as one text.

    The message is the response's `detail`, which is a string or a list of locations and messages. Without
    `detail`, the message is the whole text of the response.
    """
    try:
        detail = answer.json().get("detail", answer.text)
    except ValueError:
        detail = answer.text
    if isinstance(detail, list):
        return "; ".join(
            f"{'.'.join(str(at) for at in item.get('loc', ()))}: {item.get('msg', item)}"
            for item in detail
        )
    return str(detail)
