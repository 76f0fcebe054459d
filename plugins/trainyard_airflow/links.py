"""Links of tasks in Airflow's UI.

A job's task links to the job's console page, logs and output. A report's task links to the report.

The operator derives the addresses once it has a job. Airflow stores them when the try ends, and when the
task defers. A link without an address is empty, and the UI shows a disabled button.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

LINKS_XCOM_KEY = "job_links"

_CONSOLE_DOMAINS = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}


class _JobLink(BaseOperatorLink):
    """Base of links whose address is known once the task has a job."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the address; empty before the task has a job.

        Airflow calls this when a try ends, and when the task defers.
        """
        links: dict[str, str] = getattr(operator, "links", {})
        return links.get(type(self).__name__, "")


class JobConsoleLink(_JobLink):
    """Link to the job's page in the SageMaker console."""

    name = "SageMaker job"


class JobLogsLink(_JobLink):
    """Link to the log streams of all hosts of the job in CloudWatch."""

    name = "CloudWatch logs"


class JobOutputLink(_JobLink):
    """Link to the job's output in S3."""

    name = "S3 output"


JOB_LINKS = (JobConsoleLink(), JobLogsLink(), JobOutputLink())

PAGES = "trainyard"
"""First part of the path of Trainyard's pages on Airflow's API server."""


class ReportLink(BaseOperatorLink):
    """Link to the run's report, which the pages in Airflow's UI serve from S3."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the address on Airflow's API server."""
        from airflow.sdk.configuration import conf

        base = conf.get("api", "base_url", fallback="").rstrip("/")
        dag_id, run_id = quote(ti_key.dag_id, safe=""), quote(ti_key.run_id, safe="")
        return f"{base}/{PAGES}/reports/{dag_id}/{run_id}/report.html"


def job_links(
    *,
    job_name: str,
    console_path: str,
    log_group: str,
    output_s3_uri: str | None,
    region: str,
    partition: str = "aws",
    stream_mark: str = "/",
) -> dict[str, str]:
    """Return the addresses of a job's pages by link class name.

    Args:
        job_name: the job's name in SageMaker.
        console_path: the console's path for the kind of job, such as `jobs` or `processing-jobs`.
        log_group: the log group with one stream `<job>/<host>` per host.
        output_s3_uri: the job's output; None omits this link.
        region: the region of the job.
        partition: the AWS partition, which determines the console's domain.
        stream_mark: text that follows the job's name in the names of its log streams.
    """
    console = f"https://{region}.{_CONSOLE_DOMAINS.get(partition, _CONSOLE_DOMAINS['aws'])}"
    group = _twice_quoted(log_group)
    links = {
        JobConsoleLink.__name__: f"{console}/sagemaker/home?region={region}#/{console_path}/{job_name}",
        JobLogsLink.__name__: (
            f"{console}/cloudwatch/home?region={region}#logsV2:log-groups/log-group/{group}"
            f"$3FlogStreamNameFilter$3D{_twice_quoted(job_name + stream_mark)}"
        ),
    }
    if output_s3_uri and output_s3_uri.startswith("s3://"):
        bucket, _, key = output_s3_uri.removeprefix("s3://").partition("/")
        prefix = quote(key.rstrip("/") + "/")
        links[JobOutputLink.__name__] = (
            f"{console}/s3/buckets/{bucket}?region={region}&prefix={prefix}"
        )
    return links


def _twice_quoted(text: str) -> str:
    """Return the text in the encoding of the CloudWatch console's URLs: percent-quoted twice, `$` instead of `%`."""
    return quote(quote(text, safe=""), safe="").replace("%", "$")
