"""IAM's evaluation of policies: explicit deny, then explicit allow, otherwise implicit deny.

Source: IAM User Guide, "Policy evaluation logic" and "IAM JSON policy elements: Condition operators" (2026-11).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Values = tuple[str, ...]

_STATEMENT_KEYS = {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}
_QUANTIFIERS = ("ForAllValues:", "ForAnyValue:")
_IF_EXISTS = "IfExists"


class PolicyError(ValueError):
    """A policy document is malformed, or uses an element that is not supported; the message has its position."""


class Effect(StrEnum):
    """Effect of a statement on the actions that it matches."""

    ALLOW = "Allow"
    DENY = "Deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Action that a request needs permission for: the action, its resource, and the values of condition keys.

    Example: `s3:GetObject` on the ARN of an object.
    """

    action: str
    resource: str = "*"
    context: Mapping[str, Values] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One operator on one condition key."""

    operator: str
    key: str
    values: Values

    def holds(self, context: Mapping[str, Values]) -> bool:
        """Return whether the condition is met. Names of condition keys are not case-sensitive."""
        given = next(
            (found for key, found in context.items() if key.lower() == self.key.lower()), None
        )
        operator = self.operator
        quantifier = next((each for each in _QUANTIFIERS if operator.startswith(each)), "")
        operator = operator.removeprefix(quantifier)
        if operator == "Null":
            return (given is None) is (self.values[0].lower() == "true")
        if given is None and operator.endswith(_IF_EXISTS):
            return True
        operator = operator.removesuffix(_IF_EXISTS)
        is_negated, matches = _OPERATORS[operator]
        if given is None:
            return quantifier == "ForAllValues:" or (is_negated and not quantifier)
        fits = [
            any(matches(value, pattern) for pattern in self.values) is not is_negated
            for value in given
        ]
        return any(fits) if quantifier == "ForAnyValue:" else all(fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a policy.

    `has_other_actions` means NotAction: the statement applies to all actions except `actions`. `has_other_resources`
    means NotResource in the same way.
    """

    effect: Effect
    actions: Values
    resources: Values
    has_other_actions: bool = False
    has_other_resources: bool = False
    conditions: tuple[Condition, ...] = ()

    def matches(self, ask: Ask) -> bool:
        """Return whether the statement applies to this action, resource and context."""
        action = any(_like(ask.action.lower(), each.lower()) for each in self.actions)
        resource = any(_like(ask.resource, each) for each in self.resources)
        return (
            action is not self.has_other_actions
            and resource is not self.has_other_resources
            and all(each.holds(ask.context) for each in self.conditions)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The statements of a policy document."""

    statements: tuple[Statement, ...]

    @classmethod
    def from_document(cls, document: object, *, where: str = "policy") -> Policy:
        """Return the policy of a document.

        The last argument is the document's name in error messages, such as `guard_rails[0]`.

        Raises:
            PolicyError: The document is malformed, or has an operator or element that is not supported.
        """
        if not isinstance(document, dict) or "Statement" not in document:
            raise PolicyError(
                f"{where}: got {document!r}; a policy document is an object with a Statement"
            )
        statements = document["Statement"]
        listed = statements if isinstance(statements, list) else [statements]
        return cls(
            tuple(
                _statement(each, where=f"{where}.Statement[{index}]")
                for index, each in enumerate(listed)
            )
        )


def refusal(
    ask: Ask, *, allowing: Sequence[Policy] | None, denying: Iterable[Policy] = ()
) -> str | None:
    """Return the reason for which an action is denied, in IAM's wording; None if it is allowed.

    Args:
        ask: The action with its resource and context.
        allowing: The identity's own policies; None allows every action that no guard rail denies.
        denying: Guard rails of the account (service control policies). Only their Deny statements are evaluated.
    """
    for policies, kind in (
        (denying, "a service control policy"),
        (allowing or (), "an identity-based policy"),
    ):
        if _any(policies, ask, Effect.DENY):
            return f"with an explicit deny in {kind}"
    if allowing is None or _any(allowing, ask, Effect.ALLOW):
        return None
    return f"because no identity-based policy allows the {ask.action} action"


def _any(policies: Iterable[Policy], ask: Ask, effect: Effect) -> bool:
    return any(
        each.effect is effect and each.matches(ask)
        for policy in policies
        for each in policy.statements
    )


def _statement(given: object, *, where: str) -> Statement:
    if not isinstance(given, dict):
        raise PolicyError(f"{where}: got {given!r}; a statement is an object")
    if unknown := sorted(given.keys() - _STATEMENT_KEYS):
        raise PolicyError(
            f"{where}: {unknown[0]} is not supported; supported are {', '.join(sorted(_STATEMENT_KEYS))}"
        )
    if given.get("Effect") not in set(Effect):
        raise PolicyError(f"{where}.Effect: got {given.get('Effect')!r}; write Allow or Deny")
    for pair in (("Action", "NotAction"), ("Resource", "NotResource")):
        found = [key for key in pair if key in given]
        if len(found) != 1:
            raise PolicyError(
                f"{where}: write either {' or '.join(pair)}; got {' and '.join(found) or 'neither'}"
            )
    return Statement(
        effect=Effect(given["Effect"]),
        actions=_texts(given.get("Action", given.get("NotAction")), where=f"{where}.Action"),
        resources=_texts(
            given.get("Resource", given.get("NotResource")), where=f"{where}.Resource"
        ),
        has_other_actions="NotAction" in given,
        has_other_resources="NotResource" in given,
        conditions=tuple(_conditions(given.get("Condition", {}), where=f"{where}.Condition")),
    )


def _conditions(given: object, *, where: str) -> Iterable[Condition]:
    if not isinstance(given, dict):
        raise PolicyError(
            f'{where}: got {given!r}; write {{"<operator>": {{"<condition key>": <values>}}}}'
        )
    for operator, keys in given.items():
        name = operator.partition(":")[2] if operator.startswith(_QUANTIFIERS) else operator
        if name != "Null" and name.removesuffix(_IF_EXISTS) not in _OPERATORS:
            raise PolicyError(
                f"{where}: {operator} is not supported; supported are Null, {', '.join(_OPERATORS)}"
            )
        if not isinstance(keys, dict):
            raise PolicyError(
                f"{where}.{operator}: got {keys!r}; write an object that maps condition keys to values"
            )
        for key, values in keys.items():
            texts = _texts(values, where=f"{where}.{operator}.{key}")
            if name.startswith("Numeric") and not all(map(_is_number, texts)):
                raise PolicyError(f"{where}.{operator}.{key}: got {values!r}; write numbers")
            yield Condition(operator=operator, key=key, values=texts)


def _texts(given: object, *, where: str) -> Values:
    listed = given if isinstance(given, list) else [given]
    texts = tuple(str(each).lower() if isinstance(each, bool) else str(each) for each in listed)
    if not texts or any("${" in each for each in texts):
        raise PolicyError(
            f"{where}: got {given!r}; write one or more strings without policy variables (${{...}})"
        )
    return texts


def _like(value: str, pattern: str) -> bool:
    return _compiled(pattern).fullmatch(value) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if each == "*" else "." if each == "?" else re.escape(each) for each in pattern)
    return re.compile("".join(parts), re.DOTALL)


def _is(value: str, pattern: str) -> bool:
    return value == pattern


def _is_in_any_case(value: str, pattern: str) -> bool:
    return value.lower() == pattern.lower()


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def _is_at_most(value: str, limit: str) -> bool:
    return float(value) <= float(limit)


def _is_at_least(value: str, limit: str) -> bool:
    return float(value) >= float(limit)


_OPERATORS: dict[str, tuple[bool, Callable[[str, str], bool]]] = {
    "StringEquals": (False, _is),
    "StringNotEquals": (True, _is),
    "StringEqualsIgnoreCase": (False, _is_in_any_case),
    "StringNotEqualsIgnoreCase": (True, _is_in_any_case),
    "StringLike": (False, _like),
    "StringNotLike": (True, _like),
    "ArnEquals": (False, _like),
    "ArnNotEquals": (True, _like),
    "ArnLike": (False, _like),
    "ArnNotLike": (True, _like),
    "Bool": (False, _is_in_any_case),
    "NumericLessThanEquals": (False, _is_at_most),
    "NumericGreaterThanEquals": (False, _is_at_least),
}
"""Operator -> (whether it is negated, function that compares a value of the request with one of the condition)."""
