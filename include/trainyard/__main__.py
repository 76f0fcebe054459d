"""`trainyard COMMAND`: the command line interface."""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: the module whose `main` runs it, and arguments that precede the user's."""

    module: str
    help: str
    arguments: tuple[str, ...] = ()


_STACK = "trainyard.stack.__main__"
COMMANDS = {
    "init": Command(
        module="trainyard.new_project.__main__",
        help="write a first DAG, script and connection into your project",
    ),
    "run": Command(module=_STACK, arguments=("run",), help="run a DAG once, from start to report"),
    "up": Command(
        module=_STACK,
        arguments=("up",),
        help="start Airflow and the engine, and leave them running",
    ),
    "down": Command(module=_STACK, arguments=("down",), help="stop what `up` started"),
    "engine": Command(
        module=_STACK, arguments=("engine",), help="run the engine alone, for any SageMaker client"
    ),
    "plan": Command(
        module="trainyard.planning.__main__", help="rank ways to train a model: memory, time, money"
    ),
    "permissions": Command(
        module="trainyard.permissions.__main__",
        help="print the IAM policies that a deployment needs, or templates with them",
    ),
    "prices": Command(
        module="trainyard.prices.__main__",
        help="print the date and region of the catalogue's prices, or refresh them",
    ),
    "offers": Command(
        module="trainyard.offers.__main__",
        help="compare training plan offers with spot and on-demand prices",
    ),
    "bill": Command(
        module="trainyard.bill.__main__",
        help="print what AWS billed for an ended run, beside its ledger and estimate",
    ),
    "lint": Command(
        module="trainyard_airflow.tasks.end_to_end.lint_command",
        help="print the settings of a run or a job that AWS would reject",
    ),
    "rules": Command(
        module="trainyard.rules.__main__", help="evaluate the rules on the log of a finished run"
    ),
    "profile": Command(
        module="trainyard.runs.profile.__main__", help="write the time profile of a run's training"
    ),
    "sharding": Command(
        module="trainyard.sharding.__main__",
        help="shard, plan, part, merge: turn a data set into shards and an index",
    ),
    "images": Command(
        module="sagemaker_engine.images.__main__", help="build the engine's images in advance"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="trainyard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:<12}{each.help}" for name, each in COMMANDS.items()),
    )
    parser.add_argument(
        "command",
        choices=COMMANDS,
        metavar="COMMAND",
        help="one of those below; `trainyard COMMAND --help` has its arguments",
    )
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = COMMANDS[parser.parse_args(given[:1]).command]
    status: int = importlib.import_module(command.module).main([*command.arguments, *given[1:]])
    return status


if __name__ == "__main__":
    sys.exit(main())
