"""Static check of a training script: its syntax, and the presence of the modules that it imports from its folder."""

from __future__ import annotations

import ast
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from trainyard.errors import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainyard.catalog.strategy_support import Version

_NEWER_SYNTAX = re.compile(
    r"""^f-string|^\s*type\s+\w|\b(?:def|class)\s+\w+\s*\[|\b[rR]?[fF][rR]?["']"""
)
"""Messages and lines that may be about syntax of Python 3.12: `type`, type parameters, f-strings (PEP 695 and 701)."""


def entry_point_findings(
    source_dir: Path, entry_point: str, *, python: Version | None = None
) -> list[Finding]:
    """Return the findings for an entry point that is missing, is not valid Python, or imports a missing module.

    The check follows imports of modules in the source folder. It ignores modules that the image must provide,
    and scripts in other languages. A finding is an error, with two exceptions that are warnings:

    - The code could be valid in a newer Python.
    - An installed library could provide the missing module.

    Args:
        source_dir: folder of the script.
        entry_point: its path in the folder.
        python: Python version that runs the script; None = unknown.
    """
    script = source_dir / entry_point
    if not source_dir.is_dir():
        near = ", ".join(sorted(each.name for each in source_dir.parent.glob("*/")))
        return [
            Finding(
                where="source_dir",
                what="is not a folder",
                got=str(source_dir),
                allowed=f"a folder, such as one of these in {source_dir.parent}: {near}"
                if near
                else "a folder",
                next_step="correct source_dir",
            )
        ]
    if not script.is_file():
        there = ", ".join(sorted(path.name for path in source_dir.glob("*.py")))
        return [
            Finding(
                where="entry_point",
                what=f"is not in {source_dir}",
                got=entry_point,
                allowed=there or "a file of that folder, which has no .py files",
            )
        ]
    if script.suffix != ".py":
        return []
    if link := _linked(source_dir, script):
        return [_not_copied("entry_point", f"is below the symbolic link {link}")]
    return list(_module_findings(source_dir, script, python=python, seen=set()))


def _module_findings(
    root: Path, module: Path, *, python: Version | None, seen: set[Path]
) -> Iterator[Finding]:
    seen.add(module)
    where, content = str(module.relative_to(root)), module.read_bytes()
    try:
        imports = _imports(content, where)
    except (SyntaxError, ValueError) as error:
        yield _not_compiled(where, content, error, python=python)
        return
    for line, name in imports:
        found = _own_module(root, name)
        if found is None:
            continue
        if not found.exists():
            yield _missing(f"{where}:{line}", name, found.relative_to(root), root=root)
        elif link := _linked(root, found):
            what = f"imports {name}, which is below the symbolic link {link}"
            yield _not_copied(f"{where}:{line}", what)
        elif found.is_file() and found not in seen:
            yield from _module_findings(root, found, python=python, seen=seen)


def _not_compiled(
    where: str, content: bytes, error: SyntaxError | ValueError, *, python: Version | None
) -> Finding:
    """Return the finding on a module that does not compile with the Python that runs this check.

    The finding is a warning if the image's Python (`python`) is newer or unknown, and the faulty line looks like newer
    syntax. Otherwise it is an error.
    """
    line, message = getattr(error, "lineno", None) or 0, getattr(error, "msg", None) or str(error)
    own = sys.version_info[:2]
    texts = [message, *content.decode("utf-8", "replace").splitlines()[max(0, line - 1) : line]]
    is_error = (python is not None and python <= own) or not any(map(_NEWER_SYNTAX.search, texts))
    return Finding(
        where=f"{where}:{line}" if line else where,
        what=f"does not compile: {message}",
        next_step=None
        if is_error
        else f"correct the line, unless it is valid in the image's Python; this check has {own[0]}.{own[1]}",
        severity=Severity.ERROR if is_error else Severity.WARNING,
    )


def _missing(where: str, name: str, expected: Path, *, root: Path) -> Finding:
    """Return the finding on a module that is missing in the source folder.

    It is an error if the module's top folder has an `__init__.py`. Without that file it is a warning, because
    Python then prefers an installed library of the same name, and that library could have the module.
    """
    is_package = (root / expected.parts[0] / "__init__.py").is_file()
    return Finding(
        where=where,
        what=f"imports {name}, which is not in the source folder",
        next_step=("" if is_package else "if no installed library has this module, ")
        + f"add {expected}, or correct the import",
        severity=Severity.ERROR if is_package else Severity.WARNING,
    )


def _linked(root: Path, path: Path) -> Path | None:
    """Return the deepest folder between `root` and `path` that is a symbolic link; None if none is.

    The result is relative to `root`.
    """
    folders = [root / each for each in path.relative_to(root).parents]
    return next((each.relative_to(root) for each in folders[:-1] if each.is_symlink()), None)


def _not_copied(where: str, what: str) -> Finding:
    return Finding(
        where=where,
        what=f"{what}, and linked folders are not copied to the job",
        next_step="replace the link with a copy of the folder",
    )


@lru_cache(maxsize=1_000)  # the cells of a comparison share their modules
def _imports(content: bytes, where: str) -> tuple[tuple[int, str], ...]:
    """Return the lines and names of a module's absolute imports.

    Raises:
        SyntaxError: the module does not compile.
        ValueError: the module has null bytes.
    """
    tree = ast.parse(content, filename=where)
    compile(tree, where, "exec")
    found: list[tuple[int, str]] = []
    optional = {id(each) for each in _optional(tree)}
    for node in (each for each in ast.walk(tree) if id(each) not in optional):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.lineno, node.module))
    return tuple(found)


def _optional(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes in the body of each `try` statement with a handler that catches failed imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(map(_catches_imports, node.handlers)):
            yield from (inner for each in node.body for inner in ast.walk(each))


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    names = {each.id for each in ast.walk(handler.type or ast.Pass()) if isinstance(each, ast.Name)}
    return handler.type is None or bool(names & {"ImportError", "ModuleNotFoundError", "Exception"})


def _own_module(root: Path, name: str) -> Path | None:
    """Return the file of a module in the source folder, or None if there is no file to check.

    For a name with dots such as `a.b`, the result is `a/b/__init__.py` for a package, otherwise `a/b.py`, even
    if that file does not exist. If the folder `a` is missing or has no Python files, `a.b` counts as a module
    from elsewhere. The result is None for a module from elsewhere, for a compiled module, and for a package
    without `__init__.py`.
    """
    top, *rest = name.split(".")
    if not rest:
        single = root / f"{top}.py"
        package = root / top / "__init__.py"
        return single if single.is_file() else package if package.is_file() else None
    if next((root / top).rglob("*.py"), None) is None:
        return None
    module = root.joinpath(top, *rest).with_suffix(".py")
    package = root.joinpath(top, *rest)
    if package.is_dir():  # one without __init__.py is a namespace package, with nothing to read
        init = package / "__init__.py"
        return init if init.exists() else None
    is_compiled = any(module.parent.glob(f"{rest[-1]}.*so"))
    return None if is_compiled else module
