"""Facts of a training job on one instance type, for the conditions of the linter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.catalog.instances import InstanceType
    from trainyard.catalog.strategy_support import SupportCondition, Version
    from trainyard.specs.channel import Channel
    from trainyard.specs.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Facts of one job that the support table and the rules use.

    Attributes:
        strategy: distribution strategy; None for a plain process on each instance.
        instance: type of the strategy's ranks; None if it is not in the catalogue.
        instance_type: name of that type.
        instance_count: number of instances of that type.
        framework: framework of the estimator.
        library: torch or tensorflow with its (major, minor) version; None if it is unknown (`image_library`).
        image: repository name of the image; None if it is derived from the framework.
        flags: the true flags of `trainyard.catalog.strategy_support.FLAGS`.
        where: place that a finding's `where` names in parentheses, such as a tier of the capacity ladder.
        inputs: channels.
        input_mode: input mode of channels without their own.
        hyperparameters: hyperparameters of the script.
        entry_point: the script; None if the image brings its own program.
    """

    strategy: Strategy | None
    instance: InstanceType | None
    instance_type: str
    instance_count: int
    framework: str = "pytorch"
    library: tuple[str, Version] | None = None
    image: str | None = None
    flags: frozenset[str] = frozenset()
    where: str = ""
    inputs: Mapping[str, Channel] = field(default_factory=dict)
    input_mode: str = "File"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    entry_point: str | None = None

    @property
    def device(self) -> str:
        """`cpu`, `gpu` or `trainium`; empty if the type is unknown."""
        if self.instance is None:
            return ""
        if not self.instance.num_accelerators:
            return "cpu"
        return "trainium" if self.instance.is_trainium else "gpu"

    @property
    def ranks_per_instance(self) -> int | None:
        """Ranks that the launcher starts on each instance; None if the type is unknown."""
        if self.strategy is None:
            return 1
        if self.strategy.processes_per_host is not None:
            return self.strategy.processes_per_host
        return None if self.instance is None else self.instance.num_ranks

    def holds(self, condition: SupportCondition) -> bool:
        """Return whether a condition of the support table holds for this job."""
        return self._claim(condition) is not condition.is_negated

    def _claim(self, condition: SupportCondition) -> bool:
        match condition.sign:
            case "":
                return condition.name in self.flags
            case "=":
                return self._name(condition.name) in condition.values
            case sign:
                if self.library is None or self.library[0] != condition.name:
                    return condition.is_negated  # an unknown version makes no condition true
                bound = tuple(int(part) for part in condition.values[0].split(".")[:2])
                return self.library[1] >= bound if sign == ">=" else self.library[1] < bound

    def _name(self, name: str) -> str:
        names = {
            "strategy": "none" if self.strategy is None else self.strategy.name,
            "framework": self.framework,
            "device": self.device,
        }
        return names[name]
