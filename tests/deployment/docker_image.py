"""The layers of a Dockerfile without Docker: what its COPY lines take from the build context, in a folder."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOYMENT = "Dockerfile"
ENGINE = "include/sagemaker_engine/Dockerfile"


def copied(dockerfile: str = DEPLOYMENT) -> list[str]:
    """Return the sources of every COPY line that takes files from the build context, the repository."""
    lines = (REPOSITORY / dockerfile).read_text().replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [
        source
        for instruction, *arguments in filter(None, words)
        if instruction == "COPY" and not any(each.startswith("--from") for each in arguments)
        for source in [each for each in arguments if not each.startswith("--")][:-1]
    ]


def patterns() -> list[str]:
    """Return the patterns of .dockerignore."""
    lines = (line.strip() for line in (REPOSITORY / ".dockerignore").read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_ignored(path: str, *, by: list[str]) -> bool:
    """Return whether a path is kept out of the build context.

    The last pattern that matches the path or a folder above it decides, and `!` takes it back in (Docker's
    documentation of .dockerignore; moby/patternmatcher, `MatchesOrParentMatches`).
    """
    parts = PurePosixPath(path).parts
    candidates = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    ignored = False
    for pattern in by:
        wanted = _expression(pattern.removeprefix("!").strip("/"))
        if any(wanted.fullmatch(each) for each in candidates):
            ignored = not pattern.startswith("!")
    return ignored


def context_files(source: str) -> list[Path]:
    """Return the files below a COPY source that are in the build context, relative to the repository."""
    root, by = REPOSITORY / source, patterns()
    found = sorted(root.rglob("*")) if root.is_dir() else [root] if root.exists() else []
    relative = (path.relative_to(REPOSITORY) for path in found if path.is_file())
    return [path for path in relative if not is_ignored(path.as_posix(), by=by)]


def copy_source(folder: Path, dockerfile: str = DEPLOYMENT) -> Path:
    """Copy what the wheel is built from into the folder, and return it."""
    for source in copied(dockerfile):
        for path in context_files(source):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / path, target)
    return folder


def _expression(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wild.get(piece, re.escape(piece)) for piece in pieces))
