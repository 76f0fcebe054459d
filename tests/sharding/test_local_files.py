"""Local files that a run may read: below allowed folders only, never in private ones, links resolved."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from trainyard.errors import SpecError
from trainyard.sharding.listing import list_files
from trainyard.sharding.local_files import PYTHON_STDLIB, LocalFiles, local_files
from trainyard.sharding.objects import LocalObjects
from trainyard.sharding.settings import Source


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("a line\n")
    return folder


def refused(uri: str | Path, files: LocalFiles) -> str:
    return "\n".join(str(each) for each in files.findings(str(uri), where="source"))


def test_files_below_a_root_are_readable(data: Path) -> None:
    files = LocalFiles(roots=(data,))

    for uri in (data, data / "sub", data / "sub/a.txt", f"{data}/*/*.txt"):
        assert refused(uri, files) == ""


def test_without_roots_no_local_file_is_readable(data: Path) -> None:
    message = refused(data, LocalFiles())

    assert "source: is not below a folder that a run may read" in message
    assert str(data) in message
    assert "trainyard.source_roots" in message


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "/etc", "/proc/self/environ", "/sys/class", "/dev/sda", "/run/secrets/x"),
        *("/data/../etc/passwd", "//etc//passwd", "/home/me/.aws/credentials", "~/.ssh/id_rsa"),
    ],
)
def test_system_folders_and_credentials_are_never_readable(path: str) -> None:
    assert "no run may read" in refused(path, local_files(roots=["/"], private=[]))


def test_a_folder_that_holds_a_private_one_is_refused(tmp_path: Path) -> None:
    private = tmp_path / "all" / "airflow"
    private.mkdir(parents=True)
    files = LocalFiles(roots=(tmp_path,), private=(private,))

    for uri in (tmp_path / "all", private, private / "airflow.cfg", f"{tmp_path}/**/*.cfg"):
        assert "no run may read" in refused(uri, files)
    assert "no run may read" in refused("/", local_files(roots=["/"], private=[]))


def test_a_private_folder_that_is_hidden_is_not_listed_and_refuses_nothing(data: Path) -> None:
    private = data / ".trainyard"
    private.mkdir()
    (private / "secret.txt").write_text("secret")
    files = LocalFiles(roots=(data,), private=(private,))

    assert refused(data, files) == ""
    _, listed = list_files(Source(uri=str(data), files=files), LocalObjects(data))
    assert [each.name for each in listed] == ["sub/a.txt"]


@pytest.mark.parametrize("kind", ["file", "folder", "glob"])
def test_a_link_out_of_the_roots_is_refused(data: Path, tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (data / "link.txt").symlink_to(outside / "secret.txt")
    (data / "linked").symlink_to(outside)
    files = LocalFiles(roots=(data,))
    uri = {"file": data / "link.txt", "folder": data, "glob": f"{data}/linked/*.txt"}[kind]

    with pytest.raises(SpecError, match="is not below a folder that a run may read"):
        list_files(Source(uri=str(uri), files=files), LocalObjects(data))


def test_a_root_that_is_a_link_itself_leads_where_it_leads(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mount").symlink_to(data)

    assert refused(tmp_path / "mount" / "sub", LocalFiles(roots=(tmp_path / "mount",))) == ""


def test_the_standard_library_is_readable_by_the_same_rule() -> None:
    folder = sysconfig.get_path("stdlib")

    assert refused(PYTHON_STDLIB, LocalFiles()) == ""
    assert refused(folder, LocalFiles()) == ""
    source = Source(uri=PYTHON_STDLIB, max_source_bytes=10_000, files=LocalFiles())
    assert list_files(source, LocalObjects(Path(folder)))[1]


@pytest.mark.parametrize("path", ["s3://bucket/etc/passwd", "s3://b/../../etc"])
def test_addresses_on_s3_are_no_local_files(path: str) -> None:
    assert refused(path, LocalFiles()) == ""


@pytest.mark.parametrize("path", ["a\0b", "/data/\n", "x" * 5000])
def test_text_that_is_no_path_is_refused(path: str) -> None:
    assert refused(path, local_files(roots=["/"], private=[]))


@pytest.mark.parametrize("roots", ["/data", ["data"], [3], {"a": 1}])
def test_roots_that_are_no_folders_are_refused(roots: object) -> None:
    with pytest.raises(SpecError, match=r"source_roots.*absolute"):
        local_files(roots=roots, private=[])


def test_files_that_hold_the_workers_credentials_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("[default]")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))

    assert "no run may read" in refused(
        tmp_path / "keys", local_files(roots=[str(tmp_path)], private=[])
    )
