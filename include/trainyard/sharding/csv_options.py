"""Options of csv files: their names, and findings for values that they cannot have."""

from __future__ import annotations

import csv
import encodings.aliases
import io
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from trainyard.errors import Finding, did_you_mean, near_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

CSV_OPTIONS = frozenset(
    {
        "comment",
        "decimal",
        "delimiter",
        "dialect",
        "doublequote",
        "encoding",
        "encoding_errors",
        "escapechar",
        "header",
        "keep_default_na",
        "na_values",
        "names",
        "quotechar",
        "quoting",
        "sep",
        "skip_blank_lines",
        "skipinitialspace",
        "skiprows",
        "thousands",
        "usecols",
    }
)
"""Arguments of `pandas.read_csv` that `csv_options` may have."""
DIALECT_OPTIONS = ("quotechar", "escapechar", "doublequote", "skipinitialspace", "quoting")
"""Options that are also arguments of `csv.reader`."""
_DIALECTS = ("excel", "excel-tab", "unix")
_ENCODING_ERRORS = ("strict", "ignore", "replace", "backslashreplace")
"""Handlers whose text can be stored: the others leave halves of surrogate pairs, or cannot decode."""


def csv_findings(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each unknown option, and for each option with a value that it cannot have."""
    for name in sorted(set(options) - CSV_OPTIONS):
        near = near_matches(name, list(CSV_OPTIONS))
        yield Finding(
            where=f"csv_options.{name}",
            what="is an unknown option"
            if near
            else "is not supported, because sharding reads all rows as text and derives the columns' types itself",
            allowed=", ".join(sorted(CSV_OPTIONS)),
            next_step=did_you_mean(near[:1]) or "remove it",
        )
    wrong = [name for name in _RULES.keys() & options.keys() if not _is_valid(name, options[name])]
    for name in sorted(wrong):
        got, rule = options[name], _RULES[name]
        near = [each for each in near_matches(str(got), rule.names) if _is_valid(name, each)]
        as_text = f"write it as text: {json.dumps(near[0])}" if near[:1] == [str(got)] else None
        yield Finding(
            where=f"csv_options.{name}",
            what="is not valid",
            got=repr(got),
            allowed=rule.allowed,
            next_step=as_text or did_you_mean(near[:1]) or rule.next_step,
        )
    yield from _pattern_findings(options)
    if not wrong:
        yield from _conflicts(options)


def _is_valid(name: str, value: Any) -> bool:
    return _RULES[name].permits(value)


def _pattern_findings(options: Mapping[str, Any]) -> Iterator[Finding]:
    for name in ("sep", "delimiter"):
        sep = options.get(name)
        if isinstance(sep, str) and len(sep) > 1 and (fault := _pattern_fault(sep)):
            yield Finding(
                where=f"csv_options.{name}",
                what=f"has several characters and is therefore a regular expression, but {fault}",
                got=json.dumps(sep),
                allowed="one character, or a regular expression without groups",
                next_step=f"to split at exactly these characters, set {json.dumps(re.escape(sep))}",
            )


def _conflicts(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each pair of options with values that contradict each other."""
    if options.get("thousands") == options.get("decimal", "."):
        yield Finding(
            where="csv_options.thousands",
            what="is also the decimal mark",
            got=repr(options["thousands"]),
            allowed="a character other than the value of decimal ('.' by default)",
            next_step='for numbers such as 1.234,5 set {"decimal": ",", "thousands": "."}',
        )
    sep = options.get("sep", options.get("delimiter"))
    for name in ("quotechar", "escapechar"):
        if sep is not None and options.get(name) == sep:
            yield Finding(
                where=f"csv_options.{name}",
                what="is also the delimiter",
                got=repr(sep),
                allowed="another character, or null",
            )
    if options.get("quotechar", '"') is None and options.get("quoting") != csv.QUOTE_NONE:
        yield Finding(
            where="csv_options.quotechar",
            what=f"can be null only if quoting is {csv.QUOTE_NONE} (no quotes)",
            got="null",
            allowed="one character",
            next_step=f'if quote characters are part of the text, set {{"quoting": {csv.QUOTE_NONE}}}',
        )


class _Rule(NamedTuple):
    """Rule for the values of one option.

    Attributes:
        permits: returns whether a value is valid. None stands for JSON's null.
        allowed: the valid values, for the message.
        names: candidates for a suggestion. The message may suggest one that is valid and similar to the wrong
            value.
        next_step: correction of a wrong value.
    """

    permits: Callable[[Any], bool]
    allowed: str
    names: Collection[str] = ()
    next_step: str | None = None


def _is_character(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) == 1 and value not in "\r\n")


def _is_mark(value: Any) -> bool:
    is_one = isinstance(value, str) and _is_character(value)
    return is_one and not value.isalnum() and value not in '+-"'


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_list(value: Any) -> bool:
    return value is None or isinstance(value, list | tuple)


def _are_columns(value: Any) -> bool:
    return _is_list(value) and all(isinstance(each, str | int) for each in value or ())


def _are_names(value: Any) -> bool:
    return value is None or (_are_columns(value) and len(value) > 0)


def _is_encoding(value: Any) -> bool:
    try:
        io.TextIOWrapper(io.BytesIO(), value)
    except (LookupError, TypeError, ValueError):
        return False
    return True


def _is_line(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_lines(value: Any) -> bool:
    return value is None or all(map(_is_line, value if _is_list(value) else [value]))


def _pattern_fault(pattern: str) -> str | None:
    try:
        return "it has a group" if re.compile(pattern).groups else None
    except re.error as error:
        return f'it is not a valid one ("{error}")'


_CHARACTER = _Rule(_is_character, "one character, or null")
_MARK = _Rule(_is_mark, "one character other than letters, digits, signs and quotes")
_SEPARATOR = _Rule(_is_text, "one character, or a regular expression")
_RULES = {
    "comment": _Rule(lambda value: _is_text(value) and value != "", "one or more characters"),
    "decimal": _MARK,
    "delimiter": _SEPARATOR,
    "dialect": _Rule(lambda value: value in (None, *_DIALECTS), ", ".join(_DIALECTS), _DIALECTS),
    "encoding": _Rule(
        _is_encoding,
        "a text encoding of Python, such as utf-8, utf-16 or cp1252",
        {*encodings.aliases.aliases, *encodings.aliases.aliases.values()},
    ),
    "encoding_errors": _Rule(
        lambda value: value in (None, *_ENCODING_ERRORS),
        ", ".join(_ENCODING_ERRORS),
        _ENCODING_ERRORS,
    ),
    "escapechar": _CHARACTER,
    "header": _Rule(
        lambda value: value in (None, "infer") or _is_line(value),
        "0 or more, or null if the file has no header",
        next_step="for a header of several lines, skip all but one of them with skiprows",
    ),
    "names": _Rule(_are_names, 'a list of names, such as ["a", "b"]'),
    "quotechar": _CHARACTER,
    "quoting": _Rule(
        lambda value: type(value) is int and value in range(4),
        "0, 1, 2 or 3 (quotes are plain characters)",
    ),
    "sep": _SEPARATOR,
    "skiprows": _Rule(_are_lines, "0 or more, or a list of numbers of lines"),
    "thousands": _Rule(lambda value: value is None or _is_mark(value), f"{_MARK.allowed}, or null"),
    "usecols": _Rule(_are_columns, 'a list of names or positions, such as ["a", "b"]'),
}
