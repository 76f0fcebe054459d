"""Origin of each hyperparameter of the final training: the search, the conf, or a default."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainyard.specs.run_conf import RunConf

if TYPE_CHECKING:
    from collections.abc import Mapping


class ValueOrigin(StrEnum):
    """Origin of a hyperparameter's value."""

    TUNED = "tuned"
    CONF = "conf"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One hyperparameter of the final training.

    Attributes:
        instead_of: for a tuned hyperparameter, its value in the conf or its default; None if it has neither.
    """

    name: str
    value: Any
    origin: ValueOrigin
    instead_of: Any = None

    def __str__(self) -> str:
        """Return the hyperparameter in words: `learning_rate 0.0021 (tuned; else 0.004)`."""
        more = f"; else {self.instead_of}" if self.instead_of is not None else ""
        return f"{self.name} {self.value} ({self.origin}{more})"

    def to_dict(self) -> dict[str, Any]:
        """Return the hyperparameter as JSON-safe data."""
        return {**asdict(self), "origin": str(self.origin)}


def provenance(sent: Mapping[str, Any], *, conf: RunConf, tuned: Mapping[str, Any]) -> list[Chosen]:
    """Return the origin of each hyperparameter of the training job, the tuned ones first.

    A field of the conf with its default value has the origin `default`, even if the user set that value.

    Args:
        sent: hyperparameters of the training job.
        conf: the run's conf.
        tuned: values of the winner; empty without a search.
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
