"""`AutoMLConf`: the params of one `autopilot_tabular` run, checked beyond their JSON schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError, not_an_s3_uri
from trainyard.specs.automl_job import AutoMLMode, ProblemType
from trainyard.specs.base_run_conf_rules import intended_uses_findings
from trainyard.specs.reading import FromMapping

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "own"
DATASETS = ("breast_cancer", "digits", OWN)
BUNDLED_TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLConf(FromMapping):
    """Settings of one run.

    Attributes:
        dataset: a table bundled with scikit-learn, or `own`: the CSV files below `source`.
        target_column: column to predict if `dataset` is `own`; a bundled table has the column `target`.
        validation_fraction: share of the rows for validation; 0 = the service splits or cross-validates.
        max_time_s: time limit of the search; None = no limit.
        max_time_per_candidate_s: time limit of one candidate; None = no limit.
        budget_usd: budget of the search; None = no limit.
        instance_type: instance type of the jobs that prepare the data and evaluate the model.
        image_uri: image of the job that prepares the data; None = AWS's scikit-learn image.
        intended_uses: text of the model card on the uses that the model is meant for; None = not stated.
    """

    dataset: str = "breast_cancer"
    source: str | None = None
    target_column: str | None = None
    test_fraction: float = 0.1
    validation_fraction: float = 0.0
    seed: int = 0
    mode: AutoMLMode = AutoMLMode.AUTO
    problem_type: ProblemType | None = None
    objective: str | None = None
    algorithms: tuple[str, ...] = ()
    max_candidates: int = 8
    max_time_s: int | None = 3600
    max_time_per_candidate_s: int | None = None
    budget_usd: float | None = None
    instance_type: str = "ml.m5.large"
    max_run_s: int = 3600
    image_uri: str | None = None
    role: str | None = None
    model_package_group: str = "trainyard-tabular"
    approval_status: str = "PendingManualApproval"
    intended_uses: str | None = None

    def __post_init__(self) -> None:
        """Check constraints that the schema cannot express.

        Raises:
            SpecError: fields are invalid; the error lists all faults.
        """
        findings = list(_findings(self))
        if findings:
            raise SpecError(findings, subject="AutoMLConf")

    @property
    def target(self) -> str:
        """The column to predict."""
        return self.target_column or BUNDLED_TARGET


def _findings(conf: AutoMLConf) -> Iterator[Finding]:
    if conf.dataset not in DATASETS:
        yield Finding(
            where="dataset",
            what="is not a known dataset",
            got=conf.dataset,
            allowed=", ".join(DATASETS),
        )
    if conf.dataset == OWN:
        for name in ("source", "target_column"):
            if not getattr(conf, name):
                yield Finding(
                    where=name,
                    what="is required for your own table",
                    got="None",
                    next_step=f"set {name}, or choose one of the other datasets",
                )
    else:
        target = conf.target_column if conf.target_column != BUNDLED_TARGET else None
        for name, value in (("source", conf.source), ("target_column", target)):
            if value:
                yield Finding(
                    where=name,
                    what=f'applies to dataset "{OWN}" only',
                    got=f"{value!r} with dataset {conf.dataset!r}",
                    next_step=f'set dataset to "{OWN}", or remove {name}',
                )
    yield from intended_uses_findings(conf.intended_uses)
    if conf.source and not conf.source.startswith("s3://"):
        yield not_an_s3_uri("source", conf.source)
    if not 0 < conf.test_fraction < 1:
        yield Finding(
            where="test_fraction",
            what="must leave rows for training and for the test",
            got=str(conf.test_fraction),
            allowed="above 0, below 1",
        )
    if conf.validation_fraction < 0 or conf.test_fraction + conf.validation_fraction >= 1:
        yield Finding(
            where="validation_fraction",
            what="is negative" if conf.validation_fraction < 0 else "leaves no rows to train on",
            got=f"{conf.validation_fraction} with test_fraction {conf.test_fraction}",
            allowed="at least 0, and a sum of both fractions below 1",
        )
