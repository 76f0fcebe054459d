"""Generator of `docs/params.md`: every param of every DAG with its default, allowed values and meaning.

`python -m reference.params_page > docs/params.md` writes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.sdk import Param

DAGS = Path(__file__).resolve().parents[2] / "dags"
PAGE = "docs/params.md"
TITLE = """\
# Params of the DAGs

Generated from the DAG files (`python -m reference.params_page`). The form, the REST API's `conf`, the schedule and
`make run CONF=` use the same names; an omitted param has its default. [The DAGs](dags.md) shows how to start one.
"""
HEAD = "| Param | Default | Allowed | Meaning |\n|---|---|---|---|"
NO_SECTION = "General"
# Larger bounds only keep a number finite or within 64 bits, and are not shown.
WORTH_NAMING = 10**9


def render() -> str:
    """Return the page as Markdown."""
    return "\n".join([TITLE, *_dag_parts()]).rstrip() + "\n"


def loaded_dags() -> list[DAG]:
    """Return the DAGs of `dags/`, `train_end_to_end` first."""
    found = []
    for path in sorted(DAGS.glob("*.py")):
        found += [each for each in run_path(str(path)).values() if isinstance(each, DAG)]
    return sorted(found, key=lambda dag: (dag.dag_id != "train_end_to_end", dag.dag_id))


def _dag_parts() -> Iterator[str]:
    seen: dict[frozenset[str], Mapping[str, Param]] = {}
    for dag in loaded_dags():
        params = {name: dag.params.get_param(name) for name in dag.params}
        yield f"## `{dag.dag_id}`\n"
        first = seen.setdefault(frozenset(params), params)
        if first is params:
            yield from _section_parts(params)
        else:
            yield _differences(params, first)


def _section_parts(params: Mapping[str, Param]) -> Iterator[str]:
    by_section: dict[str, list[str]] = {}
    for name, param in params.items():
        by_section.setdefault(param.schema.get("section", NO_SECTION), []).append(name)
    for section, names in by_section.items():
        yield f"### {section}\n\n{HEAD}"
        yield from (_row(name, params[name]) for name in names)
        yield ""


def _differences(params: Mapping[str, Param], first: Mapping[str, Param]) -> str:
    differing = [name for name in params if params[name].value != first[name].value]
    defaults = ", ".join(f"`{name}` {_default(params[name])}" for name in differing)
    return f"The params of `train_end_to_end`{f'; other defaults: {defaults}' * bool(defaults)}.\n"


def _row(name: str, param: Param) -> str:
    cells = (f"`{name}`", _default(param), _allowed(param.schema), param.description or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(param: Param) -> str:
    if param.has_value:
        return f"`{json.dumps(param.value)}`" if param.value != "" else "empty"
    return "empty" if "null" in param.schema.get("type", ()) else "required"


def _allowed(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    given = schema.get("type", "any")
    types = [given] if isinstance(given, str) else given
    named = " or ".join(each for each in types if each != "null") + " or empty" * ("null" in types)
    if bounds := [*_bounds(schema)]:
        return f"{named}, {' and '.join(bounds)}"
    return named


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for key, words in (
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    ):
        if key in schema and abs(schema[key]) < WORTH_NAMING:
            yield f"{words} {schema[key]:,}"


if __name__ == "__main__":
    sys.stdout.write(render())
