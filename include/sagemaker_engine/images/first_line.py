"""Interpreter line of a script as pip writes it: a shebang, or a shell header if a shebang is not possible.

The kernel reads a shebang only up to a limit, and treats a space as the end of the program's path.
"""

from __future__ import annotations

import re
from pathlib import Path

LIMIT_BYTES = 127
"""Longest shebang in bytes that every Linux supports (BINPRM_BUF_SIZE before 5.1, without its terminator)."""
DIRECT = re.compile(rb"#!(?P<python>[^ \n]+)[^\n]*\n")
BY_SHELL = re.compile(
    rb"#!/bin/sh\n'''exec' (?P<quote>\"?)(?P<python>[^\"\n]+?)(?P=quote)( -[^\"\n]*)? \"\$0\" \"\$@\"\n' '''\n"
)


def first_lines(python: Path, option: str = "") -> str:
    """Return the shebang for an interpreter, or three shell lines if its path has spaces or is too long.

    Example of a shebang: `#!/env/bin/python -I`. For `/my env/bin/python` the first line is `#!/bin/sh`, and
    the second executes the interpreter. To Python, the second and third line are a string literal without
    effect.
    """
    words = f"{python} {option}".rstrip()
    if " " not in str(python) and len(f"#!{words}\n".encode()) <= LIMIT_BYTES:
        return f"#!{words}\n"
    program = f'"{python}" {option}'.rstrip()
    return f"#!/bin/sh\n'''exec' {program} \"$0\" \"$@\"\n' '''\n"


def first_lines_of_ours(python: Path, option: str, source: str) -> str:
    """Return the script `source` with the lines of `first_lines` in front. `source` must begin with a docstring.

    Shell lines are hidden from Python in a string literal. This literal and the docstring are joined into one,
    because Python allows only one string literal before `from __future__`.
    """
    lines = first_lines(python, option)
    return (lines if lines.count("\n") == 1 else f"{lines[:-1]} \\\n") + source


def split_script(content: bytes) -> tuple[Path, bytes] | None:
    """Return the interpreter in a script's first lines and the rest of the script; None without an interpreter."""
    found = BY_SHELL.match(content) or DIRECT.match(content)
    if found is None:
        return None
    return Path(found["python"].decode(errors="surrogateescape")), content[found.end() :]
