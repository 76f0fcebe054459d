"""File lists of checkpoints that several hosts write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard_watch.file_list import FILES, file_sizes, newest_whole, write_file_list

if TYPE_CHECKING:
    from pathlib import Path


def test_a_checkpoint_is_whole_with_the_files_of_all_hosts(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-5"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "__0_0.distcp").write_bytes(b"first")

    size = write_file_list(folder, others={"shards/__1_0.distcp": 6})

    assert size == 11
    assert newest_whole(tmp_path, "checkpoint-") is None
    (folder / "shards" / "__1_0.distcp").write_bytes(b"second")
    assert newest_whole(tmp_path, "checkpoint-") == folder


def test_own_files_replace_those_that_another_host_has_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_bytes(b"new")
    (tmp_path / FILES).write_text("{}")

    assert write_file_list(tmp_path, others={"trainer_state.json": 100}) == 3
    assert file_sizes(tmp_path) == {"trainer_state.json": 3}
