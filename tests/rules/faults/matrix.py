"""Which fault each rule must find: every rule of the catalogue, over real trainings."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.rules.faults import data_sets, trainings as faulty
from tests.rules.faults.running import TINY_GPT, TINY_MLP, Observed, run_training
from tests.rules.faults.trees import boosted_records
from trainer.training import Training
from trainyard.rules.configuration import make_rule
from trainyard.rules.evaluation import ConfiguredRule, evaluate
from trainyard.rules.records import Facts, StepRecord
from trainyard.rules.rule import RuleProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainyard.rules.evaluation import Verdict

DATA: Mapping[str, Callable[[Path], Path]] = {
    "source": data_sets.source_tokens,
    "padded": data_sets.padded_tokens,
    "table": data_sets.table,
    "small": lambda root: data_sets.table(root, rows=64, validation_rows=300),
    "noise": lambda root: data_sets.table(root, label=data_sets.noise),
    "lopsided": lambda root: data_sets.table(root, label=data_sets.lopsided),
}


@dataclass(frozen=True, kw_only=True)
class FaultRun:
    """One training with a fault; several rules may look at it."""

    fault: str
    training: type[Training]
    data: str = "table"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    world_size: int = 1
    ends_s: float | None = None
    busy_cores: int = 0

    def observe(self, folder: Path, data: Callable[[str], Path]) -> Observed:
        """Run it in a new folder."""
        base = TINY_GPT if self.data in {"source", "padded"} else TINY_MLP
        with faulty.busy_cores(self.busy_cores) if self.busy_cores else nullcontext():
            return run_training(
                folder,
                self.training,
                {**base, **self.hyperparameters},
                data(self.data),
                world_size=self.world_size,
                ends_s=self.ends_s,
            )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One rule that must find the fault of a run.

    Attributes:
        at: first step of the fault. within: most steps until it is found.
        parameters: where the robust profile's do not suit so short a run.
        report: a number in the summary of a rule that never has an issue.
        stands_in: what is not real about it; empty where all is.
    """

    rule: str
    run: str
    at: int
    within: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""
    stands_in: str = ""

    def verdict(self, observed: Observed) -> Verdict:
        """Return what the rule says of it."""
        rule = make_rule(self.rule, dict(self.parameters), profile=RuleProfile.ROBUST)
        configured = ConfiguredRule(name=self.rule, rule=rule, severity=rule.SEVERITY)
        facts = Facts(max_steps=200, precision="fp32", skipped_steps=0)
        if self.rule == "SimilarAcrossRuns":
            blessed = tuple(
                each for each in OTHER_RUN.get("records", ()) if isinstance(each, StepRecord)
            )
            facts = Facts(other_runs={"blessed": blessed})
        return evaluate([configured], observed.records, facts)[0]

    def latency(self, observed: Observed) -> int | None:
        """Return after how many steps the rule found the fault; 0 for a report; None where it did not."""
        verdict = self.verdict(observed)
        if self.report:
            return 0 if self.report in verdict.summary and not verdict.issues else None
        after = [issue.step for issue in verdict.issues if issue.step >= self.at]
        return after[0] - self.at if after and len(after) == len(verdict.issues) else None


OTHER_RUN: dict[str, Any] = {}
VALIDATED = {"eval_interval": 10, "eval_batches": 0}
RUNS: Mapping[str, FaultRun] = {
    "nan": FaultRun(fault="NaN in the loss", training=faulty.NanLoss),
    "nan gradient": FaultRun(fault="NaN in one gradient", training=faulty.NanGradient),
    "bad batch": FaultRun(fault="one bad batch (gradient x 1e4)", training=faulty.BadBatch),
    "damage": FaultRun(fault="weights x 4", training=faulty.Damaged, data="source"),
    "uphill": FaultRun(
        fault="updates the wrong way",
        training=faulty.Uphill,
        hyperparameters={"max_steps": 320, "learning_rate": 0.002},
        data="source",
    ),
    "label noise": FaultRun(
        fault="labels are noise", training=Training, data="noise",
        hyperparameters={"max_steps": 260, "learning_rate": 0.001},
    ),
    "zero rate": FaultRun(
        fault="learning rate 0", training=faulty.ZeroRate, hyperparameters={"max_steps": 260, "weight_decay": 0},
    ),
    "rate stops": FaultRun(
        fault="learning rate stops", training=faulty.RateStops, data="source",
        hyperparameters={"max_steps": 500, "global_batch_size": 32},
    ),
    "rate jumps": FaultRun(fault="learning rate x 10", training=faulty.RateJumps),
    "huge rate": FaultRun(fault="learning rate x 200", training=faulty.HugeRate, hyperparameters={"clip_norm": 0}),
    "overfit": FaultRun(
        fault="64 rows, by heart", training=Training, data="small",
        hyperparameters={**VALIDATED, "max_steps": 320, "weight_decay": 0, "learning_rate": 0.01},
    ),
    "deep": FaultRun(fault="12 sigmoid layers", training=faulty.DeepSigmoids),
    "tiny weights": FaultRun(fault="weights of 1e-4", training=faulty.TinyWeights),
    "dead": FaultRun(fault="biases of -100", training=faulty.DeadRelus),
    "saturated": FaultRun(
        fault="weights of 100", training=faulty.SaturatedTanhs, hyperparameters={"learning_rate": 1e-6},
    ),
    "frozen": FaultRun(
        fault="one tensor not updated", training=faulty.FrozenTensor, hyperparameters={"max_steps": 260},
    ),
    "zeroed": FaultRun(fault="one tensor set to 0", training=faulty.ZeroTensor),
    "slow": FaultRun(fault="steps 50 ms longer", training=faulty.SlowSteps, hyperparameters={"max_steps": 260}),
    "some slow": FaultRun(fault="every 7th step 0.5 s longer", training=faulty.SomeSlowSteps),
    "stalled loader": FaultRun(fault="loader waits 200 ms", training=faulty.StalledLoader),
    "slow rank": FaultRun(fault="rank 1 waits 0.2 s", training=faulty.SlowRank, world_size=2),
    "bit flip": FaultRun(
        fault="one bit on rank 1", training=faulty.FlippedBit, world_size=2, hyperparameters={"max_steps": 210},
    ),
    "hang": FaultRun(fault="a step that never ends", training=faulty.HangingStep, ends_s=30),
    "late start": FaultRun(
        fault="first step after 1.5 s", training=faulty.LateStart,
        hyperparameters={"max_steps": 5, "warmup_steps": 2},
    ),
    "leak": FaultRun(fault="4 MB kept a step", training=faulty.Leaking, hyperparameters={"max_steps": 500}),
    "loaders": FaultRun(
        fault="8 loaders", training=faulty.Sampled, hyperparameters={"num_workers": 8, "max_steps": 60},
    ),
    "idle gpus": FaultRun(fault="idle GPUs", training=faulty.IdleGpus, busy_cores=2),
    "slow disk": FaultRun(fault="cores wait for a disk", training=faulty.SlowDisk),
    "one gpu": FaultRun(fault="one GPU of two works", training=faulty.OneGpu),
    "gpu leak": FaultRun(fault="GPU memory grows", training=faulty.GrowingGpus),
    "padding": FaultRun(fault="mostly padding", training=Training, data="padded", hyperparameters={"max_steps": 60}),
    "images": FaultRun(fault="images not normalized", training=faulty.Images, hyperparameters={"max_steps": 60}),
    "lopsided": FaultRun(
        fault="40 to 1 labels", training=Training, data="lopsided",
        hyperparameters={**VALIDATED, "max_steps": 100},
    ),
    "other seed": FaultRun(fault="another seed", training=Training, hyperparameters={"seed": 7, "max_steps": 20}),
    "healthy": FaultRun(fault="none", training=Training, hyperparameters={"max_steps": 20}),
}  # fmt: skip
_NVML = "NVML is a stand-in with scripted numbers; sampled every 20 ms"
_TREES = "scikit-learn's boosted trees in the place of XGBoost's"
CASES: tuple[Case, ...] = (
    Case(rule="NonFinite", run="nan", at=100, within=0),
    Case(rule="ExplodingTensor", run="nan gradient", at=100, within=0),
    Case(rule="GradNormSpike", run="bad batch", at=100, within=0),
    Case(rule="LossSpike", run="damage", at=100, within=10),
    Case(rule="LossNotDecreasing", run="uphill", at=100, within=200),
    Case(rule="NotLearning", run="label noise", at=1, within=220),
    Case(rule="Plateau", run="rate stops", at=100, within=400, parameters={"detectable_percent": 3}),
    Case(rule="Overfit", run="overfit", at=10, within=200),
    Case(rule="Overtraining", run="overfit", at=10, within=310),
    Case(rule="ValRise", run="overfit", at=10, within=200),
    Case(rule="LRSanity", run="rate jumps", at=100, within=0),
    Case(rule="VanishingGradient", run="deep", at=1, within=10),
    Case(rule="VanishingGradient", run="tiny weights", at=1, within=10),
    Case(rule="WeightUpdateRatio", run="zero rate", at=1, within=80),
    Case(rule="UpdateRatio", run="huge rate", at=1, within=100),
    Case(rule="UnchangedTensor", run="frozen", at=100, within=100),
    Case(rule="AllZero", run="zeroed", at=100, within=100),
    Case(rule="TensorVariance", run="saturated", at=1, within=0, parameters={"max_threshold": 100}),
    Case(rule="PoorWeightInitialization", run="deep", at=1, within=150),
    Case(rule="DeadRelu", run="dead", at=1, within=10),
    Case(rule="SaturatedActivation", run="saturated", at=1, within=10),
    Case(rule="ThroughputRegression", run="slow", at=100, within=120),
    Case(rule="DataStall", run="stalled loader", at=100, within=30),
    Case(rule="StepOutlier", run="some slow", at=100, within=90),
    Case(rule="OverallFrameworkMetrics", run="slow", at=1, within=0, report="forward %"),
    Case(rule="MaxInitializationTime", run="late start", at=1, within=0, parameters={"threshold": 0.02}),
    Case(rule="StalledTrainingRule", run="hang", at=99, within=0, parameters={"threshold": 5}),
    Case(rule="Stalled", run="hang", at=99, within=0, parameters={"threshold": 5}),
    Case(rule="Straggler", run="slow rank", at=100, within=80),
    Case(rule="ReplicaDivergence", run="bit flip", at=100, within=100),
    Case(rule="OverallSystemUsage", run="loaders", at=0, within=0, report="cpu mean %"),
    Case(rule="Dataloader", run="loaders", at=0, within=60),
    Case(rule="MemoryGrowth", run="leak", at=100, within=400, parameters={"window": 10, "horizon": 1000},
         stands_in="sampled every 20 ms, windows of 10, horizon 1000"),
    Case(rule="BatchSize", run="idle gpus", at=0, within=200, parameters={"window": 100, "cpu_threshold_p95": 101},
         stands_in=_NVML),
    Case(rule="CPUBottleneck", run="idle gpus", at=0, within=200,
         parameters={"patience": 50, "cpu_threshold": 50}, stands_in=_NVML + "; the CPU is really busy"),
    Case(rule="IOBottleneck", run="slow disk", at=0, within=200, parameters={"patience": 50},
         stands_in=_NVML + "; so are the kernel's counters: no disk here is slow when it should be"),
    Case(rule="GPUMemoryIncrease", run="gpu leak", at=0, within=200,
         parameters={"patience": 50, "window": 50, "stride": 50}, stands_in=_NVML),
    Case(rule="LowGPUUtilization", run="idle gpus", at=0, within=200,
         parameters={"patience": 50, "window": 50}, stands_in=_NVML),
    Case(rule="IdleAccelerators", run="idle gpus", at=0, within=200, parameters={"minutes": 0.001}, stands_in=_NVML),
    Case(rule="LoadBalancing", run="one gpu", at=0, within=200, parameters={"patience": 50}, stands_in=_NVML),
    Case(rule="NLPSequenceRatio", run="padding", at=1, within=9),
    Case(rule="TokenStats", run="padding", at=1, within=29),
    Case(rule="CheckInputImages", run="images", at=1, within=59, parameters={"threshold_samples": 100}),
    Case(rule="ClassImbalance", run="lopsided", at=1, within=40, parameters={"warm_up": 0}),
    Case(rule="Confusion", run="lopsided", at=1, within=9),
    Case(rule="SimilarAcrossRuns", run="other seed", at=1, within=5, parameters={"other_trial_0": "blessed"}),
    Case(rule="FeatureImportanceOverweight", run="trees", at=1, within=20, stands_in=_TREES),
    Case(rule="TreeDepth", run="trees", at=1, within=0, stands_in=_TREES),
)  # fmt: skip


class Matrix:
    """Runs each training once, and keeps what was observed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._observed: dict[str, Observed] = {}

    def data(self, kind: str) -> Path:
        """Return the data set of a kind, written at its first use."""
        root = self._folder / "data" / kind
        return root if root.exists() else DATA[kind](root)

    def observe(self, name: str) -> Observed:
        """Return what was observed of a run."""
        if name == "other seed":
            OTHER_RUN["records"] = self.observe("healthy").records
        if name not in self._observed:
            self._observed[name] = (
                boosted_records()
                if name == "trees"
                else RUNS[name].observe(self._folder / name.replace(" ", "-"), self.data)
            )
        return self._observed[name]
