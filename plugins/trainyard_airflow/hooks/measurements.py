"""Measurements of a deployment's earlier runs, stored in S3, from which later runs are estimated."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError, TrainingRunError
from trainyard.planning.estimate.measurement import RunMeasurement
from trainyard.planning.estimate.work import workload_of
from trainyard.sagemaker_api.names import run_slug
from trainyard_airflow.hooks.objects import S3Address, S3Objects
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.base_run_conf import BaseRunConf

log = logging.getLogger(__name__)

NEWEST = 30
"""Maximum number of measurements that an estimate reads."""
_END_OF_TIME_S = 10**10


def measurements_of(client: Any, conf: BaseRunConf, *, uri: str) -> MeasurementFolder:
    """Return the measurements of runs with the same workload as a conf.

    Args:
        client: a boto3 client of S3.
        conf: a run's conf.
        uri: S3 prefix of all measurements.
    """
    return MeasurementFolder(client, uri=f"{uri}/{workload_of(conf)}")


class MeasurementFolder:
    """Measurements of one workload: one JSON object each, named so that S3 lists the newest first."""

    def __init__(self, client: Any, *, uri: str) -> None:
        self._client = client
        self._objects = S3Objects(client)
        self.uri = uri.rstrip("/")

    def newest(self) -> tuple[RunMeasurement, ...]:
        """Return the newest measurements, at most `NEWEST`; unreadable ones are logged and omitted."""
        from botocore.exceptions import BotoCoreError

        found: list[RunMeasurement] = []
        try:
            found.extend(self._newest())
        except (TrainingRunError, BotoCoreError) as error:
            log.warning(
                "The estimate uses %d earlier run(s), and not the others: %s", len(found), error
            )
        return tuple(found)

    def write(self, measurement: RunMeasurement) -> None:
        """Store the measurement of a run; a later measurement of the same run is a separate object.

        Raises:
            TrainingRunError: S3 rejected the write.
        """
        before = _END_OF_TIME_S - int(measurement.measured_at)
        uri = f"{self.uri}/{before:011d}-{run_slug(measurement.run_id)}.json"
        self._objects.write_json(uri, measurement.to_json())

    def _newest(self) -> Iterator[RunMeasurement]:
        at = S3Address.parse(f"{self.uri}/")
        with refusals_typed(self.uri):
            listed = self._client.list_objects_v2(Bucket=at.bucket, Prefix=at.key, MaxKeys=NEWEST)
        for each in listed.get("Contents", ()):
            try:
                yield RunMeasurement.from_json(
                    self._objects.read(f"s3://{at.bucket}/{each['Key']}")
                )
            except ContractError as error:
                log.info("%s is not used for the estimate: %s", each["Key"], error)
