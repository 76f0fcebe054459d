"""Launch of a job's ranks: the `distribution` argument of the SDK's estimators, with the same keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.specs.strategies.mpi import Mpi
from trainyard.specs.strategies.sections import (
    MODEL_PARALLEL,
    MPI,
    TORCH_DISTRIBUTED,
    Sections,
    read_instance_groups,
    read_sections,
)
from trainyard.specs.strategies.smddp import PytorchDdp, SmDataParallel, SmDataParallelUnderTorchrun
from trainyard.specs.strategies.smp_v1 import SmModelParallelV1
from trainyard.specs.strategies.smp_v2 import SmModelParallelV2
from trainyard.specs.strategies.tensorflow import MultiWorkerMirrored, ParameterServer
from trainyard.specs.strategies.torch_distributed import TorchDistributed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.strategies.strategy import Strategy, Target

STRATEGIES: tuple[type[Strategy], ...] = (
    TorchDistributed,
    PytorchDdp,
    SmDataParallel,
    SmDataParallelUnderTorchrun,
    SmModelParallelV2,
    SmModelParallelV1,
    Mpi,
    ParameterServer,
    MultiWorkerMirrored,
)
_BY_SECTIONS = {strategy.sections: strategy for strategy in STRATEGIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A strategy, and the instance group that it runs on if the job has groups."""

    strategy: Strategy
    instance_groups: tuple[str, ...] = ()

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters for AWS's training toolkit in the container; the values are not yet JSON.

        If the distribution names instance groups, this method adds them for every strategy, because the toolkit can
        read them. Under torch_distributed, the SDK does not send them, and each group then trains separately.
        """
        hyperparameters = self.strategy.hyperparameters(target)
        if self.instance_groups:
            hyperparameters["sagemaker_distribution_instance_groups"] = list(self.instance_groups)
        return hyperparameters


def read_distribution(distribution: Mapping[str, Any]) -> Distribution | None:
    """Return the distribution that an SDK `distribution` describes; None for a plain process on each instance.

    Raises:
        SpecError: keys or settings are wrong, or sections cannot be combined; the error lists all faults, and the
            nearest valid keys.
    """
    findings: list[Finding] = []
    groups: tuple[str, ...] = ()
    strategy: Strategy | None = None
    try:
        groups = read_instance_groups(distribution)
    except SpecError as error:
        findings += error.findings
    try:
        strategy = _strategy(read_sections(distribution))
    except SpecError as error:
        findings += error.findings
    if groups and strategy is None and not findings:
        findings.append(
            Finding(
                where="distribution.instance_groups",
                what="names a group, but no strategy is enabled for it",
                next_step='add a strategy, such as "torch_distributed": {"enabled": true}',
            )
        )
    if findings:
        raise SpecError(findings, subject="distribution")
    return None if strategy is None else Distribution(strategy=strategy, instance_groups=groups)


def _strategy(sections: Sections) -> Strategy | None:
    if not sections.names:
        return None
    if sections.names in _BY_SECTIONS:
        return _BY_SECTIONS[sections.names].read(sections)
    raise SpecError(_misfit(sections.names), subject="distribution")


def _misfit(names: frozenset[str]) -> Finding:
    """Return the finding for a combination of sections that is not a strategy."""
    if names == {MODEL_PARALLEL}:
        return Finding(
            where=f"distribution.{MODEL_PARALLEL}",
            what="has no launcher, so every instance would run a single process",
            allowed=f"together with {TORCH_DISTRIBUTED} (version 2) or {MPI} (version 1, archived)",
            next_step='add "torch_distributed": {"enabled": true}',
        )
    together = sorted(" + ".join(sorted(each)) for each in _BY_SECTIONS if len(each) > 1)
    return Finding(
        where="distribution",
        what="enables strategies that cannot be combined, because the toolkit would use only one of them",
        got=" + ".join(sorted(names)),
        allowed=f"one of them alone, or a supported combination ({', '.join(together)})",
    )
