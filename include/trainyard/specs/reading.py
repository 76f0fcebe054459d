"""Conversion of a mapping (JSON, YAML, rendered templates) into a frozen spec; all faults are in one error.

A field's type determines the accepted values: `int`, `float`, `bool`, `str`, a `StrEnum`, `Mapping`, `tuple[X, ...]`,
`X | None`, or another spec (read from a nested mapping). Text that spells a number or a boolean is converted, because
templated Airflow fields and form inputs arrive as text. Numbers are never rounded.
"""

from __future__ import annotations

import re
import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from trainyard.errors import Finding, SpecError, shortened, unknown_key

Spec = TypeVar("Spec")


def read_spec(cls: type[Spec], mapping: Mapping[str, Any], *, where: str = "") -> Spec:
    """Build an instance of `cls` from the mapping.

    Args:
        cls: a frozen dataclass.
        mapping: field names to values; nested specs as nested mappings.
        where: path of the mapping inside the user's input, put before each field's name in
            findings.

    Raises:
        SpecError: unknown, missing or mistyped keys, or values that the spec itself rejects; the error lists all of
            them.
    """
    try:
        return _read(cls, mapping, where)
    except SpecError as error:
        raise SpecError(error.findings, subject=cls.__name__) from None


def _read(cls: type[Spec], mapping: object, where: str) -> Spec:
    if not isinstance(mapping, Mapping):
        raise SpecError([_mistyped(where, mapping, f"a mapping with the keys of {cls.__name__}")])
    declared = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # a dataclass
    findings = [
        unknown_key(where, str(key), list(declared)) for key in mapping if key not in declared
    ]
    values: dict[str, Any] = {}
    hints = _hints(cls)  # type: ignore[arg-type]  # a class is hashable; mypy asks about instances
    for name, field in declared.items():
        path = f"{where}.{name}" if where else name
        if name not in mapping:
            findings += [Finding(where=path, what="is required")] if _is_required(field) else []
            continue
        try:
            values[name] = _value(hints[name], mapping[name], path)
        except SpecError as error:
            findings += error.findings
    spec = None
    if all(name in values or not _is_required(field) for name, field in declared.items()):
        spec, refused = _built(cls, values, mistyped=(set(mapping) & set(declared)) - set(values))
        findings += [_moved(each, where) for each in refused]
    if findings or spec is None:
        raise SpecError(findings)
    return spec


def _built(
    cls: type[Spec], values: dict[str, Any], *, mistyped: set[str]
) -> tuple[Spec | None, list[Finding]]:
    """Return the spec, or the findings of its own checks.

    Mistyped fields have their defaults in these checks. A finding that mentions such a field is left out, because it
    would report a value that the user never wrote.
    """
    try:
        return cls(**values), []
    except SpecError as error:
        words = (set(re.findall(r"\w+", str(finding))) for finding in error.findings)
        kept = [f for f, said in zip(error.findings, words, strict=True) if not said & mistyped]
        return None, kept


def _value(hint: Any, value: object, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, path)
    if origin is tuple:
        return _sequence(arguments[0], value, path)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(arguments[1], value, path)
    if is_dataclass(hint) and isinstance(hint, type):
        reader = getattr(hint, "from_value", None)
        if isinstance(value, hint):
            return value
        return reader(value, where=path) if reader else _read(hint, value, path)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _member(hint, value, path)
    return _scalar(hint, value, path)


def _one_of(options: tuple[Any, ...], value: object, path: str) -> Any:
    if value is None and type(None) in options:
        return None
    others = [option for option in options if option is not type(None)]
    for option in others[:-1]:
        try:
            return _value(option, value, path)
        except SpecError:
            continue
    return _value(others[-1], value, path)


def _sequence(hint: Any, value: object, path: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SpecError([_mistyped(path, value, "a list")])
    read: list[Any] = []
    findings: list[Finding] = []
    for index, each in enumerate(value):
        try:
            read.append(_value(hint, each, f"{path}[{index}]"))
        except SpecError as error:
            findings += error.findings
    if findings:
        raise SpecError(findings)
    return tuple(read)


def _mapping(hint: Any, value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SpecError([_mistyped(path, value, "a mapping")])
    read: dict[str, Any] = {}
    findings: list[Finding] = []
    for key, each in value.items():
        try:
            read[str(key)] = _value(hint, each, f"{path}.{key}")
        except SpecError as error:
            findings += error.findings
    if findings:
        raise SpecError(findings)
    return read


def _member(hint: type[StrEnum], value: object, path: str) -> StrEnum:
    if isinstance(value, str) and value in {member.value for member in hint}:
        return hint(value)
    raise SpecError([_mistyped(path, value, "one of " + ", ".join(m.value for m in hint))])


def _scalar(hint: Any, value: object, path: str) -> Any:
    if hint is bool:
        words = {"true": True, "false": False}
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in words:
            return words[value.strip().lower()]
        raise SpecError([_mistyped(path, value, "true or false")])
    if hint is int:
        return _integer(value, path)
    if hint is float:
        return _number(value, path)
    if hint is str and isinstance(value, str):
        return value
    raise SpecError([_mistyped(path, value, "text")])


def _integer(value: object, path: str) -> int:
    number = _number(value, path, "a whole number")
    if number != int(number):
        raise SpecError([_mistyped(path, value, "a whole number")])
    return (
        int(value)
        if isinstance(value, (int, str)) and str(value).lstrip("+-").isdigit()
        else int(number)
    )


def _number(value: object, path: str, wanted: str = "a number") -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if number - number == 0:  # neither NaN nor infinite
            return number
    raise SpecError([_mistyped(path, value, wanted)])


def _mistyped(where: str, value: object, allowed: str) -> Finding:
    got = (
        "nothing"
        if value is None
        else f"{shortened(repr(value), limit=80)} ({type(value).__name__})"
    )
    return Finding(where=where, what="has the wrong type or value", got=got, allowed=allowed)


def _moved(finding: Finding, where: str) -> Finding:
    return replace(finding, where=f"{where}.{finding.where}") if where else finding


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return get_type_hints(cls)
