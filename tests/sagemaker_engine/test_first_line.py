"""A script finds its interpreter wherever that lies, and an environment adopts scripts that pip wrote either way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_engine.images.environment import BuildError, adopt_programs
from sagemaker_engine.images.first_line import first_lines, first_lines_of_ours, split_script

SOURCE = (
    '"""Says what it got."""\nfrom __future__ import annotations\nimport sys\nprint(sys.argv[1:])\n'
)
LONG = "/".join(["a" * 60] * 3)


@pytest.mark.parametrize("folder", ["plain", "with a blank", LONG])
def test_a_script_of_ours_runs_wherever_its_interpreter_lies(tmp_path: Path, folder: str) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    script = tmp_path / "script"
    script.write_text(first_lines_of_ours(python, "-I", SOURCE))
    script.chmod(0o755)

    said = subprocess.run([script, "a b", "c"], check=True, capture_output=True, text=True).stdout

    assert said == "['a b', 'c']\n"


@pytest.mark.parametrize("folder", ["plain", "with a blank", LONG])
def test_programs_are_adopted_from_and_into_any_folder(tmp_path: Path, folder: str) -> None:
    base, place = tmp_path / folder / "base", tmp_path / folder / "place"
    for each in (base, place):
        (each / "bin").mkdir(parents=True)
        (each / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    train = base / "bin" / "train"
    train.write_text(first_lines(base / "bin" / "python") + "import sys\nprint(sys.executable)\n")
    train.chmod(0o755)

    adopt_programs(place, base)

    own = place / "bin" / "train"
    said = subprocess.run([own], check=True, capture_output=True, text=True).stdout
    assert said == f"{place / 'bin' / 'python'}\n"


@pytest.mark.parametrize("quote", ['"', ""])
def test_what_pip_writes_is_read(quote: str) -> None:
    written = (
        f"#!/bin/sh\n'''exec' {quote}/env/bin/python{quote} \"$0\" \"$@\"\n' '''\nimport sys\n"
    )

    assert split_script(written.encode()) == (Path("/env/bin/python"), b"import sys\n")
    assert split_script(b"#!/bin/sh\necho\n") == (Path("/bin/sh"), b"echo\n")
    assert split_script(b"\x7fELF") is None


def test_a_program_that_jobs_need_is_not_left_out_silently(tmp_path: Path) -> None:
    base, place = tmp_path / "base", tmp_path / "place"
    for each in (base, place):
        (each / "bin").mkdir(parents=True)
    (base / "bin" / "torchrun").write_text("#!/moved/bin/python\nimport torch\n")

    with pytest.raises(
        BuildError, match="torchrun does not run with the interpreter of its own environment"
    ):
        adopt_programs(place, base)
