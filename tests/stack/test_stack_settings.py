"""The stack answers to its home alone, and what it keeps is its owner's."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import stat
import sys
from typing import TYPE_CHECKING

import pytest
from airflow.sdk._shared.secrets_masker import SecretsMasker
from rich.console import Console

from tests.conftest import REPOSITORY
from trainyard.errors import TrainingRunError
from trainyard.stack import components, processes
from trainyard.stack.addresses import LOOPBACK, choose
from trainyard.stack.airflow_environment import ENGINE_SECRET, airflow_environment
from trainyard.stack.background import not_started, up
from trainyard.stack.engine_alone import airflow_export, exports
from trainyard.stack.home import Home
from trainyard.stack.identity import load_or_create
from trainyard.stack.stack import acquire, read_record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.of(tmp_path / "home")
    home.prepare()
    return home


def test_secrets_are_made_once_and_only_the_owner_reads_them(home: Home) -> None:
    identity = load_or_create(home)
    assert load_or_create(home) == identity
    for file in (home.identity, home.passwords):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(home.passwords.read_text()) == {"admin": identity.password}


def test_two_homes_share_no_secret(tmp_path: Path) -> None:
    homes = [Home.of(tmp_path / name) for name in "ab"]
    for home in homes:
        home.prepare()
    first, second = map(load_or_create, homes)
    assert first.jwt_secret != second.jwt_secret
    assert first.password != second.password


def test_the_users_airflow_and_aws_settings_do_not_reach_a_component(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://elsewhere")
    monkeypatch.setenv("LANG", "C.UTF-8")
    env = components.with_environment(home, {})
    assert not {"AWS_PROFILE", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"} & set(env)
    assert env["LANG"] == "C.UTF-8"


def test_airflow_listens_on_loopback_only(home: Home) -> None:
    services = components.airflow_services(home, choose(usual=False), {})
    servers = [service.command for service in services if "api-server" in service.command]
    assert len(servers) == 2
    assert all(command[command.index("--host") + 1] == LOOPBACK for command in servers)


def test_the_engines_secret_is_no_word_of_a_log() -> None:
    """Airflow masks a connection's password in every log: "local" once disappeared from all of them."""
    containing = [
        path.name
        for folder in ("include", "plugins", "dags", "training_scripts")
        for path in (REPOSITORY / folder).rglob("*.py")
        if ENGINE_SECRET in path.read_text()
    ]

    assert containing == ["airflow_environment.py"]
    assert not ENGINE_SECRET.isalpha()


def test_the_aws_connection_leads_to_the_engine(home: Home) -> None:
    addresses = choose(usual=False)
    env = airflow_environment(home=home, identity=load_or_create(home), addresses=addresses)
    connection = json.loads(env["AIRFLOW_CONN_AWS_DEFAULT"])
    assert connection["extra"]["endpoint_url"] == addresses.engine
    trainyard = connection["extra"]["trainyard"]
    assert set(trainyard) == {
        "bucket",
        "execution_role_arn",
        "deployment",
        "rules_poll_interval_s",
        "shortest_poll_s",
        "source_roots",
        "private_folders",
    }
    assert trainyard["private_folders"] == [str(home.path)]


def test_masking_the_engines_secret_leaves_the_words_of_a_log(home: Home) -> None:
    addresses = choose(usual=False)
    env = airflow_environment(home=home, identity=load_or_create(home), addresses=addresses)
    connection = json.loads(env["AIRFLOW_CONN_AWS_DEFAULT"])
    masker = SecretsMasker()
    masker.add_mask(connection["password"])
    masker.add_mask(connection["extra"])
    line = "local_rank: 0 of localhost, engine ready, no local runtime emulates image 'test'"

    assert masker.redact(line) == line
    assert masker.redact(f"key {connection['password']}") == "key ***"


def test_ports_differ_and_are_free() -> None:
    addresses = choose(usual=False)
    ports = {addresses.ui_port, addresses.execution_port, addresses.engine_port}
    assert len(ports) == 3


def test_a_home_has_one_stack_at_a_time(home: Home) -> None:
    held = acquire(home)
    try:
        with pytest.raises(TrainingRunError, match="another stack is using this folder"):
            acquire(home)
    finally:
        held.close()
    acquire(home).close()


def test_a_record_left_by_a_dead_supervisor_is_no_running_stack(home: Home) -> None:
    record = {"pid": 2**22 + 1, "start_ticks": 1, "purpose": "up", "ui": "u", "engine": "e"}
    home.record.write_text(json.dumps(record))
    assert read_record(home) is None


@pytest.mark.parametrize("purpose", ["run", "up"])
def test_up_beside_a_run_names_the_run_and_not_a_stack_that_is_up(home: Home, purpose: str) -> None:
    record = {
        "pid": os.getpid(),
        "start_ticks": processes.process_table()[os.getpid()].start_ticks,
        "purpose": purpose,
        "ui": "http://127.0.0.1:1",
        "engine": "http://127.0.0.1:2",
    }
    home.record.write_text(json.dumps(record))
    console = Console(file=io.StringIO())

    if purpose == "up":
        assert up(home, console=console) == 0
        assert "already up" in console.file.getvalue()
        return
    with pytest.raises(TrainingRunError, match="'make run' is using this folder") as refused:
        up(home, console=console)
    assert "http://127.0.0.1:1" in str(refused.value)


def test_error_of_a_failed_start_ends_with_the_logs_last_line(home: Home) -> None:
    home.logs.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"line {number}\n" for number in range(1000))
    (home.logs / "supervisor.log").write_text(f"{lines}TrainingRunError: the port is taken\n")

    error = not_started(home)

    assert "TrainingRunError: the port is taken" in str(error)
    assert "supervisor.log" in str(error.next_step)


def test_an_engine_that_is_not_installed_is_named(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sagemaker_engine", None)

    with pytest.raises(TrainingRunError, match="make engine"):
        components.engine(home, choose(usual=False))


def test_another_airflow_may_read_nothing_of_this_machine(home: Home) -> None:
    line = airflow_export("http://127.0.0.1:4566", home)

    name, _, text = line.partition("=")
    (connection,) = shlex.split(text)
    own = json.loads(connection)["extra"]["trainyard"]
    assert name == "export AIRFLOW_CONN_AWS_DEFAULT"
    assert {"bucket", "execution_role_arn"} <= own.keys()
    assert not {"source_roots", "private_folders"} & own.keys()


def test_the_engine_prints_two_export_lines() -> None:
    first, second = exports("http://127.0.0.1:4566")
    assert first == "export AWS_ENDPOINT_URL=http://127.0.0.1:4566"
    assert second.startswith("export AWS_ACCESS_KEY_ID=")
    for page in ("docs/clients.md", ".env.example"):
        secret = re.search(r"AWS_SECRET_ACCESS_KEY=(\S+)", (REPOSITORY / page).read_text())
        assert secret is not None
        assert f" {secret[0]} " in second
