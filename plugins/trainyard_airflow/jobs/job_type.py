"""`JobType`: interface of the kinds of SageMaker job, each implemented in a module of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.sagemaker_api.failures import NO_CAUSE, cause_rank, names_exception
from trainyard.specs.training_job import DEFAULT_QUOTA_WAIT_S
from trainyard_airflow.hooks.redaction import masked, secret_forms, spec_secrets
from trainyard_airflow.jobs.given_spec import completed
from trainyard_airflow.jobs.job_code import job_code
from trainyard_airflow.jobs.job_place import UNLIMITED, JobPlace
from trainyard_airflow.triggers.stop_criteria import Patience

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainyard.errors import TrainingRunError
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.specs.account_defaults import Spec
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.reading import FromMapping
    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard_airflow.jobs.job_code import UploadedCode
    from trainyard_airflow.jobs.task_jobs import TaskJobs

S = TypeVar("S", bound="FromMapping")

_MOST_CHILDREN = 8


class JobType(ABC):
    """One task's jobs of one kind: their requests, cost limits and results.

    Args:
        jobs: the task's jobs.
        given: the spec that the operator was given, either as a mapping of its fields or as a spec object.

    Attributes:
        code: the job's uploaded code; None before the upload. An earlier Create call for the job may have
            uploaded it.
    """

    def __init__(self, jobs: TaskJobs, given: Any) -> None:
        self.jobs = jobs
        self.given = given
        self.code: UploadedCode | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secret values of the spec and of the connection's defaults, to mask in logs."""
        return (*spec_secrets(self.given), *spec_secrets(self.jobs.clients.job_defaults))

    def spec_given(self, spec_type: type[S]) -> S:
        """Return the given spec, or the spec that the given mapping describes.

        The mapping may omit fields; see `given_spec.completed`.

        Raises:
            SpecError: the mapping is not a valid spec; the error lists all findings.
        """
        if isinstance(self.given, spec_type):
            return self.given
        mapping = completed(self.jobs.kind, self.given, self.jobs.omitted_fields)
        return spec_type.from_mapping(mapping, where="spec")

    @abstractmethod
    def render(self, name: str, *, place: JobPlace) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Create request of the job `name`, and facts about it for the result.

        Args:
            name: the job's name.
            place: the result of `JobType.place` for this job.

        Raises:
            SpecError: the spec is invalid, violates the connection's limits or the service's model, or lacks its code.
            TrainingRunError: S3 rejected the upload of the code.
        """

    def of_account(self, spec: Spec, *, image_uri: str | None = None) -> Spec:
        """Return a job's spec with the connection's defaults.

        Args:
            spec: the job.
            image_uri: the container's image; None for an AutoML job, whose images the service chooses.

        Raises:
            SpecError: the job with its defaults violates the connection's limits.
        """
        clients = self.jobs.clients
        whole = replace(spec, **clients.job_defaults.changes_to(spec))
        clients.job_limits.check(whole, image_uri=image_uri)
        return whole

    def uploaded_code(self, spec: TrainingJobSpec | ProcessingJobSpec) -> UploadedCode | None:
        """Return the uploaded code of a job; None if the job has no code.

        If `code` is already set, return it. Otherwise upload the code that the spec names first.

        Raises:
            SpecError: the folder does not exist, or does not contain the entry point.
        """
        if self.code is None:
            self.code = job_code(self.jobs, spec)
        return self.code

    def destinations(self) -> Sequence[str]:
        """Return the S3 prefixes of the job's output; a job with other prefixes does not belong to this task."""
        return ()

    def sources(self) -> Sequence[str]:
        """Return the addresses of the job's input data."""
        return ()

    def create(self, request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Create the job of a rendered request.

        Returns the members of `facts` (facts about the job) that the creation changed; none in this
        class.
        """
        self.jobs.service.create(request)
        return {}

    def place(
        self,
        earlier: Sequence[JobSnapshot],  # noqa: ARG002
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> JobPlace:
        """Return the capacity and the limits of the task's next job. The base class returns no limits.

        Args:
            earlier: the task's earlier jobs, all ended, oldest first.
            full_rungs: indexes of the entries of `capacity_ladder` whose quota is used up.

        Raises:
            BudgetExceededError: the task may not pay for another job.
        """
        return UNLIMITED

    def place_of(
        self,
        job: JobSnapshot,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],  # noqa: ARG002
    ) -> JobPlace:
        """Return the capacity and the limits of an already submitted job."""
        return UNLIMITED

    def patience(self, facts: Mapping[str, Any]) -> Patience:  # noqa: ARG002
        """Return the limits after which the job is stopped, such as a time without progress; none in this class."""
        return Patience()

    @property
    def max_quota_wait_s(self) -> int:
        """Seconds to wait for quota, unless `capacity_ladder` sets a limit; 0 = for ever."""
        return DEFAULT_QUOTA_WAIT_S

    def hands_on(self, snapshot: JobSnapshot) -> bool:  # noqa: ARG002
        """Return whether a stopped job's result so far is the task's result; False in this class."""
        return False

    def completed(self, snapshot: JobSnapshot, result: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the task's result for a completed job; `result` has the job's facts as JSON-safe data."""
        return result

    def known_error(
        self,
        snapshot: JobSnapshot,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],  # noqa: ARG002
    ) -> TrainingRunError | None:
        """Return the error of a job that did not complete, or None if its snapshot does not determine the error."""
        return None

    def judged(
        self,
        snapshot: JobSnapshot,  # noqa: ARG002
        error: TrainingRunError,
    ) -> TrainingRunError:
        """Return the error of an ended job: `error`, or a more specific error for this kind of job.

        For example, if a training job wrote checkpoints and was then ended by its time limit, the result is a
        `ResumableTimeLimitError`. This class returns `error`.
        """
        return error

    def billed(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Return an ended job with its billed seconds."""
        return snapshot

    def telling_log(self, name: str) -> Sequence[str]:
        """Return the log lines with the reason of a job's failure: the end of its own log."""
        return self._own_log(name)

    def _own_log(self, name: str) -> Sequence[str]:
        """Return the last log lines of the host whose log best explains the failure of a job.

        If no log contains an explanation, the lines are those of the host that logged last. The result is empty
        if the job has no log lines, or if they could not be read.
        """
        from trainyard_airflow.hooks.job_logs import last_lines

        logs = self.jobs.clients.client("logs")
        ends = last_lines(logs, group=self.jobs.api.log_group, job_name=name)
        if not ends:
            return ()
        telling = min(ends, key=lambda each: cause_rank(each.lines))
        if cause_rank(telling.lines) == NO_CAUSE:
            telling = ends[-1]
        secrets = secret_forms(self.secrets)
        return [masked(line, secrets) for line in telling.lines]

    def _log_of_children(self, failed: Iterable[tuple[str, str | None]]) -> Sequence[str]:
        """Return the last log lines of one of the failed jobs, followed by the failure reason of that job.

        It is the first job whose lines or reason contain an exception. If there is none, it is the first job with
        any lines or a reason. At most `_MOST_CHILDREN` jobs are read.

        Args:
            failed: name and failure reason of each failed job that a search or an AutoML job started.
        """
        logs = (
            [*self._own_log(name), *([reason] if reason else [])]
            for name, reason in islice(failed, _MOST_CHILDREN)
        )
        first: Sequence[str] = ()
        for lines in logs:
            if names_exception(lines):
                return lines
            first = first or lines
        return first
