"""What lies in the checkpoint folder: written in place, whole by its manifest, swept where it is not."""

from __future__ import annotations

import threading

import pytest

from tests.limits import EVENT_LIMIT_S
from trainer.data.shard_index import sha256_of
from trainyard_watch import checkpoint_files
from trainyard_watch.checkpoint_files import fault_of, write_files
from trainyard_watch.checkpoint_folder import CheckpointFolder
from trainyard_watch.errors import CheckpointError
from trainyard_watch.retention import ManifestLayout, Retention

pytestmark = pytest.mark.torch


def folder_at(path):
    return CheckpointFolder(path, Retention(ManifestLayout(path), keep=2))


def save(folder, step):
    return folder.save(step, objects={"run": {"step": step}}, files={"a": lambda: b"x"}, facts={})


def test_newest_checkpoints_are_kept(tmp_path):
    folder = folder_at(tmp_path / "checkpoints")
    for step in range(1, 7):
        save(folder, step)

    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000005",
        "step-00000006",
    ]
    assert folder.newest_good().load("run") == {"step": 6}


def test_a_checkpoint_is_written_where_it_stays_and_its_manifest_comes_last(tmp_path):
    """A rename would be an upload of its own, and from outside the mount it is impossible."""
    seen = []

    def content():
        seen.append(sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")))
        return b"x"

    folder_at(tmp_path / "checkpoints").save(7, objects={"run": {}}, files={"a": content}, facts={})

    at = "checkpoints/step-00000007"
    assert seen == [["checkpoints", at, f"{at}/a", f"{at}/run.pt"]]
    assert sorted(path.name for path in (tmp_path / at).iterdir()) == [
        "a",
        "manifest.json",
        "run.pt",
    ]


def test_what_a_killed_start_left_unfinished_is_not_taken_and_swept_away(tmp_path, caplog):
    folder = tmp_path / "checkpoints"
    save(folder_at(folder), 3)
    half = folder / "step-00000007"
    half.mkdir()
    (half / "model.pt").write_bytes(b"half")

    assert folder_at(folder).newest_good().step == 3
    assert "step-00000007: manifest.json is missing" in caplog.text
    assert [path.name for path in folder.iterdir()] == ["step-00000003"]


def test_a_damaged_checkpoint_makes_way_for_the_one_of_its_step(tmp_path):
    folder = folder_at(tmp_path)
    (tmp_path / "step-00000007").mkdir()
    write_files(tmp_path / "step-00000007", objects={}, files={"old": lambda: b"x"}, facts={})

    save(folder, 7)

    assert not (tmp_path / "step-00000007" / "old").exists()
    assert folder.newest_good().load("run") == {"step": 7}


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    def full():
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="volume_size"):
        folder_at(tmp_path).save(7, objects={}, files={"a": full}, facts={})

    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def four_files(tmp_path):
    """Return a checkpoint of files a, b, c and d."""
    path = tmp_path / "step-00000007"
    path.mkdir()
    write_files(path, objects={}, files=dict.fromkeys("abcd", lambda: b"content"), facts={})
    return path


def test_a_checkpoints_files_are_verified_at_the_same_time(four_files, monkeypatch):
    """One after another, those of a large model would take longer than ranks wait."""
    both = threading.Barrier(2, timeout=EVENT_LIMIT_S)

    def hashed(path):
        both.wait()
        return sha256_of(path)

    monkeypatch.setattr(checkpoint_files, "sha256_of", hashed)

    assert fault_of(four_files) is None


def test_of_several_damaged_files_the_first_is_told(four_files):
    for name in ("d", "b"):
        (four_files / name).write_bytes(b"CONTENT")

    assert fault_of(four_files) == "b does not match its SHA-256"
