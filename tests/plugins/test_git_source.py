"""Scripts from a git repository: fetched at their commit, from repositories that the connection allows."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from trainyard.errors import SpecError
from trainyard_airflow.jobs.git_source import GitSource

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://git.example.com/team/models.git"
COMMIT = "a" * 40


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The commit of a repository on this disk, which git takes for the one at URL."""
    folder = tmp_path / "models"
    (folder / "digits").mkdir(parents=True)
    (folder / "digits" / "train.py").write_text("first = 1\n")
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.com")

    def git(*arguments: str) -> str:
        command = ["git", *settings, "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    commit = git("rev-parse", "HEAD")
    (folder / "digits" / "train.py").write_text("second = 2\n")
    git("commit", "--quiet", "-am", "second")
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{folder}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", URL)
    return commit


def test_folder_is_fetched_at_its_commit_and_gone_afterwards(repository: str) -> None:
    source = GitSource.read(f"git+{URL}@{repository}#subdirectory=digits")

    with source.fetched() as folder:
        assert (folder / "train.py").read_text() == "first = 1\n"
    assert not folder.exists()


def test_what_the_repository_lacks_is_refused(repository: str) -> None:
    for wrong in (f"git+{URL}@{COMMIT}", f"git+{URL}@{repository}#subdirectory=letters"):
        with pytest.raises(SpecError) as raised, GitSource.read(wrong).fetched():
            pass
        assert "source_dir" in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        f"git+{URL}@main",
        f"git+{URL}",
        f"git+http://git.example.com/team/models.git@{COMMIT}",
        f"git+https://user:secret@git.example.com/models.git@{COMMIT}",
        f"git+{URL}@{COMMIT}#subdirectory=../../etc",
        f"git+{URL}@{COMMIT}#subdirectory=/etc",
        f"git+https://git.example.com/--upload-pack=x y@{COMMIT}",
    ],
)
def test_malformed_sources_are_refused(wrong: str) -> None:
    with pytest.raises(SpecError, match="is not a git source"):
        GitSource.read(wrong)


@pytest.mark.parametrize(
    ("repositories", "is_allowed"),
    [
        (["https://git.example.com/team/"], True),
        (["https://git.example.com/team"], True),
        (["https://git.example.com/te"], False),
        (["https://git.example.com/other/"], False),
        ([], False),
        (None, False),
    ],
)
def test_only_repositories_of_the_connection_may_be_read(
    repositories: list[str] | None, is_allowed: bool
) -> None:
    source = GitSource.read(f"git+{URL}@{COMMIT}")

    if is_allowed:
        source.check(repositories)
    else:
        with pytest.raises(SpecError, match="is not a repository that a run may read"):
            source.check(repositories)


def test_list_of_another_kind_is_refused() -> None:
    with pytest.raises(SpecError, match="is malformed"):
        GitSource.read(f"git+{URL}@{COMMIT}").check("https://git.example.com/")
