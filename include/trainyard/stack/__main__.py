"""The launcher's command line; the Makefile's targets call it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from trainyard.stack import conf
from trainyard.stack.background import down, supervise, up
from trainyard.stack.command import carry_out
from trainyard.stack.engine_alone import engine_alone
from trainyard.stack.home import Home
from trainyard.stack.run import DAG_ID, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

GUARDED = frozenset({"run", "engine", "supervise"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return 0 for success, 1 for a failure, 2 for wrong input, or 130 after an interrupt."""
    options = _parser().parse_args(arguments)
    home = Home.of(options.home)
    return carry_out(
        lambda console: _dispatch(options, home, console), is_guarded=options.command in GUARDED
    )


def _dispatch(options: argparse.Namespace, home: Home, console: Console) -> int:
    match options.command:
        case "run":
            if options.conf and options.dag == DAG_ID:
                conf.load(options.conf)
                conf.check(options.conf, home)
            return run(home, conf=conf.load(options.conf), console=console, dag_id=options.dag)
        case "up":
            return up(home, console=console)
        case "down":
            return down(home, console=console)
        case "engine":
            return engine_alone(home, console=console, port=options.port)
        case _:
            return supervise(home, console=console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainyard", description=__doc__)
    parser.add_argument(
        "--home", help="folder of the stack (default: TRAINYARD_HOME or .trainyard)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run_command = commands.add_parser("run", help="run the DAG once, from start to report")
    run_command.add_argument("--conf", help="a JSON file with the run's params")
    run_command.add_argument("--dag", default=DAG_ID, help="the DAG to run (default: %(default)s)")
    commands.add_parser("up", help="start the stack and leave it running")
    commands.add_parser("down", help="stop the stack that is up, or what is left of a crashed one")
    engine_command = commands.add_parser("engine", help="run the engine alone, until Ctrl-C")
    engine_command.add_argument(
        "--port",
        type=int,
        choices=range(1, 65536),
        metavar="PORT",
        help="TCP port (default: the port last used with this folder, or 4566)",
    )
    commands.add_parser(
        "supervise", help="keep the stack running in the foreground ('up' starts this command)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
