"""Findings on a conf that violates the JSON schemas of its params."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, shortened, unknown_key
from trainyard.specs.base_run_conf_rules import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from jsonschema.exceptions import ValidationError

NO_NAN: dict[str, Any] = {"not": {"type": "number", "minimum": 1, "maximum": 0}}
"""Schema that rejects NaN, which passes all bounds."""
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_BOUNDS = {
    "minimum": ("is too small", "at least {}"),
    "exclusiveMinimum": ("is too small", "more than {}"),
    "maximum": ("is too large", "at most {}"),
    "exclusiveMaximum": ("is too large", "less than {}"),
    "minLength": ("is too short", "at least {} character(s)"),
    "maxLength": ("is too long", "at most {} characters"),
    "minItems": ("has too few entries", "at least {}"),
    "maxItems": ("has too many entries", "at most {}"),
}


def conf_findings(
    schemas: Mapping[str, Mapping[str, Any]],
    conf: Mapping[str, Any],
    *,
    required: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield a finding for each invalid value, each missing param and each misspelt name of a conf.

    A name that resembles no param is accepted, because a DAG may read other values of the conf.

    Args:
        schemas: JSON schemas by the param's name.
        conf: the run's conf as given by the user.
        required: names of the params without a default.
    """
    for name, value in conf.items():
        if name in schemas:
            yield from value_findings(name, schemas[name], value)
        elif get_close_matches(name, schemas):
            yield unknown_key("", name, list(schemas))
    for name in sorted(set(required) - set(conf)):
        absent = list(value_findings(name, schemas[name], None))
        yield from (replace(each, what="is required", got=None) for each in absent)


def value_findings(name: str, schema: Mapping[str, Any], value: object) -> Iterator[Finding]:
    """Yield a finding for each way in which a value violates the schema of the param `name`."""
    from jsonschema import FormatChecker  # a DAG file imports this module
    from jsonschema.validators import validator_for

    validator = validator_for(schema)(schema, format_checker=FormatChecker())
    for error in validator.iter_errors(value):
        yield _finding(name, error)


def _finding(name: str, error: ValidationError) -> Finding:
    where = name + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    rule, limit = str(error.validator), error.validator_value
    if "propertyNames" in error.absolute_schema_path and rule == "enum":
        return unknown_key(where, str(error.instance), list(limit))
    what, allowed = _words(name, rule, limit, error)
    return Finding(
        where=where, what=what, got=shortened(repr(error.instance), limit=80), allowed=allowed
    )


def _words(name: str, rule: str, limit: Any, error: ValidationError) -> tuple[str, str | None]:
    """Return the finding's texts `what` and `allowed` for a value that violates the schema of the param `name`.

    `rule` is the violated keyword of the schema, such as `minimum`, and `limit` is the keyword's value.
    """
    if rule in _BOUNDS:
        what, allowed = _BOUNDS[rule]
        return what, allowed.format(limit)
    if rule == "type":
        kinds = [limit] if isinstance(limit, str) else sorted(limit, key="null".__eq__)
        return "has the wrong type", " or ".join(_TYPES.get(each, each) for each in kinds)
    if rule == "enum":
        return "is not an allowed value", ", ".join(map(str, limit))
    if rule == "pattern":
        is_named = name in PATTERNS and not error.absolute_path
        return "is malformed", PATTERNS[name][1] if is_named else f"text that matches {limit}"
    if rule == "not" and limit == NO_NAN["not"]:
        return "is not a number", "a finite number"
    return shortened(error.message), None
