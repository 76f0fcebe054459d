"""Diagnosis of a slow training: the rules' verdicts with remedies, ordered by cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.rules.configuration import configured_rules
from trainyard.rules.evaluation import ConfiguredRule, Verdict, evidence
from trainyard.runs.profile.step_times import PART_NAMES, Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Meaning of a rule's issue for a training's speed, and its remedy.

    Attributes:
        title: title of the issue, with `{rank}` as the placeholder for its rank.
        part: the affected part of a step; the issue costs at most this part's share. None if no part shows the issue.
    """

    title: str
    advice: str
    part: Part | None = None


_REMEDIES: Mapping[str, Remedy] = {
    "DataStall": Remedy(
        title="Waiting for data",
        part=Part.DATA_WAIT,
        advice="load in more processes (hyperparameter num_workers), move preparation into the shards, or read "
        "from a faster channel (FastFile, or FSx for Lustre for large data)",
    ),
    "Straggler": Remedy(
        title="Rank {rank} is slow",
        part=Part.COMMUNICATION,
        advice="the other ranks wait for it in every step: check its host (another process, a throttled or "
        "failing device), give ranks equal work (shards, sequence lengths), or replace the instance",
    ),
    "CPUBottleneck": Remedy(
        title="The GPU waits for the CPU",
        advice="take an instance with more vCPUs for each GPU, use more loader processes, or move work to the GPU",
    ),
    "IOBottleneck": Remedy(
        title="The GPU waits for the disk",
        part=Part.DATA_WAIT,
        advice="use a larger or faster volume, FastFile mode or FSx for Lustre, and fewer, larger files",
    ),
    "LowGPUUtilization": Remedy(
        title="The GPU is underused",
        advice="raise the micro batch, use bf16, or take a smaller instance",
    ),
    "BatchSize": Remedy(
        title="The batch is small for this GPU",
        advice="raise micro_batch_size until GPU memory is well used, or take a smaller instance",
    ),
    "LoadBalancing": Remedy(
        title="GPUs are used unevenly",
        advice="give all ranks of the host the same work; look for a rank that does more (logging, validation)",
    ),
    "ThroughputRegression": Remedy(
        title="Throughput has dropped",
        advice="compare the steps before and after: data, other processes on the host, memory near its limit",
    ),
    "StepOutlier": Remedy(
        title="Many outlier steps",
        advice="their slow parts are listed below; checkpoints and data of uneven length are usual causes",
    ),
    "MemoryGrowth": Remedy(
        title="Memory grows",
        advice="look for tensors kept across steps (losses summed without detach, lists that are never emptied) "
        "and for loader processes that copy the data set",
    ),
    "GPUMemoryIncrease": Remedy(
        title="GPU memory grows",
        advice="look for tensors kept across steps; activation checkpointing lowers the peak",
    ),
}
REPORTS = ("OverallFrameworkMetrics", "OverallSystemUsage")
JUDGES = (*_REMEDIES, *REPORTS)
_OF_NO_TIME = frozenset({"MemoryGrowth", "GPUMemoryIncrease"})
_SMALLER: Mapping[Part, str] = {
    Part.DATA_WAIT: _REMEDIES["DataStall"].advice,
    Part.FORWARD: "computing: bf16, torch.compile, a larger micro batch or a faster instance make it shorter",
    Part.BACKWARD: "computing, and the exchange of gradients that it overlaps: bf16, a larger micro batch, gradient "
    "accumulation or a faster instance make it shorter",
    Part.COMMUNICATION: "ranks wait for each other: fewer and larger steps (gradient accumulation, larger micro "
    "batch) or a faster network make it shorter",
    Part.OPTIMIZER: "a fused optimizer, or sharding its state over ranks, makes it shorter",
    Part.OTHER: "time in a step outside of its parts: logging, synchronization, statistics",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """An issue that a rule found.

    Attributes:
        cost: the share of all step time that the issue costs at most, 0 to 1; None if it is not known.
        evidence: the rule's sentence, with its numbers.
    """

    rule: str
    title: str
    evidence: str
    step: int
    advice: str
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Bottleneck of a training, and all issues that the rules found.

    Attributes:
        bottleneck: the issue that costs most time; None if the rules found no issue, or only growth of memory.
        hindrances: all issues of the rules, the most expensive first.
        not_judged: by rule, the reason why it was not evaluated.
        largest: the largest part of a step, with its share of the step time (0 to 1); None without measured parts.
    """

    bottleneck: Hindrance | None
    hindrances: tuple[Hindrance, ...]
    not_judged: Mapping[str, str]
    largest: tuple[Part, float] | None

    @property
    def title(self) -> str:
        """The bottleneck in a few words."""
        if self.bottleneck is not None:
            return self.bottleneck.title
        if self.largest is None:
            return "Not known"
        return "None found"

    @property
    def sentence(self) -> str:
        """Evidence for the bottleneck, with its numbers."""
        if self.bottleneck is not None:
            return self.bottleneck.evidence
        if self.largest is None:
            return "no step's time was measured in parts"
        part, share = self.largest
        return f"no rule found one; the largest part of a step is {PART_NAMES[part]}, {share:.0%} of its time"

    @property
    def advice(self) -> str:
        """Advice to remove the bottleneck or to shorten the largest part; empty if neither is known."""
        if self.bottleneck is not None:
            return self.bottleneck.advice
        return _SMALLER[self.largest[0]] if self.largest else ""


def judges(wanted: Sequence[object] = ()) -> tuple[ConfiguredRule, ...]:
    """Return the rules on speed, hosts and memory.

    They have the parameters of the run's conf. A rule that the conf does not list has its robust parameters
    (`trainyard.rules`).

    Args:
        wanted: the rules as the run's conf lists them.

    Raises:
        SpecError: `wanted` is not a list of rules.
    """
    own = configured_rules([*wanted] or [*JUDGES])
    asked = tuple(each for each in own if each.rule.name in JUDGES)
    missing = [name for name in JUDGES if name not in {each.rule.name for each in asked}]
    return (*asked, *configured_rules(missing)) if missing else asked


def diagnose(verdicts: Sequence[Verdict], shares: Mapping[Part, float]) -> Diagnosis:
    """Return the diagnosis of a training.

    Args:
        verdicts: the rules' verdicts on the training.
        shares: share of the step time that each part of a step takes; empty if unknown.
    """
    found = [_hindrance(each, shares) for each in verdicts if each.issues]
    ordered = sorted(found, key=lambda each: -(each.cost or 0.0))
    slow = [each for each in ordered if each.rule not in _OF_NO_TIME]
    measured = {part: share for part, share in shares.items() if part is not Part.OTHER and share}
    largest = max(shares.items(), key=lambda each: each[1]) if measured else None
    return Diagnosis(
        bottleneck=slow[0] if slow else None,
        hindrances=tuple(ordered),
        not_judged={
            each.name: each.not_evaluated or each.error or ""
            for each in verdicts
            if each.not_evaluated or each.error
        },
        largest=largest,
    )


def _hindrance(verdict: Verdict, shares: Mapping[Part, float]) -> Hindrance:
    remedy, last = _REMEDIES[verdict.rule], verdict.issues[-1]
    text = evidence(rank=last.rank, key=last.key, text=last.text)
    count = f", {verdict.num_issues} issues in all" if verdict.num_issues > 1 else ""
    return Hindrance(
        rule=verdict.name,
        title=remedy.title.format(rank=last.rank),
        evidence=f"{text} (step {last.step}{count})",
        step=last.step,
        advice=remedy.advice,
        cost=None if remedy.part is None else shares.get(remedy.part),
    )
