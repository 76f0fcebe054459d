"""docker-compose.yaml is what compose accepts, and says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.deployment.compose_file import FILE, LOCAL, SECRETS, environment, services

if TYPE_CHECKING:
    from pathlib import Path

COMPOSE = shutil.which("docker-compose")
AIRFLOW = {"api-server", "scheduler", "dag-processor", "triggerer", "worker", "airflow-init"}
needs_compose = pytest.mark.skipif(COMPOSE is None, reason="docker-compose is not installed")


def compose_config(
    folder: Path, variables: dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    shutil.copy(FILE, folder)
    return subprocess.run(
        [str(COMPOSE), *options, "config"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_compose
def test_compose_accepts_the_file(tmp_path: Path) -> None:
    done = compose_config(tmp_path, SECRETS)
    assert done.returncode == 0, done.stderr


@needs_compose
@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_compose_names_a_secret_that_is_missing(tmp_path: Path, secret: str) -> None:
    done = compose_config(tmp_path, {k: v for k, v in SECRETS.items() if k != secret})
    assert done.returncode != 0
    assert f"set {secret}" in done.stderr.splitlines()[-1]


def test_a_lost_triggerer_has_another_beside_it() -> None:
    triggerer = services(SECRETS)["triggerer"]
    assert triggerer["deploy"]["replicas"] == 2
    assert "container_name" not in triggerer


@pytest.mark.parametrize("service", ["postgres", "redis", "api-server"])
def test_every_image_of_a_registry_may_be_pinned_by_its_digest(service: str) -> None:
    names = ("POSTGRES_IMAGE", "REDIS_IMAGE", "AIRFLOW_IMAGE")
    pinned = services({**SECRETS, **{name: f"{name.lower()}@sha256:0" for name in names}})
    usual = services(SECRETS)

    def base(found: dict[str, dict[str, Any]]) -> str:
        each = found[service]
        return str(each["build"]["args"]["AIRFLOW_IMAGE"] if "build" in each else each["image"])

    assert base(pinned).endswith("_image@sha256:0")
    assert ":" in base(usual)


def test_the_compose_file_names_the_base_image_of_the_dockerfile() -> None:
    default = services(SECRETS)["worker"]["build"]["args"]["AIRFLOW_IMAGE"]

    assert f"ARG AIRFLOW_IMAGE={default}\n" in FILE.with_name("Dockerfile").read_text()


def test_the_engine_runs_only_under_its_profile() -> None:
    profiles = {name: service.get("profiles") for name, service in services(SECRETS).items()}
    assert {name for name, profile in profiles.items() if profile} == {"engine"}
    assert profiles["engine"] == ["local"]


def test_every_long_running_service_has_a_health_check() -> None:
    unchecked = {
        name for name, service in services(SECRETS).items() if "healthcheck" not in service
    }
    assert unchecked == {"airflow-init"}


def test_every_airflow_service_waits_for_the_database_and_the_migration() -> None:
    for name in AIRFLOW - {"airflow-init"}:
        waits_for = services(SECRETS)[name]["depends_on"]
        assert waits_for["airflow-init"] == {"condition": "service_completed_successfully"}
        assert waits_for["postgres"] == {"condition": "service_healthy"}


def test_without_the_profile_the_aws_connection_leads_to_aws() -> None:
    worker = environment(services(SECRETS)["worker"], {})
    connection = json.loads(worker["AIRFLOW_CONN_AWS_DEFAULT"])
    assert "endpoint_url" not in connection["extra"]
    assert "AWS_ENDPOINT_URL" not in worker


def test_with_the_profiles_variables_it_leads_to_the_engine() -> None:
    worker = environment(services(SECRETS)["worker"], LOCAL)
    assert worker["AWS_ENDPOINT_URL"] == "http://engine:4566"


def test_no_secret_is_written_in_the_file() -> None:
    text = FILE.read_text()
    for name in SECRETS:
        assert f"${{{name}:?" in text


def test_the_admins_password_is_no_argument_of_a_program() -> None:
    (script,) = services(SECRETS)["airflow-init"]["command"][2:]
    lines = script.replace("\\\n", " ").splitlines()
    with_password = [line.strip() for line in lines if "ADMIN_PASSWORD" in line]
    assert len(with_password) == 1
    assert with_password[0].startswith("printf ")  # bash's own, not a process
    assert "ADMIN_PASSWORD" not in with_password[0].partition("|")[2]


def test_the_example_env_file_names_every_variable() -> None:
    example = (FILE.parent / ".env.example").read_text()
    assert [name for name in (*SECRETS, *LOCAL) if f"{name}=" not in example] == []
