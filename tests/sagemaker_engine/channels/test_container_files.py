from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from sagemaker_engine.channels.container_files import ContainerFiles, OddFileError


@pytest.fixture
def files(tmp_path: Path) -> ContainerFiles:
    """An instance with /opt/ml, and its checkpoints on another disk."""
    for name in ("ml/model", "disk/step-1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "disk/step-1/model.pt").write_bytes(b"weights")
    (tmp_path / "secret").write_bytes(b"the machine's")
    return ContainerFiles(
        folders={"/opt/ml": tmp_path / "ml", "/opt/ml/checkpoints": tmp_path / "disk"}
    )


def read(files: ContainerFiles, path: str) -> bytes:
    with files.open(path) as file:
        return file.read()


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("ml/model/latest.pt", "/opt/ml/checkpoints/step-1/model.pt"),
        ("ml/model/latest.pt", "../checkpoints/step-1/model.pt"),
        ("ml/model/latest.pt", "/opt/../opt/ml/./checkpoints//step-1/model.pt"),
        ("ml/model/latest.pt", "/../../opt/ml/checkpoints/step-1/model.pt"),
    ],
)
def test_a_link_leads_where_it_leads_inside(
    tmp_path: Path, files: ContainerFiles, link: str, target: str
) -> None:
    (tmp_path / link).symlink_to(target)

    assert read(files, f"/opt/{link}") == b"weights"
    assert set(files.scan("/opt/ml/model").files) == {"latest.pt"}


def test_what_a_folder_of_another_disk_hides_is_not_read(
    tmp_path: Path, files: ContainerFiles
) -> None:
    """/opt/ml/checkpoints is a mount: what /opt/ml itself has below that name is invisible inside."""
    (tmp_path / "ml/checkpoints").mkdir()
    (tmp_path / "ml/checkpoints/hidden").touch()

    assert set(files.scan("/opt/ml/checkpoints").files) == {"step-1/model.pt"}
    assert "checkpoints/hidden" not in files.scan("/opt/ml").files


@pytest.mark.parametrize("target", ["{}/secret", "../../../../../../../../../..{}/secret", "/etc"])
def test_a_link_out_of_the_instance_is_not_followed(
    tmp_path: Path, files: ContainerFiles, target: str
) -> None:
    (tmp_path / "ml/model/x").symlink_to(target.format(tmp_path))

    with pytest.raises(OddFileError, match="outside the instance's own folders"):
        read(files, "/opt/ml/model/x")
    found = files.scan("/opt/ml/model")
    assert (found.files, set(found.odd)) == ({}, {"x"})


def test_a_folder_that_was_replaced_by_a_link_is_not_entered(
    tmp_path: Path, files: ContainerFiles
) -> None:
    (tmp_path / "ml/model").rmdir()
    (tmp_path / "ml/model").symlink_to("/etc")

    assert files.scan("/opt/ml/model").files == {}
    with files.folder("/opt/ml/model") as folder:
        assert folder is None


def test_circles_end(tmp_path: Path, files: ContainerFiles) -> None:
    (tmp_path / "ml/model/a").symlink_to("b")
    (tmp_path / "ml/model/b").symlink_to("a")
    (tmp_path / "ml/model/up").symlink_to("..")

    found = files.scan("/opt/ml")

    assert found.odd["model/a"] == "is part of a cycle of links"
    assert found.odd["model/up"] == "is a link to a folder that contains it"


def test_a_named_pipe_is_not_waited_for_nor_opened(tmp_path: Path, files: ContainerFiles) -> None:
    os.mkfifo(tmp_path / "ml/model/p")

    with pytest.raises(OddFileError, match="is a named pipe"):
        read(files, "/opt/ml/model/p")
    with pytest.raises(OSError, match="No such device"):  # a reader would let this writer in
        os.open(tmp_path / "ml/model/p", os.O_WRONLY | os.O_NONBLOCK)


def open_below(folder: Path) -> list[str]:
    """Return what this process has open in a folder; other threads open and close things elsewhere."""
    targets = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(str(each.readlink()))
    return [target for target in targets if target.startswith(str(folder))]


def test_no_descriptor_is_left_open(tmp_path: Path, files: ContainerFiles) -> None:
    (tmp_path / "ml/model/x").symlink_to("/etc/passwd")
    (tmp_path / "ml/model/y").symlink_to("/opt/ml/checkpoints/step-1")

    files.scan("/opt/ml")
    files.exists("/opt/ml/model/x")
    with pytest.raises(FileNotFoundError):
        read(files, "/opt/ml/model/y/gone")

    assert open_below(tmp_path) == []
