"""`JobTask`: what ties an Airflow task to its SageMaker job: connection, name, links, memory."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from trainyard.errors import TrainingRunError
from trainyard.runs.ledger import PaidKind
from trainyard.runs.notifier import Notifier
from trainyard.runs.run_tags import Owner
from trainyard.sagemaker_api.names import job_name
from trainyard_airflow.hooks.redaction import spec_secrets
from trainyard_airflow.links import JOB_LINKS, LINKS_XCOM_KEY, job_links
from trainyard_airflow.operators.task_memory import TaskMemory
from trainyard_airflow.retry_policy import TrainingRetryPolicy
from trainyard_airflow.triggers.watch import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import jinja2
    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.hooks.job_kinds import JobApi
    from trainyard_airflow.hooks.jobs import SageMakerJobs
    from trainyard_airflow.hooks.ledger import RunLedger
    from trainyard_airflow.triggers.follow import Followed

JOB_XCOM_KEY = "job_name"


class JobTask(BaseOperator):
    """A task with one SageMaker job at a time. Its arguments are described at `SageMakerJobOperator`."""

    template_fields: Sequence[str] = (
        "spec",
        "aws_conn_id",
        "region_name",
        "ledger_uri",
        "notifier",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"spec": "json"}
    operator_extra_links = JOB_LINKS
    job_kind: ClassVar[str]

    def __init__(
        self,
        *,
        spec: Any,
        deferrable: bool = True,
        poll_interval_s: float = 15.0,
        stream_logs: bool = True,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        verify: bool | str | None = None,
        botocore_config: Mapping[str, Any] | None = None,
        ledger_uri: str | None = None,
        notifier: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retry_policy", TrainingRetryPolicy())
        super().__init__(**kwargs)
        self.spec = spec
        self.deferrable = deferrable
        self.poll_interval_s = poll_interval_s
        self.stream_logs = stream_logs
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.verify = verify
        self.botocore_config = botocore_config
        self.ledger_uri = ledger_uri
        self.notifier = notifier
        self.links: dict[str, str] = {}

    def render_template_fields(
        self, context: Context, jinja_env: jinja2.Environment | None = None
    ) -> None:
        """Render the templates, or call the function, and keep the spec's secrets out of every log and page."""
        super().render_template_fields(context, jinja_env)
        self.mask_secrets(self.spec)

    def mask_secrets(self, spec: object) -> None:
        """Keep the secrets of a spec out of every log and page."""
        from airflow.sdk.log import mask_secret

        for secret in spec_secrets(spec):
            mask_secret(secret)

    @cached_property
    def clients(self) -> AwsClients:
        """The connection's clients."""
        from trainyard_airflow.hooks.aws_clients import AwsClients

        return AwsClients(self.followed("").connection)

    @cached_property
    def jobs(self) -> SageMakerJobs:
        """The service's jobs of this kind."""
        from trainyard_airflow.hooks.job_kinds import JobKind
        from trainyard_airflow.hooks.jobs import SageMakerJobs

        return SageMakerJobs(self.clients, JobKind(self.job_kind))

    @property
    def api(self) -> JobApi:
        """The service's names for this kind of job."""
        from trainyard_airflow.hooks.job_kinds import JOB_APIS, JobKind

        return JOB_APIS[JobKind(self.job_kind)]

    def name_of(self, context: Context, attempt: int) -> str:
        """Return the name of the task's job number `attempt`."""
        ti = context["ti"]
        return job_name(
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
            attempt=attempt,
            longest=self.api.longest_name,
            deployment=self.clients.deployment,
        )

    def followed(self, name: str, *, patience: Patience | None = None) -> Followed:
        """Return how the job is followed, in the triggerer as in the worker.

        Args:
            name: the job's name.
            patience: how long it may be silent or wait; for ever when absent.
        """
        from trainyard_airflow.hooks.aws_clients import ConnectionArguments
        from trainyard_airflow.hooks.job_kinds import JobKind
        from trainyard_airflow.triggers.follow import Followed

        return Followed(
            kind=JobKind(self.job_kind),
            job_name=name,
            poll_interval_s=self.poll_interval_s,
            stream_logs=self.stream_logs,
            patience=patience or Patience(),
            notifier=Notifier.from_dict(self.notifier),
            has_secrets=any(True for _ in spec_secrets(self.spec)),
            connection=ConnectionArguments(
                aws_conn_id=self.aws_conn_id,
                region_name=self.region_name,
                verify=self.verify,
                botocore_config=self.botocore_config,
            ),
        )

    def tags(self, context: Context) -> dict[str, str]:
        """Return the tags that lead from a job back to this task."""
        ti = context["ti"]
        owner = Owner(
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            deployment=self.clients.deployment,
        )
        return owner.tags()

    def note_intent(self, context: Context, name: str) -> None:
        """Note in the run's ledger that the job is about to be created.

        Raises:
            TrainingRunError: S3 refuses: then the job must not be created.
        """
        if ledger := self._ledger(context):
            ledger.intend(PaidKind(self.job_kind), name, task_id=context["ti"].task_id)

    def note_refusal(self, context: Context, name: str) -> None:
        """Note in the run's ledger that the service refused to create the job."""
        if ledger := self._ledger(context):
            with self._bearing_ledger_faults():
                ledger.withdraw(PaidKind(self.job_kind), name, task_id=context["ti"].task_id)

    def note_end(self, context: Context, snapshot: JobSnapshot) -> None:
        """Note in the run's ledger how the job ended and what it cost."""
        if ledger := self._ledger(context):
            kind, told = PaidKind(self.job_kind), snapshot.to_dict()
            with self._bearing_ledger_faults():
                ledger.settle(kind, snapshot.name, told, task_id=context["ti"].task_id)

    def _ledger(self, context: Context) -> RunLedger | None:
        """Return the run's ledger; None where neither the task nor the connection says where runs are kept."""
        from trainyard_airflow.hooks.ledger import RunLedger, ledger_uri

        ti, bucket = context["ti"], self.clients.defaults.get("bucket")
        if self.ledger_uri:
            return RunLedger(self.clients, uri=self.ledger_uri)
        if not bucket:
            return None
        uri = ledger_uri(root=self.clients.root, dag_id=ti.dag_id, run_id=ti.run_id)
        return RunLedger(self.clients, uri=uri)

    @contextmanager
    def _bearing_ledger_faults(self) -> Iterator[None]:
        """Go on where the ledger cannot be written: whoever reads it asks the service about what is not settled."""
        from botocore.exceptions import BotoCoreError

        try:
            yield
        except (TrainingRunError, BotoCoreError) as error:
            self.log.warning("The run's ledger was not brought up to date: %s", error)

    def announce(
        self, context: Context, name: str, facts: Mapping[str, Any], *, output: str | None = None
    ) -> None:
        """Tell Airflow which job this task has: XComs, links, task state.

        Args:
            context: the task's.
            name: the job's name.
            facts: what is known since it was submitted, remembered for later tries.
            output: S3 prefix the job writes to, once it is known.
        """
        # The name first: an interruption meanwhile leaves a task that names its job.
        context["ti"].xcom_push(key=JOB_XCOM_KEY, value=name)
        TaskMemory(context).note_job(name, facts)
        self.links = job_links(
            job_name=name,
            console_path=self.api.console_path,
            log_group=self.api.log_group,
            output_s3_uri=output,
            region=self.clients.region,
            partition=self.clients.partition,
            stream_mark=self.api.stream_mark,
        )
        context["ti"].xcom_push(key=LINKS_XCOM_KEY, value=self.links)
