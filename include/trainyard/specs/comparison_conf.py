"""`ComparisonConf`: the params of one `compare_strategies` run: a training, its strategies and numbers of ranks."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from trainyard.errors import Finding, SpecError
from trainyard.specs.reading import read_spec
from trainyard.specs.run_conf import HYPERPARAMETERS, RunConf

MOST_CELLS = 64
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}"
ENTRY_POINT = r"(?:[A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+\.py"
"""Path of a script relative to `training_scripts/`, without `..`."""
_SHARED = (
    *(
        "source",
        "data_format",
        "text_column",
        "target_column",
        "ignore_columns",
        "category_columns",
        "csv_options",
        "tokenizer",
        "vocab_size",
        "eos_token_id",
    ),
    *(
        "num_shards",
        "validation_fraction",
        "test_fraction",
        "sample_fraction",
        "max_bad_row_fraction",
        "checksums",
        "max_source_bytes",
    ),
    *("shard_instance_count", "shard_instance_type"),
    *HYPERPARAMETERS,
    "warmup_steps",
    *(
        "hyperparameters",
        "instance_type",
        "volume_size_gb",
        "max_run_s",
        "image_uri",
        "use_spot_instances",
    ),
    *(
        "max_wait_s",
        "heartbeat_timeout_s",
        "max_quota_wait_s",
        "budget_usd",
        "bucket",
        "prefix",
        "role",
    ),
)
"""Fields of a run's conf that apply to every cell; the other fields have no meaning in a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStrategy:
    """One way to train the model.

    Attributes:
        name: its name in the table and the charts.
        distribution: the SDK estimator's `distribution`, verbatim; empty = torchrun.
        entry_point: the script in `training_scripts/`.
        hyperparameters: hyperparameters that override those derived from the run's conf.
        ranks: numbers of ranks for this strategy; empty = the comparison's.
        image_uri: image for this strategy; None = the run's.
    """

    name: str
    distribution: Mapping[str, Any] = field(default_factory=dict)
    entry_point: str = "train_ddp.py"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = ()
    image_uri: str | None = None

    def __post_init__(self) -> None:
        """Check the fields of the strategy.

        Raises:
            SpecError: the name, the script or the numbers of ranks are invalid.
        """
        findings = [*_rank_findings(self.ranks)]
        if not re.fullmatch(NAME, self.name):
            findings.append(
                Finding(
                    where="name",
                    what="is malformed",
                    got=repr(self.name),
                    allowed="up to 32 letters, digits, _ and -, such as ddp or tensor-2",
                )
            )
        if not re.fullmatch(ENTRY_POINT, self.entry_point):
            findings.append(
                Finding(
                    where="entry_point",
                    what="is not a script in training_scripts/",
                    got=repr(self.entry_point),
                    allowed="the path of a script in that folder, such as train_ddp.py",
                )
            )
        if findings:
            raise SpecError(findings, subject="strategy")


def _default_strategies() -> tuple[ComparedStrategy, ...]:
    """Return three strategies: `ddp` (replicas), `fsdp` (sharded state) and `tensor` (layers split over two ranks)."""
    sharded = "train_fsdp.py"
    return (
        ComparedStrategy(name="ddp"),
        ComparedStrategy(name="fsdp", entry_point=sharded),
        ComparedStrategy(
            name="tensor",
            entry_point=sharded,
            hyperparameters={"tensor_parallel_degree": 2},
            ranks=(2,),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Settings of a comparison. A cell is one of its trainings: a strategy on a number of ranks.

    Attributes:
        ranks: numbers of ranks for each strategy.
        loss_tolerance: largest allowed relative difference between the losses of a cell and of the reference,
            which is the measured cell with the fewest ranks. It applies to the loss at each step and to the
            last validation loss.
        worthwhile_efficiency: least gain in speed that each added rank must bring, as a share of the speed per
            rank at the fewest ranks. If the gain is smaller, the comparison reports that more ranks are not
            worthwhile.
        processes_per_instance: largest number of ranks per instance; None = one per GPU or NeuronCore.
        cells_at_once: largest number of parallel trainings; 0 = as many as fit into the pool's slots.
    """

    strategies: tuple[ComparedStrategy, ...] = field(default_factory=_default_strategies)
    ranks: tuple[int, ...] = (1, 2)
    loss_tolerance: float = 0.01
    worthwhile_efficiency: float = 0.5
    processes_per_instance: int | None = None
    cells_at_once: int = 1

    def __post_init__(self) -> None:
        """Check the fields of the comparison.

        Raises:
            SpecError: fields are invalid; the error lists all faults.
        """
        if findings := [*_comparison_findings(self)]:
            raise SpecError(findings, subject="comparison")

    def ranks_of(self, strategy: ComparedStrategy) -> tuple[int, ...]:
        """Return the numbers of ranks that a strategy is tried with, fewest first."""
        return tuple(sorted(strategy.ranks or self.ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonConf:
    """A comparison, and the conf that its trainings share.

    The shared conf (`run`) is set to one rank. Each training sets its own number of ranks.
    """

    comparison: Comparison
    run: RunConf

    @classmethod
    def from_mapping(cls, params: Mapping[str, Any]) -> Self:
        """Build the conf from the DAG's params.

        Raises:
            SpecError: params are invalid; the error lists all faults.
        """
        own = {each.name for each in fields(Comparison)}
        shared = {name: value for name, value in params.items() if name not in own}
        foreign = [name for name in shared if is_of_other_runs(name)]
        findings = [_foreign(name, shared.pop(name)) for name in foreign]
        comparison = run = None
        try:
            comparison = read_spec(Comparison, {n: v for n, v in params.items() if n in own})
        except SpecError as error:
            findings += error.findings
        try:
            run = RunConf.from_mapping({**shared, "instance_count": 1, "processes_per_instance": 1})
        except SpecError as error:
            findings += error.findings
        if findings or comparison is None or run is None:
            raise SpecError(findings, subject="comparison conf")
        return cls(comparison=comparison, run=run)

    def to_dict(self) -> dict[str, Any]:
        """Return the conf as JSON-safe data, usable as the params of another run."""
        shared = {n: v for n, v in asdict(self.run).items() if not is_of_other_runs(n)}
        return {**shared, **asdict(self.comparison)}


def is_of_other_runs(name: str) -> bool:
    """Return whether a field of `RunConf` has no meaning in a comparison."""
    return name in RunConf.__dataclass_fields__ and name not in _SHARED


def _comparison_findings(conf: Comparison) -> Iterator[Finding]:
    yield from _rank_findings(conf.ranks)
    if not conf.ranks:
        yield Finding(where="ranks", what="is empty", allowed="numbers of ranks, such as [1, 2]")
    if not conf.strategies:
        yield Finding(where="strategies", what="is empty", allowed="at least one")
    for name, count in Counter(each.name for each in conf.strategies).items():
        if count > 1:
            yield Finding(
                where="strategies",
                what="has several strategies with the same name",
                got=repr(name),
                next_step="give each strategy its own name",
            )
    num_cells = sum(len(conf.ranks_of(each)) for each in conf.strategies)
    if num_cells > MOST_CELLS:
        yield Finding(
            where="strategies",
            what="makes too many trainings, one for each strategy and number of ranks",
            got=str(num_cells),
            allowed=f"at most {MOST_CELLS}",
        )
    if not 0 < conf.loss_tolerance < 1:
        yield _no_share("loss_tolerance", conf.loss_tolerance)
    if not 0 < conf.worthwhile_efficiency < 1:
        yield _no_share("worthwhile_efficiency", conf.worthwhile_efficiency)
    for name, least in (("processes_per_instance", 1), ("cells_at_once", 0)):
        if (value := getattr(conf, name)) is not None and value < least:
            yield Finding(
                where=name, what="is too small", got=str(value), allowed=f"at least {least}"
            )


def _rank_findings(ranks: tuple[int, ...]) -> Iterator[Finding]:
    if any(each < 1 for each in ranks) or len(set(ranks)) < len(ranks):
        yield Finding(
            where="ranks",
            what="has an invalid or a repeated number of ranks",
            got=str(list(ranks)),
            allowed="whole numbers from 1, each once",
        )


def _foreign(name: str, value: object) -> Finding:
    return Finding(
        where=name,
        what="is a param of train_end_to_end; a comparison does not support it",
        got=repr(value),
        next_step="set ranks instead" if name == "instance_count" else "remove it",
    )


def _no_share(where: str, value: float) -> Finding:
    got = "NaN" if math.isnan(value) else f"{value:g}"
    return Finding(where=where, what="is not a share", got=got, allowed="above 0 and below 1")
