"""What the params of several DAGs share: schemas, and how a conf's fields become a form's sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from include.specs.run_conf_rules import PATTERNS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Sections = Mapping[str, Mapping[str, tuple[str, str, dict[str, Any]]]]
"""Section of the form -> name -> (title, description, schema)."""

TEXT_OR_NONE: dict[str, Any] = {"type": ["null", "string"], "minLength": 1}
COUNT_OR_NONE: dict[str, Any] = {"type": ["null", "integer"], "minimum": 1}


def named(name: str, *, or_none: bool = False) -> dict[str, Any]:
    """Return the schema of a param whose pattern the end-to-end conf's rules know."""
    return {
        "type": ["null", "string"] if or_none else "string",
        "pattern": f"^(?:{PATTERNS[name][0]})$",
    }


def form_params(sections: Sections, defaults: Mapping[str, Any]) -> dict[str, Param]:
    """Return the params of the sections, each with its default."""
    return {
        name: Param(defaults[name], title=title, description=description, section=section, **schema)
        for section, entries in sections.items()
        for name, (title, description, schema) in entries.items()
    }


def conf_defaults(conf: type[DataclassInstance]) -> dict[str, Any]:
    """Return the defaults of a conf's fields as JSON has them; a field without one is left out."""
    values = {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(conf)
    }
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not MISSING
    }
