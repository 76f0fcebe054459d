"""The launcher's command line; the Makefile's targets call it."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from trainyard.errors import TrainingRunError
from trainyard.stack import conf, guardian
from trainyard.stack.background import down, supervise, up
from trainyard.stack.chaos.command import chaos
from trainyard.stack.engine_alone import engine_alone
from trainyard.stack.home import Home
from trainyard.stack.run import DAG_ID, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

INTERRUPTED = 130
HIGHEST_SEED = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 for done, 1 for failed, 2 for wrong input, 130 for interrupted."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=not sys.stdout.isatty())
    home = Home.of(options.home)
    if options.command in ("run", "chaos", "engine", "supervise"):
        guardian.fork_guarded()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        return _dispatch(options, home, console)
    except KeyboardInterrupt:
        console.print("interrupted; everything it started is stopped")
        return INTERRUPTED
    except TrainingRunError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 2


def _dispatch(options: argparse.Namespace, home: Home, console: Console) -> int:
    match options.command:
        case "run":
            if options.conf and options.dag == DAG_ID:
                conf.load(options.conf)
                conf.check(options.conf, home)
            return run(home, conf=conf.load(options.conf), console=console, dag_id=options.dag)
        case "chaos":
            seed = secrets.randbelow(HIGHEST_SEED) if options.seed is None else options.seed
            return chaos(home, seed=seed, conf=conf.load(options.conf), console=console)
        case "up":
            return up(home, console=console)
        case "down":
            return down(home, console=console)
        case "engine":
            return engine_alone(home, console=console)
        case _:
            return supervise(home, console=console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainyard.stack", description=__doc__)
    parser.add_argument(
        "--home", help="folder of the stack (default: TRAINYARD_HOME, else .trainyard)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run_command = commands.add_parser("run", help="run the DAG once, from start to report")
    run_command.add_argument("--conf", help="a JSON file with the run's params")
    run_command.add_argument("--dag", default=DAG_ID, help="the DAG to run (default: %(default)s)")
    chaos_command = commands.add_parser(
        "chaos", help="run the DAG once while a schedule of faults strikes it"
    )
    chaos_command.add_argument(
        "--seed", type=int, help="draws the faults (default: a new one, which is told)"
    )
    chaos_command.add_argument(
        "--conf", help="a JSON file with params that replace those of the chaos run"
    )
    commands.add_parser("up", help="start the stack and leave it running")
    commands.add_parser("down", help="stop the stack that is up, or what is left of a crashed one")
    commands.add_parser("engine", help="run the engine alone, until Ctrl-C")
    commands.add_parser(
        "supervise", help="keep the stack running in the foreground; what 'up' starts"
    )
    return parser


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
