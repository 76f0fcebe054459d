"""CloudWatch alarms and the dashboard of a training, as requests.

Each attempt of a task is a separate job. The names of these jobs are known in advance, so the alarms cover
all attempts.

Source of the metric names and of the dimension `Host`: "Monitor Amazon SageMaker with Amazon CloudWatch" in
the SageMaker developer guide.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAMESPACE = "/aws/sagemaker/TrainingJobs"
MOST_METRICS_OF_AN_ALARM = 10
_PERIOD_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredTraining:
    """The jobs of one training task.

    Attributes:
        job_names: job names of all possible attempts. The job name of the first attempt is part of the names of
            the alarms and of the dashboard.
        num_hosts: largest number of hosts of any attempt.
    """

    job_names: tuple[str, ...]
    num_hosts: int
    has_gpus: bool

    @property
    def stem(self) -> str:
        """Name of the training's dashboard. The names of all alarms of the training begin with it."""
        return f"trainyard-{self.job_names[0]}"

    @property
    def hosts(self) -> list[str]:
        """Values of the dimension `Host`, one for every instance of every attempt, attempt by attempt."""
        return [
            f"{job}/algo-{number}"
            for job in self.job_names
            for number in range(1, self.num_hosts + 1)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """One kind of alarm. It is triggered if its metric is beyond its threshold for `minutes` consecutive minutes.

    Attributes:
        description: text of the alarm's description.
    """

    name: str
    metric: str
    comparison: str
    threshold: float
    minutes: int
    description: str


_HOST_ALARMS = (
    _Watched(
        name="idle",
        metric="CPUUtilization",
        comparison="LessThanThreshold",
        threshold=5.0,
        minutes=15,
        description="the instances are paid for and nearly idle: the training may hang",
    ),
    _Watched(
        name="memory",
        metric="MemoryUtilization",
        comparison="GreaterThanThreshold",
        threshold=95.0,
        minutes=3,
        description="an instance's memory is nearly full",
    ),
    _Watched(
        name="disk",
        metric="DiskUtilization",
        comparison="GreaterThanThreshold",
        threshold=90.0,
        minutes=3,
        description="an instance's disk is nearly full",
    ),
)
_GPU_ALARM = _Watched(
    name="gpu-idle",
    metric="GPUUtilization",
    comparison="LessThanThreshold",
    threshold=5.0,
    minutes=15,
    description="the GPUs are paid for and nearly idle",
)


def render_alarms(
    training: MonitoredTraining, *, actions: Sequence[str], tags: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the PutMetricAlarm requests for idle CPUs, full memory, full disks and, if there are GPUs, idle GPUs.

    An alarm can have at most ten metrics, so a large training has several alarms of each kind. Missing data, as before
    and after the training, does not trigger an alarm.

    Args:
        training: the training.
        actions: ARNs of the topics that an alarm notifies.
        tags: tags of every alarm.
    """
    hosts = training.hosts
    groups = [
        hosts[start : start + MOST_METRICS_OF_AN_ALARM]
        for start in range(0, len(hosts), MOST_METRICS_OF_AN_ALARM)
    ]
    for watched in (*_HOST_ALARMS, *([_GPU_ALARM] if training.has_gpus else [])):
        for number, group in enumerate(groups, 1):
            suffix = f"-{number}" if len(groups) > 1 else ""
            yield {
                "AlarmName": f"{training.stem}-{watched.name}{suffix}",
                "AlarmDescription": f"{training.job_names[0]}: {watched.description}",
                "ActionsEnabled": bool(actions),
                "AlarmActions": list(actions),
                "Metrics": _highest(watched.metric, group),
                "ComparisonOperator": watched.comparison,
                "Threshold": watched.threshold,
                "EvaluationPeriods": watched.minutes,
                "DatapointsToAlarm": watched.minutes,
                "TreatMissingData": "notBreaching",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }


def render_dashboard(training: MonitoredTraining, *, region: str) -> dict[str, str]:
    """Return the PutDashboard request.

    The dashboard has one graph of all losses, and one graph for each metric of the hosts, such as memory.
    """
    graphs = [
        ("Processor (% of one core, added up)", "CPUUtilization"),
        ("Memory (%)", "MemoryUtilization"),
        ("Disk space (%)", "DiskUtilization"),
    ]
    if training.has_gpus:
        graphs += [
            ("GPU (% of one GPU, added up)", "GPUUtilization"),
            ("GPU memory (% of one GPU, added up)", "GPUMemoryUtilization"),
        ]
    usage = [
        (title, [[NAMESPACE, metric, "Host", host] for host in training.hosts])
        for title, metric in graphs
    ]
    losses = [
        [NAMESPACE, metric, "TrainingJobName", job]
        for job in training.job_names
        for metric in ("train:loss", "validation:loss")
    ]
    widgets = [
        _graph(title, metrics, region=region, index=index)
        for index, (title, metrics) in enumerate([("Loss", losses), *usage])
    ]
    return {"DashboardName": training.stem, "DashboardBody": json.dumps({"widgets": widgets})}


def _highest(metric: str, hosts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the queries of an alarm: the metric of each host, and their maximum, which the alarm evaluates."""
    each = [
        {
            "Id": f"m{number}",
            "ReturnData": False,
            "MetricStat": {
                "Metric": {
                    "Namespace": NAMESPACE,
                    "MetricName": metric,
                    "Dimensions": [{"Name": "Host", "Value": host}],
                },
                "Period": _PERIOD_S,
                "Stat": "Average",
            },
        }
        for number, host in enumerate(hosts)
    ]
    highest = {
        "Id": "highest",
        "Expression": "MAX(METRICS())",
        "Label": f"highest {metric}",
        "ReturnData": True,
    }
    return [highest, *each]


def _graph(
    title: str, metrics: Sequence[Sequence[str]], *, region: str, index: int
) -> dict[str, Any]:
    width, height = 12, 6
    return {
        "type": "metric",
        "x": width * (index % 2),
        "y": height * (index // 2),
        "width": width,
        "height": height,
        "properties": {
            "title": title,
            "region": region,
            "view": "timeSeries",
            "stat": "Average",
            "period": _PERIOD_S,
            "metrics": [list(each) for each in metrics],
        },
    }
