"""What is said of a training script before it is uploaded."""

from __future__ import annotations

import pytest

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
