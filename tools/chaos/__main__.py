"""`python -m chaos`: run the DAG once under a schedule of faults; `make chaos` calls it."""

from __future__ import annotations

import argparse
import secrets
import sys
from typing import TYPE_CHECKING

from chaos.command import chaos
from trainyard.stack import conf
from trainyard.stack.command import carry_out
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from collections.abc import Sequence

HIGHEST_SEED = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if all checks pass, 1 if not, 2 for wrong input, 130 after an interrupt."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument(
        "--home", help="folder of the stack (default: TRAINYARD_HOME or .trainyard)"
    )
    parser.add_argument(
        "--seed", type=int, help="draws the faults (default: a new one, which is printed)"
    )
    parser.add_argument(
        "--conf", help="a JSON file with params that replace those of the chaos run"
    )
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(HIGHEST_SEED) if options.seed is None else options.seed
    return carry_out(
        lambda console: chaos(
            Home.of(options.home), seed=seed, conf=conf.load(options.conf), console=console
        ),
        is_guarded=True,
    )


if __name__ == "__main__":
    sys.exit(main())
