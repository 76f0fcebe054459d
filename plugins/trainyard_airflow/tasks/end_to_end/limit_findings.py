"""Preflight's findings about jobs that are beyond the limits of the connection, before anything is paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard_airflow.tasks.end_to_end.jobs import (
    LastStepEvaluation,
    evaluation_spec,
    training_spec,
)
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.errors import Finding
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard_airflow.hooks.aws_clients import AwsClients


def limit_findings(
    clients: AwsClients, conf: RunConf, *, bucket: str, role: str
) -> Iterator[Finding]:
    """Yield what the connection's limits refuse of sharding, training and evaluation; the same of several jobs once.

    A search's trials are like the training.
    """
    from trainyard_airflow.jobs.job_code import job_image  # a DAG file imports this module

    findings = (
        finding
        for job in _jobs(conf, bucket=bucket, role=role)
        for finding in clients.job_limits.findings(
            clients.job_defaults.of(job), image_uri=job_image(job, region=clients.region)
        )
    )
    yield from dict.fromkeys(findings)


def _jobs(
    conf: RunConf, *, bucket: str, role: str
) -> Iterator[TrainingJobSpec | ProcessingJobSpec]:
    """Yield the run's jobs with stand-ins for what earlier tasks will return."""
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
    yield training
    for rung in conf.rungs:
        trained = {
            "job_name": "job",
            "model_artifact": f"{paths.output}/model.tar.gz",
            "instance_type": rung.instance_type,
        }
        evaluation = evaluation_spec(
            conf, paths=paths, dataset_uri=dataset_uri, training=trained, role=role
        )
        if not isinstance(evaluation, LastStepEvaluation):
            yield evaluation
