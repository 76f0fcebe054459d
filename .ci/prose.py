"""Count phrases that the project avoids in docstrings, and fail if there are more than before.

    python .ci/prose.py

The ceilings are in pyproject.toml, `[tool.trainyard.prose]`: lower them when a count falls.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = (
    "include",
    "plugins",
    "dags",
    "images",
    "tools",
    "tests/oracle/verify",
    "training_scripts",
    "benchmarks",
)
HABITS = {
    "question_openings": re.compile(r"\A(?:What|How|Where|Which|Whether)\b"),
    "told_tells_says": re.compile(r"\b(?:told|tells?|says?|said)\b", re.IGNORECASE),
    "is_no": re.compile(
        r"(?<![Tt]here )\b(?:is|are|was|were) (?:no (?!longer\b|more\b|later\b)|none of\b)"
    ),
    "or_else": re.compile(r"(?:, |; |\bor )else\b", re.IGNORECASE),
    "whatever": re.compile(r"\b(?:whatever|whoever|as far as|any more|anew)\b", re.IGNORECASE),
    "where": re.compile(r"\bwhere\b", re.IGNORECASE),
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[str]:
    """Yield every docstring of the product."""
    for folder in FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, DOCUMENTED):
                    yield ast.get_docstring(node) or ""


def main() -> int:
    """Print the counts beside their ceilings, and return the exit status."""
    counts = Counter(dict.fromkeys(HABITS, 0))
    for text in docstrings():
        for name, habit in HABITS.items():
            counts[name] += len(habit.findall(text))
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    ceilings = settings["tool"]["trainyard"]["prose"]
    for name, count in counts.items():
        print(f"{name}: {count} of at most {ceilings[name]}")
    return int(any(count > ceilings[name] for name, count in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
