"""Structure of the tree: unique class names, few levels of own classes, no import circles, no foreign links."""

from __future__ import annotations

import ast
import gc
import shutil
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.loaders import Loader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPOSITORY = Path(__file__).resolve().parents[1]
ROOTS = (
    "include",
    "plugins",
    "training_scripts",
    "training_scripts/fine_tuning",
    "tools",
    "tests/oracle",
    ".",
)
GIT = shutil.which("git") or "git"
MOST_LEVELS = 2
CALL_MEMBERS = {
    "hooks/model_registry.py": {"CreationTime"},
    "hooks/paid_things.py": {"EndpointStatus", "EndpointName", "EndpointArn", "CreationTimeAfter"},
    "hooks/quota_check.py": {"NextToken"},
    "triggers/job_feed.py": {
        "LastModifiedTimeAfter", "CreationTimeAfter", "CreationTime", "SortBy", "SortOrder", "NextToken",
        "SecondaryStatus",
    },
}  # fmt: skip
"""Members of SageMaker's API outside `sagemaker_api`: arguments and rows of one listing each."""
SAME_NAME_ON_PURPOSE = frozenset({"DataError"})
"""The failure table pairs the container's error with its counterpart outside by this name."""
DEEPER_CLASSES = 23
"""Shipped classes outside `errors.py` that are deeper. The number only goes down (docs/adr/0078)."""


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """Keep the syntax trees out of garbage collections while they are needed, and drop them afterwards.

    Collections would walk their 1.5 million nodes again and again, in all later tests of the process.
    """
    gc.disable()
    yield
    for each in (modules, classes, _names_of):
        each.cache_clear()
    gc.enable()


@cache
def modules() -> Mapping[Path, ast.Module]:
    """Return the syntax trees of all Python files in git."""
    listed = subprocess.run(
        [GIT, "ls-files", "-co", "--exclude-standard", "*.py"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    paths = [Path(each) for each in listed if (REPOSITORY / each).exists()]
    return {path: ast.parse((REPOSITORY / path).read_text()) for path in paths}


@cache
def classes() -> Mapping[str, list[tuple[Path, ast.ClassDef]]]:
    """Return all classes of the tree by name."""
    found: dict[str, list[tuple[Path, ast.ClassDef]]] = defaultdict(list)
    for path, tree in modules().items():
        for node in _statements(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append((path, node))
    return found


def test_a_class_name_is_used_once() -> None:
    """A search for a class finds one class."""
    twice = {
        name: sorted(str(path) for path, _ in places)
        for name, places in classes().items()
        if len(places) > 1 and name not in SAME_NAME_ON_PURPOSE
    }
    assert twice == {}


def test_shipped_classes_have_at_most_one_own_base_class() -> None:
    """Variation is a value. Errors are a tree by the person who must act, and are not counted."""
    deep = [
        lineage
        for name, places in classes().items()
        for path, node in places
        if path.parts[0] != "tests"
        and path.name != "errors.py"
        and len(lineage := _lineage(name, node)) > MOST_LEVELS
    ]
    assert len(deep) == DEEPER_CLASSES, "\n".join(sorted(" > ".join(each) for each in deep))


def _lineage(name: str, node: ast.ClassDef) -> list[str]:
    """Return the longest line of own classes from a class to its root."""
    lines = []
    for base in node.bases:
        bare = base.value if isinstance(base, ast.Subscript) else base
        own = (
            bare.id
            if isinstance(bare, ast.Name)
            else bare.attr
            if isinstance(bare, ast.Attribute)
            else ""
        )
        if own != name and own in classes():
            lines.append(_lineage(own, classes()[own][0][1]))
    return [name, *max(lines, key=len, default=[])]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for annotations alone are not counted: a spec's rules name the spec that they check."""
    assert (
        list(_circles({path: set(_imports(path, tree)) for path, tree in modules().items()})) == []
    )


def test_no_tracked_link_leads_out_of_the_tree() -> None:
    """A link to a place of one machine is broken in every clone."""
    listed = subprocess.run(
        [GIT, "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    links = [path for path in map(REPOSITORY.joinpath, listed) if path.is_symlink()]
    assert [str(path) for path in links if not path.resolve().is_relative_to(REPOSITORY)] == []


def test_what_a_module_imports_from_another_is_there() -> None:
    """Benchmarks and examples are not run by the tests, and a name that is changed leaves them behind."""
    missing = [
        f"{path}: {name} of {source}"
        for path, tree in modules().items()
        for source, name in _imported_names(path, tree)
        if name not in (known := _names_of(source)) and "__getattr__" not in known
    ]
    assert missing == []


def _imported_names(path: Path, tree: ast.Module) -> Iterator[tuple[Path, str]]:
    """Yield the names that a file imports from another file of the tree, each with that file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            beside = path.parent / f"{node.module}.py"
            source = beside if beside in modules() else _file(node.module)
            for each in node.names:
                if source is not None and _file(f"{node.module}.{each.name}") is None:
                    yield source, each.name


@cache
def _names_of(path: Path) -> frozenset[str]:
    """Return the names that a file binds outside of functions and classes."""
    names: set[str] = set()
    waiting: list[ast.AST] = [modules()[path]]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names.update((each.asname or each.name).partition(".")[0] for each in node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            else:
                waiting.append(node)
    return frozenset(names)


def test_plugins_leave_the_members_of_sagemakers_requests_and_answers_to_sagemaker_api() -> None:
    plugins = Path("plugins/trainyard_airflow")
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules().items():
        if path.is_relative_to(plugins):
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and node.value in _sagemaker_members():
                    found[path.relative_to(plugins).as_posix()].add(node.value)
    assert dict(found) == CALL_MEMBERS


@cache
def _sagemaker_members() -> frozenset[object]:
    """Return the members of SageMaker's structures that no other service and no other library has."""
    shapes = Loader().load_service_model("sagemaker", "service-2")["shapes"].values()
    members = {name for each in shapes for name in each.get("members", ())}
    others = {"ContentType", "ETag", "AlarmName", "RoleArn", "TrainingJob"}
    return frozenset(each for each in members - others if sum(map(str.isupper, each)) > 1)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield everything below a node that is no expression, without imports for annotations alone."""
    waiting = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            is_for_types = (
                isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
            )
            if not isinstance(node, ast.expr) and not is_for_types:
                waiting.append(node)
                yield node


def _imports(path: Path, tree: ast.Module) -> Iterator[Path]:
    """Yield the files that a file imports when it runs, also inside functions."""
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from _files([each.name for each in node.names], importer=path)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                yield from _files([f"{node.module}.{each.name}", node.module], importer=path)


def _files(names: list[str], *, importer: Path) -> Iterator[Path]:
    """Yield the file of the first of the names that is a module of the tree."""
    for name in names:
        found = _file(name)
        if found is not None:
            if found != importer:
                yield found
            return


@cache
def _file(name: str) -> Path | None:
    stem = name.replace(".", "/")
    paths = [Path(root, end) for root in ROOTS for end in (f"{stem}.py", f"{stem}/__init__.py")]
    return next((each for each in paths if each in modules()), None)


def _circles(imports: Mapping[Path, set[Path]]) -> Iterator[list[str]]:
    """Yield every circle that a walk in depth meets."""
    done: set[Path] = set()

    def walk(path: Path, route: list[Path]) -> Iterator[list[str]]:
        if path in route:
            yield [str(each) for each in (*route[route.index(path) :], path)]
        elif path not in done:
            for other in sorted(imports[path]):
                yield from walk(other, [*route, path])
            done.add(path)

    for path in sorted(imports):
        yield from walk(path, [])
