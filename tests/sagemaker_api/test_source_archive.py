"""The same code gives the same archive, whatever its times and owners."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from trainyard.errors import SpecError
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.sagemaker_api import source_archive as module
from trainyard.sagemaker_api.source_archive import ROW_RULES, WATCH, source_archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SINCE_3_11 = {
    *("asyncio.TaskGroup", "asyncio.timeout", "contextlib.chdir", "datetime.UTC", "enum.StrEnum"),
    *("hashlib.file_digest", "itertools.batched", "operator.call", "typing.LiteralString"),
    *("typing.Never", "typing.NotRequired", "typing.Required", "typing.Self", "typing.Unpack"),
    *(
        "typing.assert_never",
        "typing.assert_type",
        "typing.override",
        "tomllib.load",
        "tomllib.loads",
    ),
}
"""Names that Python 3.10 does not have."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "trainer").mkdir(parents=True)
    (source / "train.py").write_text("print('go')\n", encoding="utf-8")
    (source / "trainer" / "__init__.py").write_text("", encoding="utf-8")
    return source


def names(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return archive.getnames()


def test_the_archive_holds_the_files_in_order(folder: Path) -> None:
    archive = source_archive(folder, entry_point="train.py")

    assert names(archive.content) == ["train.py", "trainer/__init__.py"]
    assert archive.num_files == 2
    assert archive.sha256 == hashlib.sha256(archive.content).hexdigest()


def test_times_do_not_change_the_hash_and_content_does(folder: Path) -> None:
    before = source_archive(folder).sha256

    os.utime(folder / "train.py", (1, 1))
    assert source_archive(folder).sha256 == before

    (folder / "train.py").write_text("print('gone')\n", encoding="utf-8")
    assert source_archive(folder).sha256 != before


def test_chosen_requirements_travel_as_requirements_txt(folder: Path) -> None:
    (folder / "requirements.txt").write_text("peft==0.21.2\n")
    (folder / "gpu.txt").write_text("deepspeed==0.19.8\n")

    archive = source_archive(folder, requirements="gpu.txt")

    with tarfile.open(fileobj=io.BytesIO(archive.content)) as packed:
        member = packed.extractfile("requirements.txt")
        assert member is not None
        assert member.read() == b"deepspeed==0.19.8\n"
    assert source_archive(folder).sha256 != archive.sha256
    with pytest.raises(SpecError, match=r"requirements: does not exist in source_dir.*'gpu\.txt'"):
        source_archive(folder, requirements="gpus.txt")


def test_airflows_configuration_does_not_travel(folder: Path) -> None:
    (folder / "trainer" / "airflow.cfg").write_text(
        "[core]\nfernet_key = secret\n", encoding="utf-8"
    )

    with pytest.raises(
        SpecError, match=r"trainer/airflow\.cfg.*move the scripts to a separate folder"
    ):
        source_archive(folder)


def test_caches_hidden_files_and_byte_code_are_left_out(folder: Path) -> None:
    clean = source_archive(folder).sha256
    for name in (".git/config", "__pycache__/a.pyc", "trainer/x.pyc", ".env", "venv/lib.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x", encoding="utf-8")

    assert source_archive(folder).sha256 == clean


def test_an_executable_stays_one(folder: Path) -> None:
    (folder / "train.py").chmod(0o755)

    with tarfile.open(fileobj=io.BytesIO(source_archive(folder).content)) as archive:
        assert archive.getmember("train.py").mode == 0o755
        assert archive.getmember("trainer/__init__.py").mode == 0o644


def test_a_missing_entry_point_names_the_nearest_file(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"got trian.py; did you mean 'train.py'\?"):
        source_archive(folder, entry_point="trian.py")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="source_dir: is not a folder"):
        source_archive(tmp_path / "nowhere")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="source_dir: has no files"):
        source_archive(tmp_path)


def test_data_in_the_code_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SOURCE_BYTES", 5)

    with pytest.raises(SpecError, match="is too large for a code archive; got 12 B"):
        source_archive(folder)


def test_row_rules_travel_with_the_scripts_that_import_them(folder: Path) -> None:
    assert ROW_RULES not in names(source_archive(folder).content)
    (folder / "train.py").write_text("from trainyard.sharding.row_rules import parse_row\n")
    assert ROW_RULES in names(source_archive(folder).content)
    assert ROW_RULES in names(source_archive(TRAINING_SCRIPTS / "fine_tuning").content)


def test_row_rules_need_no_other_module_of_the_library(folder: Path, tmp_path: Path) -> None:
    (folder / "train.py").write_text("from trainyard.sharding.row_rules import parse_row\n")
    job = tmp_path / "job"
    with tarfile.open(fileobj=io.BytesIO(source_archive(folder).content)) as archive:
        archive.extractall(job, filter="data")

    done = subprocess.run(
        [sys.executable, "-c", "import trainyard.sharding.row_rules as m; print(m.__file__)"],
        cwd=job,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(job / ROW_RULES)


def names_at_run_time(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports or uses, except for those of its type hints."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)
        yield from names_at_run_time(node)


@pytest.mark.parametrize(
    "path", sorted(WATCH.rglob("*.py")), ids=lambda path: str(path.relative_to(WATCH))
)
def test_the_added_package_needs_no_python_after_3_10(path: Path) -> None:
    """AWS's images of PyTorch 2.0 to 2.2 and of TensorFlow 2.12 to 2.18 have Python 3.10."""
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))

    assert SINCE_3_11.isdisjoint(names_at_run_time(tree))
