"""Preflight's findings on jobs that violate the connection's limits, before anything is paid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard.errors import Finding
from trainyard.specs.account_limits import Required
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.training_job_rules import unreachable_inputs
from trainyard_airflow.tasks.end_to_end.jobs import (
    LastStepEvaluation,
    evaluation_spec,
    training_spec,
)
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.run_conf import RunConf
    from trainyard_airflow.hooks.aws_clients import AwsClients


def limit_findings(
    clients: AwsClients, conf: RunConf, *, bucket: str, role: str
) -> Iterator[Finding]:
    """Yield the findings on violations of the connection's limits by the run's jobs.

    The jobs are the sharding, the training and the evaluation. Errors are also yielded for images that do not
    exist, and for a missing network if a job's channels need one. An image that cannot be checked gets a
    warning. Each finding is yielded once. A search's trials have the same settings as the training, so they are
    not checked separately.
    """
    limits = clients.job_limits
    if conf.shard_instance_count and Required.ENABLE_NETWORK_ISOLATION in limits.required:
        yield Finding(
            where="shard_instance_count",
            what="needs access to S3, but the connection's job_limits require network isolation",
            got=str(conf.shard_instance_count),
            allowed="0",
            next_step="set it to 0, so that the Airflow worker shards the data",
        )
    sources = [each.source for each in conf.by_source.values()]
    yield from limits.bucket_findings([*sources, conf.tokenizer])
    yield from job_limit_findings(clients, _jobs(conf, bucket=bucket, role=role))


def job_limit_findings(
    clients: AwsClients, jobs: Iterable[TrainingJobSpec | ProcessingJobSpec]
) -> Iterator[Finding]:
    """Yield the jobs' violations of the connection's limits, and their missing images and networks, each once.

    A network is missing if a job's channels need one and neither the job nor the connection has one.
    """
    from trainyard_airflow.hooks.image_digests import image_findings  # a DAG file imports this
    from trainyard_airflow.jobs.job_code import job_image  # a DAG file imports this module

    limits = clients.job_limits
    images = [(job, job_image(job, region=clients.region)) for job in jobs]
    found: dict[Finding, None] = {}
    for job, image in images:
        whole = replace(job, **clients.job_defaults.changes_to(job))
        found |= dict.fromkeys(limits.findings(whole, image_uri=image))
        if isinstance(whole, TrainingJobSpec):
            found |= dict.fromkeys(unreachable_inputs(whole))
    yield from found
    yield from image_findings(clients, [image for _, image in images if image])


def on_every_rung(training: TrainingJobSpec) -> Iterator[TrainingJobSpec]:
    """Yield the training's spec for each tier of its capacity ladder, such as an instance type.

    Without a ladder, yield the spec itself.
    """
    from trainyard_airflow.jobs.ladder import rungs_of, spec_on_rung  # a DAG file imports this

    if training.capacity_ladder:
        yield from (spec_on_rung(training, rung) for rung in rungs_of(training))
    else:
        yield training


def _jobs(
    conf: RunConf, *, bucket: str, role: str
) -> Iterator[TrainingJobSpec | ProcessingJobSpec]:
    """Yield the run's jobs, with placeholders for the results of earlier tasks."""
    from trainyard.specs.processing_job import ProcessingJobSpec  # a DAG file imports this module

    paths = RunPaths(bucket=bucket, prefix=conf.prefix, dag_id="dag", run_id="run")
    dataset_uri = f"{paths.root}/dataset"
    if conf.shard_instance_count:
        yield ProcessingJobSpec(
            role=role,
            instance_type=conf.shard_instance_type,
            instance_count=conf.shard_instance_count,
            image_uri=conf.image_uri,
            code_location=paths.code,
        )
    training = training_spec(conf, paths=paths, dataset_uri=dataset_uri, role=role, task_id="train")
    yield from on_every_rung(training)
    for each in conf.rungs:
        trained = {
            "job_name": "job",
            "model_artifact": f"{paths.output}/model.tar.gz",
            "instance_type": each.instance_type,
        }
        evaluation = evaluation_spec(
            conf, paths=paths, dataset_uri=dataset_uri, training=trained, role=role
        )
        if evaluation and not isinstance(evaluation, LastStepEvaluation):
            yield evaluation
