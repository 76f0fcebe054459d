"""Alarms and dashboard of a training in CloudWatch: creation, lookup by name, and removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.sagemaker_api.monitoring_requests import render_alarms, render_dashboard
from trainyard_airflow.hooks.refusals import answer_or_none, refusals_typed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.monitoring_requests import MonitoredTraining
    from trainyard_airflow.hooks.aws_clients import AwsClients

_MOST_ALARMS_OF_A_CALL = 100  # DeleteAlarms
_NO_DASHBOARD = {"DashboardNotFoundError", "ResourceNotFound"}


class TrainingMonitor:
    """The alarms and the dashboard of one training.

    Put calls replace alarms and dashboards of the same names, so a retry creates no duplicates.
    """

    def __init__(self, clients: AwsClients, training: MonitoredTraining) -> None:
        self._clients, self._training = clients, training
        self._client = clients.client("cloudwatch")

    def put_alarms(self, *, actions: Sequence[str], tags: Mapping[str, str]) -> list[str]:
        """Put the alarms and return their names.

        Raises:
            TrainingRunError: CloudWatch rejected a call.
        """
        names = []
        for request in render_alarms(self._training, actions=actions, tags=tags):
            with refusals_typed(f"alarm {request['AlarmName']}"):
                self._client.put_metric_alarm(**request)
            names.append(request["AlarmName"])
        return names

    def put_dashboard(self) -> str:
        """Put the dashboard and return its name.

        Raises:
            TrainingRunError: CloudWatch rejected a call.
        """
        request = render_dashboard(self._training, region=self._clients.region)
        with refusals_typed(f"dashboard {request['DashboardName']}"):
            self._client.put_dashboard(**request)
        return request["DashboardName"]

    def alarms(self) -> list[str]:
        """Return the names of the training's existing alarms.

        Raises:
            TrainingRunError: CloudWatch rejected a call.
        """
        pages = self._client.get_paginator("describe_alarms")
        with refusals_typed(f"alarms {self._training.stem}-*"):
            found = pages.paginate(
                AlarmNamePrefix=f"{self._training.stem}-", AlarmTypes=["MetricAlarm"]
            )
            return [each["AlarmName"] for page in found for each in page["MetricAlarms"]]

    def remove_alarms(self) -> list[str]:
        """Remove the training's alarms and return their names; empty if there were none.

        Raises:
            TrainingRunError: CloudWatch rejected a call.
        """
        names = self.alarms()
        for start in range(0, len(names), _MOST_ALARMS_OF_A_CALL):
            with refusals_typed(f"alarms {self._training.stem}-*"):
                self._client.delete_alarms(AlarmNames=names[start : start + _MOST_ALARMS_OF_A_CALL])
        return names

    def remove_dashboard(self) -> bool:
        """Remove the training's dashboard; return False if there was none.

        Raises:
            TrainingRunError: CloudWatch rejected a call.
        """
        answer = answer_or_none(
            lambda: self._client.delete_dashboards(DashboardNames=[self._training.stem]),
            where=f"dashboard {self._training.stem}",
            is_absent=lambda code, _: code in _NO_DASHBOARD,
        )
        return answer is not None
