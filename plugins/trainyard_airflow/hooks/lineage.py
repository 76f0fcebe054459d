"""Lineage of a task for Airflow's OpenLineage provider; this module is imported only if the provider asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.providers.openlineage.extractors import OperatorLineage

    from trainyard.runs.lineage import LineageDataset


def operator_lineage(
    *,
    inputs: Iterable[LineageDataset],
    outputs: Iterable[LineageDataset],
    job_arn: str | None = None,
) -> OperatorLineage:
    """Return the lineage of a task; the run facet `externalQuery` has the ARN of the task's SageMaker job, if any.

    Args:
        inputs: data sets that the task read.
        outputs: data sets that the task wrote.
        job_arn: the task's last job.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
    from openlineage.client.generated.external_query_run import ExternalQueryRunFacet

    def dataset(given: LineageDataset) -> Any:
        facets = {"version": DatasetVersionDatasetFacet(given.version)} if given.version else {}
        return Dataset(namespace=given.namespace, name=given.name, facets=facets)

    job = ExternalQueryRunFacet(externalQueryId=job_arn, source="sagemaker") if job_arn else None
    return OperatorLineage(
        inputs=[dataset(each) for each in inputs],
        outputs=[dataset(each) for each in outputs],
        run_facets={"externalQuery": job} if job else {},
    )
