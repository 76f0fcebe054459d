"""Write an example into a project: a DAG file, a training script and a connection. What exists stays as it is."""

from __future__ import annotations

import argparse
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard import installation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EXAMPLE = "trainyard_example"
CONNECTION = Path("trainyard_connection.json")
_FILES = Path(__file__).with_name("files")
_SCRIPTS_LINE = 'Path(__file__).parent / "SCRIPTS"'


class Platform(StrEnum):
    """Tool that deploys the project's Airflow, and so the folders that reach the workers."""

    ASTRO = "Astro"
    MWAA = "MWAA"
    PLAIN = "plain Airflow"

    @classmethod
    def of(cls, project: Path) -> Platform:
        """Return the platform of a project, by the files of the platform's tools."""
        dockerfile = project / "Dockerfile"
        image = dockerfile.read_text(encoding="utf-8") if dockerfile.is_file() else ""
        if (project / ".astro").is_dir() or "astronomer" in image or "astro-runtime" in image:
            return cls.ASTRO
        marks = ("mwaa", "aws-mwaa", "startup.sh", "startup_script", "mwaa-local-env")
        if any((project / each).exists() for each in marks):
            return cls.MWAA
        return cls.PLAIN

    @property
    def scripts(self) -> Path:
        """Folder of the example's training script.

        Astro deploys the folder `include` with the DAGs, and MWAA deploys `dags` only.
        """
        match self:
            case Platform.ASTRO:
                return Path("include") / EXAMPLE
            case Platform.MWAA:
                return Path("dags") / f"{EXAMPLE}_scripts"
            case Platform.PLAIN:
                return Path("training_scripts") / EXAMPLE


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the missing files, print them and the next steps, and return 0. Return 2 if the folder does not exist."""
    options = _parser().parse_args(arguments)
    project: Path = options.project
    if not project.is_dir():
        sys.stderr.write(
            f"error: {project} is not a folder; create it, or pass your project's folder\n"
        )
        return 2
    platform = Platform.of(project)
    sys.stdout.write(f"{platform} project in {project.resolve()}\n")
    for name, text in files_of(platform, dags=options.dag).items():
        path = project / name
        is_new = not path.exists()
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"  {'wrote' if is_new else 'kept '} {name}\n")
    sys.stdout.write(_NEXT)
    return 0


def files_of(platform: Platform, *, dags: Sequence[str] = ()) -> Mapping[Path, str]:
    """Return the example's files by their paths in the project, with copies of Trainyard's own DAGs."""
    return {
        Path("dags") / f"{EXAMPLE}.py": _example_dag(platform),
        platform.scripts / "train.py": _text(_FILES / "train.py"),
        CONNECTION: _connection(),
        **{Path("dags") / f"{name}.py": _text(installation.DAGS / f"{name}.py") for name in dags},
    }


def shipped_dags() -> Iterator[str]:
    """Yield the names of Trainyard's own DAG files."""
    for path in sorted(installation.DAGS.glob("*.py")):
        yield path.stem


def _example_dag(platform: Platform) -> str:
    scripts = platform.scripts
    is_below = scripts.parts[0] == "dags"
    place = scripts.relative_to("dags") if is_below else scripts
    parent = "parent" if is_below else "parent.parent"
    line = f'Path(__file__).{parent} / "{place.as_posix()}"'
    return _text(_FILES / f"{EXAMPLE}.py").replace(_SCRIPTS_LINE, line)


def _connection() -> str:
    extra = {
        "region_name": "us-east-1",
        "trainyard": {
            "bucket": "my-training-bucket",
            "deployment": "my-airflow",
            "execution_role_arn": "arn:aws:iam::111122223333:role/TrainyardExecution",
        },
    }
    return json.dumps({"conn_type": "aws", "extra": extra}, indent=2) + "\n"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainyard init", description=__doc__)
    parser.add_argument(
        "project",
        nargs="?",
        type=Path,
        default=Path(),
        help="folder of the project (default: this one)",
    )
    parser.add_argument(
        "--dag",
        action="append",
        default=[],
        choices=tuple(shipped_dags()),
        help="copy this DAG of Trainyard's, too; may be given more than once",
    )
    return parser


_NEXT = f"""Next:
  on this machine   `trainyard engine` runs a SageMaker that trains here, and prints the connection that leads to it
  on AWS            fill in {CONNECTION}, and make it the connection `aws_default`
  then              unpause and trigger the DAG `{EXAMPLE}`
"""


if __name__ == "__main__":
    sys.exit(main())
