"""Interpreter line of a script, as pip writes it: a shebang, or a shell header if a shebang cannot express it.

The kernel reads a first line up to its limit and takes a blank for the end of the program.
"""

from __future__ import annotations

import re
from pathlib import Path

LIMIT_BYTES = 127
"""What a first line may have at most on every Linux (BINPRM_BUF_SIZE before 5.1, less its end)."""
DIRECT = re.compile(rb"#!(?P<python>[^ \n]+)[^\n]*\n")
BY_SHELL = re.compile(
    rb"#!/bin/sh\n'''exec' (?P<quote>\"?)(?P<python>[^\"\n]+?)(?P=quote)( -[^\"\n]*)? \"\$0\" \"\$@\"\n' '''\n"
)


def first_lines(python: Path, option: str = "") -> str:
    """Return the first line of a script of this interpreter; three where its path has blanks or is long.

    Worked: `#!/env/bin/python -I`; of `/my env/bin/python`, `#!/bin/sh`, which becomes that with the script, and the
    rest of a text of Python's that hides it.
    """
    words = f"{python} {option}".rstrip()
    if " " not in str(python) and len(f"#!{words}\n".encode()) <= LIMIT_BYTES:
        return f"#!{words}\n"
    program = f'"{python}" {option}'.rstrip()
    return f"#!/bin/sh\n'''exec' {program} \"$0\" \"$@\"\n' '''\n"


def first_lines_of_ours(python: Path, option: str, source: str) -> str:
    """Return a script, `source`, which begins with a docstring, below its first lines.

    The text that hides the shell's lines becomes part of the docstring: Python allows one before `from __future__`.
    """
    lines = first_lines(python, option)
    return (lines if lines.count("\n") == 1 else f"{lines[:-1]} \\\n") + source


def split_script(content: bytes) -> tuple[Path, bytes] | None:
    """Return the interpreter that a script names in either way and what follows; None: it is no such script."""
    found = BY_SHELL.match(content) or DIRECT.match(content)
    if found is None:
        return None
    return Path(found["python"].decode(errors="surrogateescape")), content[found.end() :]
