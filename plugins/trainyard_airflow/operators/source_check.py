"""Static check of a training script: its syntax, and the presence of the modules that it imports from its folder."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from trainyard.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def entry_point_findings(source_dir: Path, entry_point: str) -> list[Finding]:
    """Return the findings for an entry point that is missing, is not valid Python, or imports a missing module.

    The check follows imports of modules in the source folder. It ignores modules that the image must provide, and
    scripts in other languages.
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
    return list(_module_findings(source_dir, script, seen=set()))


def _module_findings(root: Path, module: Path, *, seen: set[Path]) -> Iterator[Finding]:
    seen.add(module)
    where = str(module.relative_to(root))
    try:
        imports = _imports(module.read_bytes(), where)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{where}:{line}" if line else where
        text = getattr(error, "msg", None) or str(error)
        yield Finding(where=place, what=f"does not compile: {text}")
        return
    for line, name in imports:
        found = _own_module(root, name)
        if found is None:
            continue
        if not found.exists():
            yield Finding(
                where=f"{where}:{line}",
                what=f"imports {name}, which is not in the source folder",
                next_step=f"add {found.relative_to(root)}, or correct the import",
            )
        elif found.is_file() and found not in seen:
            yield from _module_findings(root, found, seen=seen)


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
    """Yield the nodes whose imports may fail, because a handler catches the error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(map(_catches_imports, node.handlers)):
            yield from (inner for each in node.body for inner in ast.walk(each))


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    names = {each.id for each in ast.walk(handler.type or ast.Pass()) if isinstance(each, ast.Name)}
    return handler.type is None or bool(names & {"ImportError", "ModuleNotFoundError", "Exception"})


def _own_module(root: Path, name: str) -> Path | None:
    """Return the path, existing or expected, of a module in the source folder; None for a module from elsewhere."""
    top, *rest = name.split(".")
    if not rest:
        single = root / f"{top}.py"
        package = root / top / "__init__.py"
        return single if single.is_file() else package if package.is_file() else None
    if not (root / top).is_dir():
        return None
    module = root.joinpath(top, *rest).with_suffix(".py")
    package = root.joinpath(top, *rest)
    if package.is_dir():  # one without __init__.py is a namespace package, with nothing to read
        init = package / "__init__.py"
        return init if init.exists() else None
    is_compiled = any(module.parent.glob(f"{rest[-1]}.*so"))
    return None if is_compiled else module
