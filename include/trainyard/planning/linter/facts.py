"""Facts of one training job on one kind of instances, as the linter's claims use them."""

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
    """One job, as far as the support table and the rules ask.

    Attributes:
        strategy: None for a plain process on each instance.
        instance: the type that the strategy's ranks run on; None if the catalogue does not know it.
        instance_count: of that type.
        framework: the estimator's.
        library: torch or tensorflow with its (major, minor) version; None if neither image nor spec says so.
        image: repository name of the image; None if it is looked up.
        flags: those of `trainyard.catalog.strategy_support.FLAGS` that hold.
        where: put before a finding's place, such as a ladder's rung.
        inputs: the channels.
        input_mode: the job's, for channels that name none.
        hyperparameters: the script's own.
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

    @property
    def device(self) -> str:
        """`cpu`, `gpu` or `trainium`; empty if the type is unknown."""
        if self.instance is None:
            return ""
        if not self.instance.num_accelerators:
            return "cpu"
        return "trainium" if self.instance.accelerator.startswith("AWS") else "gpu"

    @property
    def ranks_per_instance(self) -> int | None:
        """Ranks that the launcher starts on each instance; None if the type is unknown."""
        if self.strategy is None:
            return 1
        if self.strategy.processes_per_host is not None:
            return self.strategy.processes_per_host
        return None if self.instance is None else max(1, self.instance.num_accelerators)

    def holds(self, condition: SupportCondition) -> bool:
        """Return whether a condition of the table holds."""
        return self._claim(condition) is not condition.is_negated

    def _claim(self, condition: SupportCondition) -> bool:
        match condition.sign:
            case "":
                return condition.name in self.flags
            case "=":
                return self._name(condition.name) in condition.values
            case sign:
                if self.library is None or self.library[0] != condition.name:
                    return condition.is_negated  # what nobody knows is held against nobody
                bound = tuple(int(part) for part in condition.values[0].split(".")[:2])
                return self.library[1] >= bound if sign == ">=" else self.library[1] < bound

    def _name(self, name: str) -> str:
        names = {
            "strategy": "none" if self.strategy is None else self.strategy.name,
            "framework": self.framework,
            "device": self.device,
        }
        return names[name]
