"""Write an example into a project: a DAG file, a training script and a connection. Existing files are not changed."""

from __future__ import annotations

import argparse
import json
import re
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
_CONNECTION_ID = re.compile(r"[\w.-]{1,200}", re.ASCII)
_DEFAULT_CONNECTION = "aws_default"
_CONNECTION_LINE = 'AWS_CONN_ID = "{}"'
_SCRIPTS_LINE = 'Path(__file__).parent / "SCRIPTS"'


class Platform(StrEnum):
    """Tool that deploys the project's Airflow; it determines the folders that reach the workers."""

    ASTRO = "Astro"
    MWAA = "MWAA"
    PLAIN = "plain Airflow"

    @classmethod
    def of(cls, project: Path) -> Platform:
        """Return the platform of a project, recognized by the files that its tools create."""
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
    """Write the missing files, and print all files and the next steps.

    Return 0, or 2 if the project's folder does not exist or the connection's id is invalid.
    """
    options = _parser().parse_args(arguments)
    project: Path = options.project
    if not project.is_dir():
        sys.stderr.write(
            f"error: {project} is not a folder; create it, or pass your project's folder\n"
        )
        return 2
    if not _CONNECTION_ID.fullmatch(options.aws_conn_id):
        sys.stderr.write(
            f"error: --aws-conn-id: got {options.aws_conn_id!r}; allowed: 1 to 200 letters, digits, '_', '-' and '.'\n"
        )
        return 2
    platform = Platform.of(project)
    sys.stdout.write(f"{platform} project in {project.resolve()}\n")
    for name, text in files_of(platform, dags=options.dag, aws_conn_id=options.aws_conn_id).items():
        path = project / name
        is_new = not path.exists()
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"  {'wrote' if is_new else 'kept '} {name}\n")
    suffix = _suffix(options.aws_conn_id)
    sys.stdout.write(
        _NEXT.format(
            connection_file=CONNECTION,
            aws_conn_id=options.aws_conn_id,
            dag_id=f"{EXAMPLE}{suffix}",
        )
    )
    return 0


def files_of(
    platform: Platform, *, dags: Sequence[str] = (), aws_conn_id: str = _DEFAULT_CONNECTION
) -> Mapping[Path, str]:
    """Return the texts of the example's files and of copied DAGs, by their paths in the project.

    Args:
        platform: tool that deploys the project.
        dags: names of Trainyard's own DAG files to copy.
        aws_conn_id: connection of all tasks. Unless it is `aws_default`, it is also appended to the names of the DAG
            files and DAGs: the same DAG can then exist once for each connection.
    """
    suffix = _suffix(aws_conn_id)
    texts = {EXAMPLE: _example_dag(platform)}
    texts |= {name: _text(installation.DAGS / f"{name}.py") for name in dags}
    return {
        **{
            Path("dags") / f"{name}{suffix}.py": _connected(text, aws_conn_id, suffix=suffix)
            for name, text in texts.items()
        },
        platform.scripts / "train.py": _text(_FILES / "train.py"),
        CONNECTION: _connection(),
    }


def _suffix(aws_conn_id: str) -> str:
    return "" if aws_conn_id == _DEFAULT_CONNECTION else f"_{aws_conn_id}"


def _connected(dag: str, aws_conn_id: str, *, suffix: str) -> str:
    """Return a DAG file's text with another connection, and with a suffix on its DAGs' ids and titles."""
    line = _CONNECTION_LINE.format(_DEFAULT_CONNECTION)
    text = dag.replace(line, _CONNECTION_LINE.format(aws_conn_id))
    text = re.sub(r'(dag_id="\w+)"', rf'\1{suffix}"', text)
    title = f" ({aws_conn_id})" if suffix else ""
    return re.sub(r'(dag_display_name="[^"]+)"', rf'\1{title}"', text)


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
        help="folder of the project (default: the working directory)",
    )
    parser.add_argument(
        "--dag",
        action="append",
        default=[],
        choices=tuple(shipped_dags()),
        help="also copy this shipped DAG; may be given more than once",
    )
    parser.add_argument(
        "--aws-conn-id",
        default=_DEFAULT_CONNECTION,
        metavar="CONNECTION",
        help="the connection of the DAGs' tasks, such as a team's; files and DAGs are named after it, too "
        "(default: %(default)s)",
    )
    return parser


_NEXT = """Next:
  on this machine   `make engine` in a clone of Trainyard runs a local SageMaker engine, and prints a connection to it
  on AWS            fill in {connection_file}, and make it the connection `{aws_conn_id}`
  wait              Airflow searches dags/ for new files every 300 s ([dag_processor] refresh_interval);
                    `airflow dags reserialize` parses them now, if the command can reach Airflow's database
  then              unpause and trigger the DAG `{dag_id}`
"""


if __name__ == "__main__":
    sys.exit(main())
