"""Origin of each hyperparameter of the final training: the search, the conf, or a default."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainyard.specs.run_conf import RunConf

if TYPE_CHECKING:
    from collections.abc import Mapping


class ValueOrigin(StrEnum):
    """Who chose a value."""

    TUNED = "tuned"
    CONF = "conf"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One hyperparameter as the training got it.

    Attributes:
        instead_of: of a tuned one, what the conf or its default would have given; None if neither says.
    """

    name: str
    value: Any
    origin: ValueOrigin
    instead_of: Any = None

    def __str__(self) -> str:
        """Return it in words: `learning_rate 0.0021 (tuned; else 0.004)`."""
        more = f"; else {self.instead_of}" if self.instead_of is not None else ""
        return f"{self.name} {self.value} ({self.origin}{more})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-safe data."""
        return {**asdict(self), "origin": str(self.origin)}


def provenance(sent: Mapping[str, Any], *, conf: RunConf, tuned: Mapping[str, Any]) -> list[Chosen]:
    """Return each hyperparameter that the training is sent, the tuned ones first.

    A field of the conf that has its default's value counts as default, also if somebody wrote that value.

    Args:
        sent: the training job's hyperparameters.
        conf: what was asked for.
        tuned: the winner's values; empty without a search.
    """
    chosen = [_chosen(name, value, conf, tuned) for name, value in sent.items()]
    order = list(ValueOrigin)
    return sorted(chosen, key=lambda each: order.index(each.origin))


def _chosen(name: str, value: Any, conf: RunConf, tuned: Mapping[str, Any]) -> Chosen:
    asked = conf.hyperparameters.get(name, getattr(conf, name, None))
    if name in tuned:
        return Chosen(name=name, value=value, origin=ValueOrigin.TUNED, instead_of=asked)
    is_default = name not in conf.hyperparameters and value == getattr(RunConf(), name, None)
    return Chosen(
        name=name, value=value, origin=ValueOrigin.DEFAULT if is_default else ValueOrigin.CONF
    )
