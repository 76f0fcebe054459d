"""The report's data on a run's search: tuning jobs with their cost, trials, and `tuning.json`."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError, TrainingRunError
from trainyard.runs.builder import job_record
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_tuning import search_of, with_values
from trainyard.task_ids import TaskId
from trainyard.tuning.ask_tell import LONG, rung_steps
from trainyard.tuning.provenance import provenance
from trainyard.tuning.result import TuningResult
from trainyard_airflow.tasks.end_to_end.jobs import training_hyperparameters
from trainyard_airflow.tasks.shared.leftover_jobs import job_name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainyard.runs.record import JobRecord
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.tuning.provenance import Chosen
    from trainyard.tuning.trials import Trial
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.hooks.objects import S3Objects
    from trainyard_airflow.tasks.shared.run_facts import TaskFacts
    from trainyard_airflow.tasks.shared.run_paths import RunPaths

log = logging.getLogger(__name__)

TRIALS_NAME, DOCUMENT_NAME = "trials.parquet", "tuning.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAccount:
    """Jobs of the search, oldest attempt first, and the content of tuning.json; both empty without a search."""

    jobs: tuple[JobRecord, ...] = ()
    document: Mapping[str, Any] | None = None


def write_search_account(
    clients: AwsClients,
    objects: S3Objects,
    *,
    conf: Mapping[str, Any],
    paths: RunPaths,
    facts: TaskFacts | None,
) -> SearchAccount:
    """Write trials.parquet and tuning.json below the report's prefix, and return the report's data on the search.

    If the service or S3 rejects a call, a warning is logged, and the report has no section on the search.

    Args:
        clients: clients of the run's connection.
        objects: access to S3 objects.
        conf: the run's conf from preflight's result.
        paths: addresses of the run.
        facts: facts of the tuning task; None if it was skipped.
    """
    from botocore.exceptions import BotoCoreError

    if facts is None or not conf:
        return SearchAccount()
    read = RunConf.from_mapping(conf)
    try:
        return _account(clients, objects, conf=read, paths=paths, facts=facts)
    except (TrainingRunError, BotoCoreError) as error:
        log.warning(
            "The report has no section on the search, as its data cannot be read: %s", error
        )
        return SearchAccount()


def conf_as_trained(conf: Mapping[str, Any], searched: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the run's conf with the best trial's hyperparameters.

    The conf is unchanged if there is no best trial, or if the hyperparameters are invalid for the run.
    """
    if not searched:
        return dict(conf)
    tuned = TuningResult.from_dict(searched).best.tuned_values
    try:
        trained = with_values(RunConf.from_mapping(conf), tuned)
    except SpecError as error:
        log.warning("The winner's hyperparameters do not fit the run: %s", error)
        return dict(conf)
    changed = {name: getattr(trained, name) for name in tuned if name in conf}
    return {**conf, **changed, "hyperparameters": dict(trained.hyperparameters)}


def _account(
    clients: AwsClients, objects: S3Objects, *, conf: RunConf, paths: RunPaths, facts: TaskFacts
) -> SearchAccount:
    from trainyard.tuning.document import tuning_document
    from trainyard.tuning.trials import PARQUET, from_parquet, to_parquet
    from trainyard_airflow.hooks.tuning_trials import TuningTrials

    service = TuningTrials(clients)
    jobs = [service.billed(each) for each in _tuning_jobs(clients, paths)]
    result = TuningResult.from_dict(facts.result) if facts.result else None
    trials: Sequence[Trial] = ()
    if result is not None:
        content = objects.read(result.trials_uri)
        trials = from_parquet(content)
    elif jobs:
        trials = service.trials(jobs[-1].name)
        content = to_parquet(trials)
    else:
        return SearchAccount()
    document = tuning_document(
        conf,
        trials=trials,
        result=result,
        chosen=_chosen(conf, result),
        num_steps=None if jobs else _longest_trial(conf),
    )
    objects.write(f"{paths.report}/{TRIALS_NAME}", content, content_type=PARQUET)
    text = json.dumps(document, indent=1, allow_nan=False)
    objects.write_json(f"{paths.report}/{DOCUMENT_NAME}", text)
    records = [
        job_record(TaskId.TUNE, each.to_dict(), attempts=number, links=facts.links)
        for number, each in enumerate(jobs, 1)
    ] or [job_record(TaskId.TUNE, each.to_dict()) for each in _trainings(clients, trials)]
    return SearchAccount(jobs=tuple(records), document=document)


def _longest_trial(conf: RunConf) -> int:
    """Return the optimizer steps of the search's longest trial; the run's `max_steps` if it has no search."""
    search = search_of(conf)
    return rung_steps(search, max_steps=conf.max_steps)[LONG] if search else conf.max_steps


def _trainings(clients: AwsClients, trials: Sequence[Trial]) -> Iterator[JobSnapshot]:
    """Yield the training jobs of the trials of a search in rounds. Such a search has no tuning job."""
    from trainyard_airflow.hooks.jobs import SageMakerJobs

    service = SageMakerJobs(clients, JobKind.TRAINING)
    described = (service.describe(each.training_job_name) for each in trials)
    yield from (each for each in described if each is not None)


def _tuning_jobs(clients: AwsClients, paths: RunPaths) -> Iterator[JobSnapshot]:
    """Yield the tuning jobs of the run, one per attempt, found by their names."""
    from trainyard_airflow.hooks.jobs import SageMakerJobs

    service, attempt = SageMakerJobs(clients, JobKind.TUNING), 1
    while snapshot := service.describe(job_name_of(paths, task_id=TaskId.TUNE, attempt=attempt)):
        yield snapshot
        attempt += 1


def _chosen(conf: RunConf, result: TuningResult | None) -> list[Chosen]:
    """Return the final training's hyperparameters with their origins.

    The list is empty if the search has no result, or if the best trial's values are invalid for the conf.
    """
    if result is None:
        return []
    tuned = result.best.tuned_values
    try:
        sent = training_hyperparameters(with_values(conf, tuned))
    except SpecError as error:
        log.warning("The winner's hyperparameters do not fit the run: %s", error)
        return []
    return provenance(sent, conf=conf, tuned=tuned)
