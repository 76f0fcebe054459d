from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.warm.fitness import (
    ProgramKind,
    UnfitError,
    check_environment,
    check_shadows,
    package_stamps,
    parse_command_line,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "kind", "target", "rest", "unbuffered"),
    [
        (["train.py", "--lr", "1"], ProgramKind.SCRIPT, "train.py", ["--lr", "1"], False),
        (["-u", "train.py"], ProgramKind.SCRIPT, "train.py", [], True),
        (["--", "train.py", "-u"], ProgramKind.SCRIPT, "train.py", ["-u"], False),
        (["-m", "pkg.mod", "-x"], ProgramKind.MODULE, "pkg.mod", ["-x"], False),
        (["-c", "pass", "a"], ProgramKind.COMMAND, "pass", ["a"], False),
    ],
)
def test_command_lines_are_understood(
    arguments: list[str], kind: ProgramKind, target: str, rest: list[str], *, unbuffered: bool
) -> None:
    found = parse_command_line(arguments)

    assert (found.kind, found.target, found.arguments) == (kind, target, rest)
    assert found.is_unbuffered is unbuffered


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-"],
        ["-O", "x.py"],
        ["-X", "dev", "x.py"],
        ["-um", "mod"],
        ["-m"],
        ["-m", "pip"],
        ["-V"],
    ],
)
def test_what_a_running_interpreter_cannot_become_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UnfitError):
        parse_command_line(arguments)


def test_variables_that_were_read_at_the_start_must_be_the_same() -> None:
    own = {"LC_ALL": "C.UTF-8", "PATH": "/a"}

    check_environment({**own, "PATH": "/b", "RANK": "1", "TORCHELASTIC_RUN_ID": "x"}, own)
    for changed in ({"PYTHONHASHSEED": "0"}, {"LD_PRELOAD": "x.so"}, {"TORCH_LOGS": "all"}):
        with pytest.raises(UnfitError, match=next(iter(changed))):
            check_environment({**own, **changed}, own)
    with pytest.raises(UnfitError, match="LC_ALL"):
        check_environment({"PATH": "/a"}, own)


def test_a_file_that_hides_a_loaded_module_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "yaml").mkdir()
    check_shadows([str(tmp_path), "/no/such/folder"], {"yaml", "numpy"})

    (tmp_path / "yaml" / "__init__.py").touch()
    with pytest.raises(UnfitError, match="yaml"):
        check_shadows([str(tmp_path)], {"yaml", "numpy"})
    with pytest.raises(UnfitError, match=r"train\.py"):
        check_shadows([str(tmp_path)], {"train"})


def test_installing_into_a_folder_changes_its_stamp(tmp_path: Path) -> None:
    import os

    packages = tmp_path / "site-packages"
    packages.mkdir()
    os.utime(packages, (1, 1))
    before = package_stamps([str(packages), str(tmp_path), "/no/such-packages"])
    (packages / "new.dist-info").mkdir()

    assert before.keys() == {str(packages)}
    assert package_stamps([str(packages)]) != before
