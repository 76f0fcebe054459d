"""`Form`: the trigger form of a DAG; and the schemas that several forms share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from trainyard.errors import Finding, SpecError, did_you_mean, near_matches
from trainyard.specs.base_run_conf_rules import PATTERNS
from trainyard.specs.limits import ABOVE_ZERO, LEAST, MOST, USUAL_MOST
from trainyard_airflow.tasks.shared.schema_findings import NO_NAN, value_findings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Fields = Mapping[str, tuple[str, str, dict[str, Any]]]
"""Title, description and schema by the param's name."""
Sections = Mapping[str, Fields]
"""Fields by the form's section."""

MOST_CHARACTERS = 4096
_NO_CONTROL_CHARACTERS = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
_NUMBERS: dict[str, Any] = {"minimum": -(2**63), "maximum": 2**63 - 1}
"""Bounds of numbers in a mapping with any keys: the bounds of 64-bit integers."""
_LOWER, _UPPER = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}

TEXT_OR_NONE: dict[str, Any] = {"type": ["null", "string"], "minLength": 1}
COUNT_OR_NONE: dict[str, Any] = {"type": ["null", "integer"], "minimum": 1}
FRACTION: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
INTEGER_OR_NONE: dict[str, Any] = {"type": ["null", "integer"]}
NUMBER_OR_NONE: dict[str, Any] = {"type": ["null", "number"]}
"""Schemas of fields whose bounds `trainyard.specs.limits` declares."""


def named(name: str, *, or_none: bool = False) -> dict[str, Any]:
    """Return the schema of a param whose pattern is in `PATTERNS`.

    Raises:
        KeyError: there is no pattern of that name.
    """
    return {
        "type": ["null", "string"] if or_none else "string",
        "pattern": exactly(PATTERNS[name][0]),
    }


def exactly(pattern: str) -> str:
    """Return the pattern anchored to the whole text; Python's `$` alone also matches before a final line break."""
    return f"^(?:{pattern})$(?!\\n)"


def with_bounds(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with a minimum and maximum for every number, and a maximum length for every text.

    The schema also rejects NaN. For a validator, NaN is within any bounds, even contradictory ones. The schema
    therefore rejects each number that satisfies both >= 1 and <= 0 in the validator. Only NaN does.

    Args:
        name: the param's name, which selects the bounds in `trainyard.specs.limits`.
        schema: the schema; bounds that it already has are kept.
    """
    bounded = dict(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(bounded.get(key), Mapping):
            bounded[key] = with_bounds(name, bounded[key])
    if "properties" in bounded:
        inner = bounded["properties"].items()
        bounded["properties"] = {key: with_bounds(key, each) for key, each in inner}
    types = bounded.get("type", ())
    types = {types} if isinstance(types, str) else set(types)
    if "object" in types and not {"properties", "additionalProperties"} & set(bounded):
        bounded["additionalProperties"] = {**_NUMBERS, **NO_NAN}
    if types & {"integer", "number"}:
        most = MOST.get(name, USUAL_MOST)
        bounded |= {} if _UPPER & set(bounded) else {"maximum": most}
        bounded |= {} if _LOWER & set(bounded) else _lower_bound(name, most)
        bounded |= NO_NAN if "number" in types else {}
    if "string" in types and not {"enum", "pattern"} & set(bounded):
        bounded |= {"maxLength": MOST_CHARACTERS, "pattern": _NO_CONTROL_CHARACTERS}
    return bounded


def _lower_bound(name: str, most: float) -> dict[str, Any]:
    return {"exclusiveMinimum": 0} if name in ABOVE_ZERO else {"minimum": LEAST.get(name, -most)}


@dataclass(frozen=True, slots=True)
class Form:
    """The trigger form of a DAG, whose fields are also the params of the REST API and the schedule.

    Attributes:
        sections: fields by the form's section.
        defaults: defaults by the field's name; a field without one is required.

    Raises:
        KeyError: there is a default of an unknown field.
    """

    sections: Sections
    defaults: Mapping[str, Any]

    def __post_init__(self) -> None:
        names = {name for entries in self.sections.values() for name in entries}
        if unknown := self.defaults.keys() - names:
            raise KeyError(f"no such fields: {sorted(unknown)}; allowed: {sorted(names)}")

    def params(self) -> dict[str, Param]:
        """Return the fields as params of a DAG."""
        return {
            name: Param(
                **({"default": self.defaults[name]} if name in self.defaults else {}),
                title=title,
                description=description,
                section=section,
                **with_bounds(name, schema),
            )
            for section, entries in self.sections.items()
            for name, (title, description, schema) in entries.items()
        }

    def with_defaults(self, defaults: Mapping[str, Any], *, subject: str) -> Form:
        """Return the form with other defaults.

        Args:
            defaults: values by the fields' names. All other fields keep the form's own defaults.
            subject: first words of the error's message; they name the object with the wrong defaults.

        Raises:
            SpecError: there are unknown names, or values that the form would reject; the error lists all of them.
        """
        params = self.params()
        unknown = [
            Finding(
                where=f"defaults.{name}",
                what="is not a field of the run",
                next_step=did_you_mean(near_matches(name, params))
                or "use a name of docs/params.md",
            )
            for name in defaults
            if name not in params
        ]
        refused = (
            finding
            for name in defaults
            if name in params
            for finding in value_findings(name, params[name].schema, defaults[name])
        )
        if findings := [*unknown, *refused]:
            raise SpecError(findings, subject=subject)
        return Form(self.sections, {**self.defaults, **defaults})

    def add_to(self, dag: DAG) -> None:
        """Add the params to a DAG; call this method after all tasks of the DAG were created.

        If the DAG has params when a task is created, Airflow copies them into the task, and validates and stores each
        copy whenever it serializes the DAG. For `train_end_to_end`, this takes 380 kB and 1.8 s, against 43 kB and
        0.01 s without copies. A task without params of its own uses the DAG's.
        """
        dag.params.update(self.params())


def conf_defaults(conf: type[DataclassInstance]) -> dict[str, Any]:
    """Return the defaults of a conf's fields, with tuples as lists; fields without a default are omitted."""
    values = {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(conf)
    }
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not MISSING
    }
