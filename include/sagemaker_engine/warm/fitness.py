"""Fitness of a program to run as a fork of the warm parent instead of the real interpreter."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class UnfitError(Exception):
    """The program needs the real interpreter; the message is the reason."""


class ProgramKind(StrEnum):
    """Ways to give a program on Python's command line: a script, `-m` and a module, or `-c` and a command."""

    SCRIPT = "script"
    MODULE = "module"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Parsed command line of a Python interpreter: the program and its arguments.

    `is_unbuffered` is True with the option `-u`.
    """

    kind: ProgramKind
    target: str
    arguments: list[str]
    is_unbuffered: bool


COLD_MODULES = frozenset({"pip", "venv", "ensurepip", "pdb", "idlelib", "virtualenv"})
"""Modules that never start warm, because they inspect the interpreter itself or change the environment."""
READ_AT_START = (
    *("PYTHON", "LD_", "TORCH", "PYTORCH", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "GOMP_"),
    *("MALLOC_", "GLIBC_", "LANG", "LC_", "NUMPY_", "GEVENT_"),
)
"""Prefixes of variables that the interpreter or a preloaded library reads only once: they must equal the parent's."""
READ_LATER = frozenset(
    {
        *("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING"),
        *("OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_HOME"),
    }
)
"""Exceptions to `READ_AT_START`: variables that `Program` applies, or that are read at each use."""


def parse_command_line(arguments: Sequence[str]) -> Invocation:
    """Return the program that `python *arguments` runs.

    Raises:
        UnfitError: The command line is interactive, has an option that a running interpreter cannot
            apply, or runs a module that needs a new interpreter.
    """
    is_unbuffered = False
    for index, argument in enumerate(arguments):
        rest = list(arguments[index + 1 :])
        match argument:
            case "-u":
                is_unbuffered = True
            case "-c" | "-m" if rest:
                kind = ProgramKind.COMMAND if argument == "-c" else ProgramKind.MODULE
                if kind is ProgramKind.MODULE and rest[0].partition(".")[0] in COLD_MODULES:
                    raise UnfitError(
                        f"module {rest[0]!r} inspects its interpreter, so it must run in a new interpreter"
                    )
                return Invocation(
                    kind=kind, target=rest[0], arguments=rest[1:], is_unbuffered=is_unbuffered
                )
            case "--" if rest:
                return _script(rest[0], rest[1:], is_unbuffered=is_unbuffered)
            case _ if argument.startswith("-"):
                raise UnfitError(f"a running interpreter cannot apply the option {argument!r}")
            case _:
                return _script(argument, rest, is_unbuffered=is_unbuffered)
    raise UnfitError("the command line has no script, -m module or -c code")


def _script(path: str, arguments: list[str], *, is_unbuffered: bool) -> Invocation:
    return Invocation(
        kind=ProgramKind.SCRIPT, target=path, arguments=arguments, is_unbuffered=is_unbuffered
    )


def check_environment(wanted: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Check that a program's environment fits the warm parent that would be forked for it.

    The interpreter and libraries read some variables only when the parent starts. Each of these
    must have the same value in `wanted`, the program's environment, and in `own`, the parent's
    environment.

    Raises:
        UnfitError: A value differs.
    """
    for name in sorted(wanted.keys() | own.keys()):
        if name in READ_LATER or name.startswith("TORCHELASTIC_"):
            continue
        if name.startswith(READ_AT_START) and wanted.get(name) != own.get(name):
            raise UnfitError(
                f"the environment variable {name} has a different value in the warm parent"
            )


def check_shadows(folders: Iterable[str], loaded: Collection[str]) -> None:
    """Check that no module in the program's folders shadows one that the parent has already loaded.

    `loaded` are top-level names. A folder counts as a package only with an `__init__.py`.

    Raises:
        UnfitError: A module or package hides a loaded one.
    """
    for folder in folders:
        try:
            entries = list(os.scandir(folder or "."))
        except OSError:
            continue
        for entry in entries:
            name, dot, suffix = entry.name.partition(".")
            if name not in loaded:
                continue
            if (dot and suffix in {"py", "pyc"}) or entry.name.endswith(".so"):
                raise UnfitError(f"{entry.path} has the name of a module that is already loaded")
            if not dot and Path(entry.path, "__init__.py").exists():
                raise UnfitError(
                    f"package {entry.path} has the name of a package that is already loaded"
                )


def package_stamps(import_path: Iterable[str]) -> dict[str, int]:
    """Return the modification time, in ns, of each folder of installed packages in `import_path`.

    The time of a folder changes when a package is installed in it or removed from it.
    """
    stamps = {}
    for folder in import_path:
        if not folder.endswith("-packages"):
            continue
        try:
            stamps[folder] = Path(folder).stat().st_mtime_ns
        except OSError:
            continue
    return stamps
