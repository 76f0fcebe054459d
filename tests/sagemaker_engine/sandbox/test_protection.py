"""What an instance can read, write and do of the machine that runs the engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.jobs.instances import private_folders
from sagemaker_engine.sandbox.filesystem import DEVICES
from sagemaker_engine.sandbox.linux import KEPT_CAPABILITIES
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")


@pytest.fixture
def mark() -> Iterator[str]:
    """A name that no file has; a file of this name that an instance left on the machine is removed."""
    name = f"trainyard-test-{os.getpid()}"
    yield name
    for folder in ("/", "/usr", "/etc", "/opt", "/sys", "/run", "/var/tmp", "/dev"):  # noqa: S108
        Path(folder, name).unlink(missing_ok=True)


@pytest.mark.parametrize("folder", ["/usr", "/etc", "/sys"])
def test_the_machines_system_folders_are_read_only(
    run: Any, isolated: Any, mark: str, folder: str
) -> None:
    done = run([f"ls -d {folder}; touch {folder}/{mark}"], isolated)

    assert done.output["algo-1"].startswith(f"{folder}\n")
    assert "Read-only file system" in done.output["algo-1"] or folder == "/sys"
    assert done.codes["algo-1"] != 0
    assert not Path(folder, mark).exists()


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm", "/run", "/root"])  # noqa: S108
def test_what_a_job_writes_to_its_own_folders_stays_in_the_instance(
    run: Any, isolated: Any, mark: str, folder: str
) -> None:
    done = run([f"touch {folder}/{mark} && ls -A {folder}"], isolated)

    assert mark in done.output["algo-1"].split()
    if os.access(folder, os.R_OK):
        assert mark not in os.listdir(folder)  # noqa: PTH208


@pytest.mark.parametrize("path", [Path.home(), REPOSITORY / "README.md"], ids=["home", "checkout"])
def test_the_users_files_are_not_there(run: Any, isolated: Any, path: Path) -> None:
    others = [each.name for each in path.iterdir()] if path.is_dir() else []

    done = run([f"ls -A {path}"], isolated)

    left = set(done.output["algo-1"].split()) & set(others)
    assert left <= {Path(sys.base_prefix).relative_to(path).parts[0]} if left else True
    assert path.is_dir() or "No such file" in done.output["algo-1"]


def test_a_private_folder_below_a_system_folder_is_empty(run: Any, isolated: Any) -> None:
    assert any(Path("/usr/share/misc").iterdir() or Path("/usr/share").iterdir())

    done = run(["ls -A /usr/share | wc -l; ls /usr/bin/env"], isolated, private=["/usr/share"])

    assert done.output["algo-1"].split() == ["0", "/usr/bin/env"]


def test_what_an_image_needs_is_there_though_its_folder_is_private(
    run: Any, isolated: Any, tmp_path: Path
) -> None:
    (tmp_path / "home/python/bin").mkdir(parents=True)
    (tmp_path / "home/python/bin/tool").write_text("works")
    (tmp_path / "home/secret").write_text("secret")
    (tmp_path / "link").symlink_to("home/python")

    done = run(
        [f"cat {tmp_path}/link/bin/tool {tmp_path}/home/secret; touch {tmp_path}/link/new"],
        isolated,
        needed=[str(tmp_path / "link")],
        private=[str(tmp_path / "home")],
    )

    assert done.output["algo-1"].startswith("works")
    assert "secret" not in done.output["algo-1"].replace("/secret", "")
    assert "Read-only file system" in done.output["algo-1"]


def test_passwords_and_keys_in_etc_are_empty(run: Any, isolated: Any) -> None:
    hashes = [each for each in ("/etc/shadow", "/etc/gshadow") if Path(each).exists()]

    done = run([f"cat {' '.join(hashes)} /dev/null; ls -A /etc/ssh /etc/ssl/private"], isolated)

    assert [e for e in done.output["algo-1"].splitlines() if e and not e.startswith("/etc")] == [
        each for each in done.output["algo-1"].splitlines() if "No such file" in each
    ]


def test_sockets_of_the_machines_services_are_not_there(run: Any, isolated: Any) -> None:
    done = run(["ls -A /run /var/run/"], isolated)

    assert done.output["algo-1"].split() == ["/run:", "/var/run/:"]


def test_disks_and_memory_of_the_machine_are_no_devices(run: Any, isolated: Any, mark: str) -> None:
    done = run([f"ls /dev; echo; mknod /tmp/{mark} b 8 0; echo data > /dev/null"], isolated)

    listed, _, said = done.output["algo-1"].partition("\n\n")
    accelerators = {each for each in listed.split() if each.startswith("nvidia")}
    assert set(listed.split()) - accelerators <= {*DEVICES, "shm"}
    assert "Operation not permitted" in said
    assert done.codes["algo-1"] == 0


def test_settings_of_the_kernel_are_read_only(run: Any, isolated: Any) -> None:
    knob = "/proc/sys/vm/swappiness"

    done = run([f"cat {knob} > /tmp/value && cat /tmp/value > {knob}"], isolated)

    assert "Read-only file system" in done.output["algo-1"]


def test_a_job_has_no_privileges_over_the_machine_and_gets_none(run: Any, isolated: Any) -> None:
    done = run(["cat /proc/self/status"], isolated)

    status = dict(line.split(":", 1) for line in done.output["algo-1"].splitlines())
    kept = sum(1 << each for each in KEPT_CAPABILITIES)
    values = {name: int(status[name], 16) for name in FIELDS}
    assert {name for name, value in values.items() if value & ~kept} - {"NoNewPrivs"} == set()
    assert values["NoNewPrivs"] == 1


def test_a_job_cannot_make_the_machine_writable_again(run: Any, isolated: Any, mark: str) -> None:
    again = f"mount -o remount,bind,rw /usr; umount /etc/shadow; touch /usr/{mark}"

    done = run([f"{again}; unshare -rm sh -c '{again}'"], isolated)

    assert done.codes["algo-1"] != 0
    assert not Path("/usr", mark).exists()


def test_privileges_are_dropped_without_namespaces_too(run: Any) -> None:
    done = run(["grep -E 'NoNewPrivs|CapBnd' /proc/self/status"], [])

    assert "NoNewPrivs:\t1" in done.output["algo-1"]


def test_private_folders_are_the_engines_airflows_and_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/opt/user")
    monkeypatch.setenv("AIRFLOW_HOME", "/opt/airflow")

    assert private_folders(tmp_path) == [str(tmp_path), "/opt/user", "/opt/airflow"]
