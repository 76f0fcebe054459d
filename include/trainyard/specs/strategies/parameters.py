"""Checks of `mp_parameters`, the hyperparameter with all settings of SageMaker's model parallel library (SMP)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, unknown_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WHERE = "distribution.smdistributed.modelparallel.parameters"
MAX_CHARACTERS = 2500
"""Longest value of a hyperparameter, in characters (botocore, CreateTrainingJob)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Allowed values of a parameter. Numbers are from `least` to `most`; `choices` lists the allowed words."""

    kind: type
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the allowed values in words, for a finding."""
        if self.choices:
            return ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "text"
        number = "a whole number" if self.kind is int else "a number"
        return f"{number} of at least {self.least:g}" + (
            f", at most {self.most:g}" if self.most else ""
        )

    def takes(self, value: object) -> bool:
        """Return whether a value is allowed."""
        if self.kind in {bool, str}:
            return isinstance(value, self.kind) and (not self.choices or value in self.choices)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if self.kind is int and not isinstance(value, int):
            return False
        number = float(value)
        return (self.least is None or number >= self.least) and (
            self.most is None or number <= self.most
        )


FLAG = Allowed(kind=bool)
TEXT = Allowed(kind=str)
DEGREE = Allowed(kind=int, least=1)
COUNT = Allowed(kind=int, least=0)


def parameter_findings(
    parameters: Mapping[str, Any],
    known: Mapping[str, Allowed],
    *,
    elsewhere: Mapping[str, str],
    version: int,
) -> Iterator[Finding]:
    """Yield a finding for each wrong parameter, and one if all together are too long.

    Args:
        parameters: the parameters as the user wrote them.
        known: the allowed values of each parameter of this version, by name.
        elsewhere: the parameters of the library's other version, by name, each with the advice to the user.
        version: the library's version that this distribution starts, 1 or 2.
    """
    for name, value in parameters.items():
        if name in elsewhere:
            yield Finding(
                where=f"{WHERE}.{name}",
                what=f"belongs to version {3 - version} of the library; this distribution starts version {version}",
                allowed=", ".join(known),
                next_step=elsewhere[name],
            )
        elif name not in known:
            yield unknown_key(WHERE, name, list(known))
        elif not known[name].takes(value):
            yield Finding(
                where=f"{WHERE}.{name}",
                what="has the wrong type or value",
                got=repr(value),
                allowed=str(known[name]),
            )
    size = len(json.dumps(dict(parameters), default=repr))
    if size > MAX_CHARACTERS:
        yield Finding(
            where=WHERE,
            what="are too long for the one hyperparameter that carries them",
            got=f"{size} characters",
            allowed=f"at most {MAX_CHARACTERS}",
        )
