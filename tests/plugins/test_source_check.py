"""What is said of a training script before it is uploaded."""

from __future__ import annotations

import sys

import pytest

from trainyard.errors import Severity
from trainyard.installation import TRAINING_SCRIPTS
from trainyard_airflow.operators.source_check import entry_point_findings


def told(folder, entry_point="train.py"):
    return [str(each) for each in entry_point_findings(folder, entry_point)]


def test_sound_script_with_its_own_package_has_no_findings(tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("")
    (tmp_path / "trainer" / "loop.py").write_text("import trainer\n")
    (tmp_path / "train.py").write_text("import torch\nfrom trainer.loop import *\nimport trainer\n")
    assert told(tmp_path) == []


def test_missing_entry_point_names_the_scripts_that_are_there(tmp_path):
    (tmp_path / "main.py").write_text("")
    assert told(tmp_path) == [f"entry_point: is not in {tmp_path}; got train.py; allowed: main.py"]


def test_missing_folder_is_told(tmp_path):
    assert "is not a folder" in told(tmp_path / "nowhere")[0]


def test_syntax_error_in_an_imported_module_is_told_with_its_line(tmp_path):
    (tmp_path / "helper.py").write_text("x = 1\ndef broken(:\n")
    (tmp_path / "train.py").write_text("import helper\n")
    assert told(tmp_path)[0].startswith("helper.py:2: does not compile")


def test_import_of_an_own_module_that_is_not_there_is_told(tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("")
    (tmp_path / "train.py").write_text("x = 1\nfrom trainer.lopp import run\n")
    assert (
        "train.py:2: imports trainer.lopp, which is not in the source folder" in told(tmp_path)[0]
    )


@pytest.mark.parametrize("entry_point", ["train_ddp.py", "evaluate.py"])
def test_the_scripts_of_this_project_are_sound(entry_point):
    assert told(TRAINING_SCRIPTS, entry_point) == []


OWN, NEWER = sys.version_info[:2], (3, sys.version_info.minor + 1)
SYNTAX_OF_3_12 = pytest.mark.skipif(OWN >= (3, 12), reason="this Python compiles it")


def severities(folder, python):
    return [each.severity for each in entry_point_findings(folder, "train.py", python=python)]


@SYNTAX_OF_3_12
@pytest.mark.parametrize(
    "line",
    [
        """print(f"{row["id"]}")""",
        """print(f'{chr(10).join(f'{each}' for each in row)}')""",
        "type Rows = list[str]",
        "def first[T](rows: list[T]) -> T: ...",
        "class Rows[T]: ...",
    ],
    ids=["quotes", "f-string", "type", "function", "class"],
)
def test_syntax_that_the_image_s_python_may_accept_is_a_warning(tmp_path, line):
    (tmp_path / "train.py").write_text(f"row = {{}}\n{line}\n")

    assert severities(tmp_path, NEWER) == severities(tmp_path, None) == [Severity.WARNING]
    assert severities(tmp_path, OWN) == [Severity.ERROR]
    assert "valid in the image's Python" in told(tmp_path)[0]


@pytest.mark.parametrize("text", ["def broken(:\n", "if True\n    pass\n", "x = (1,\n", "\0"])
def test_syntax_that_no_python_accepts_is_an_error(tmp_path, text):
    (tmp_path / "train.py").write_text(text)

    assert severities(tmp_path, NEWER) == severities(tmp_path, None) == [Severity.ERROR]


def test_data_folder_with_a_library_s_name_is_no_package(tmp_path):
    (tmp_path / "tokenizers" / "bpe").mkdir(parents=True)
    (tmp_path / "tokenizers" / "bpe" / "vocab.json").write_text("{}")
    (tmp_path / "train.py").write_text("from tokenizers.models import BPE\n")

    assert told(tmp_path) == []


def test_missing_module_of_a_folder_without_init_is_a_warning(tmp_path):
    """Python prefers an installed library to this folder."""
    (tmp_path / "evaluate").mkdir()
    (tmp_path / "evaluate" / "main.py").write_text("import os\n")
    (tmp_path / "train.py").write_text("from evaluate.loading import load\n")

    assert severities(tmp_path, None) == [Severity.WARNING]
    (tmp_path / "evaluate" / "__init__.py").write_text("")
    assert severities(tmp_path, None) == [Severity.ERROR]


def test_module_behind_a_link_to_a_folder_is_not_in_the_job(tmp_path):
    source, shared = tmp_path / "source", tmp_path / "shared"
    source.mkdir()
    shared.mkdir()
    (shared / "loop.py").write_text("import os\n")
    (source / "lib").symlink_to(shared)
    (source / "train.py").write_text("import os\nfrom lib.loop import run\n")

    (finding,) = told(source)
    assert finding.startswith(
        "train.py:2: imports lib.loop, which is below the symbolic link lib, and linked folders are not copied"
    )
    assert "entry_point: is below the symbolic link lib" in told(source, "lib/loop.py")[0]
