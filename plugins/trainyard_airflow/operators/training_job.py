"""`TrainingJobOperator`: one SageMaker training job, written in the SDK estimator's vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.cost.attempt_budget import check_budget
from trainyard.errors import ResumableTimeLimitError, TimeLimitError, TrainingRunError
from trainyard.planning.linter.linter import lint
from trainyard.planning.pool_slots import PoolDemand
from trainyard.sagemaker_api.names import run_slug
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.operators.debugged_job import create_debugged, debugged
from trainyard_airflow.operators.job import SageMakerJobOperator
from trainyard_airflow.operators.job_code import job_image, training_code
from trainyard_airflow.operators.ladder import place_next, place_of, rungs_of, spec_on_rung
from trainyard_airflow.operators.model_trainer import (
    TrainerFunction,
    checked_spec,
    from_model_trainer,
    is_model_trainer,
    launched_by,
    trainer_job,
)
from trainyard_airflow.triggers.watch import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot


class TrainingJobOperator(SageMakerJobOperator):
    """Trains on SageMaker; see `SageMakerJobOperator` for what a retry, a clear and a kill do.

    A spec given as a mapping may leave out `role` and `output_path`: the connection's execution
    role and `<root>/runs/<dag>/<run>/output` take their places, with the root of `AwsClients.root`.

    What AWS would refuse, ignore or do badly about the job is in the task's log before the job is created. Here it
    stops nothing; `preflight` refuses a run for it.

    A new attempt gets the same `checkpoint_s3_uri`, so a script that saves checkpoints goes on
    where it was.

    The spec may also be a function `(sagemaker_session)` that returns an SDK v3 `ModelTrainer`, or
    `from_model_trainer(function, budget_usd=...)`, which adds what a trainer cannot say (docs/clients.md).

    Raises:
        SpecError: `spec` is a ModelTrainer that was made while the DAG file was read.
    """

    job_kind: ClassVar[str] = "training"
    custom_operator_name: ClassVar[str] = PoolDemand.TRAINING.value
    ui_color = "#e6f0fa"

    def __init__(self, *, spec: Any, **kwargs: Any) -> None:
        super().__init__(spec=checked_spec(spec), **kwargs)
        self._trainer_launch: Mapping[str, Any] = {}

    def render(
        self, context: Context, *, name: str, place: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateTrainingJob request, with the code uploaded, and the facts `code` and `image_uri`."""
        spec = self._spec(context)
        if spec.capacity_ladder:
            spec = spec_on_rung(spec, rungs_of(spec)[place["rung"]])
        for finding in lint(launched_by(spec, self._trainer_launch)):
            self.log.warning("%s: %s", finding.severity.value, finding)
        clients = self.clients
        image = job_image(spec, region=clients.region)
        spec, judge = debugged(spec, region=clients.region, image_uri=image)
        code = training_code(clients, spec)
        request = render_training_job(
            spec,
            name=name,
            region=clients.region,
            code_s3_uri=code.s3_uri if code else None,
            image_uri=image,
            tags=self.tags(context),
            account=None if spec.role.startswith("arn:") else clients.account,
            kms_key_id=clients.kms_key_id,
        )
        return request, {"code": code.to_dict() if code else None, "image_uri": image, **judge}

    def create(self, request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Create the job; without the service's rules where `debugger: service` is refused."""
        return create_debugged(self.jobs, request, facts)

    def destinations(self, context: Context) -> Sequence[str]:
        """Return the job's output path."""
        return (self._spec(context).output_path,)

    def place(
        self, context: Context, earlier: Sequence[JobSnapshot], *, full_rungs: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Return the rung of the attempt after `earlier`; nothing where the cluster is no single instance type.

        Raises:
            BudgetExceededError: what was paid and what the attempt could cost is more than the spec's budget, or than
                every rung's own.
        """
        spec = self._spec(context)
        rungs = rungs_of(spec)
        if not rungs:
            return {}
        placement = place_next(rungs, earlier, max_run_s=spec.max_run, full_rungs=full_rungs)
        if spec.budget_usd is not None:
            check_budget(
                [each.to_dict() for each in earlier],
                rung=placement.rung,
                max_run_s=spec.max_run,
                budget_usd=spec.budget_usd,
            )
        return placement.facts()

    def place_of(
        self, context: Context, job: JobSnapshot, earlier: Sequence[JobSnapshot]
    ) -> dict[str, Any]:
        """Return the rung that a job stands on, by what it runs on."""
        placement = place_of(rungs_of(self._spec(context)), job, earlier)
        return placement.facts() if placement else {}

    def patience(self, context: Context, facts: Mapping[str, Any]) -> Patience:
        """Return how long the training may be silent, and wait for the instances of its rung."""
        return Patience(
            heartbeat_timeout_s=self._spec(context).heartbeat_timeout_s,
            max_wait_s=facts.get("rung_max_wait_s"),
        )

    def max_quota_wait_s(self, context: Context) -> int:
        """Return what the spec says."""
        return self._spec(context).max_quota_wait_s

    def judged(self, snapshot: JobSnapshot, error: TrainingRunError) -> TrainingRunError:
        """Tell a job that max_run ended after it wrote checkpoints from one that would end there again."""
        from trainyard_airflow.hooks.objects import newest_object_at

        uri, began_at = snapshot.checkpoint_s3_uri, snapshot.started_at
        if type(error) is not TimeLimitError or uri is None or began_at is None:
            return error
        newest_at = newest_object_at(self.clients.client("s3"), uri)
        if newest_at is None or newest_at < int(began_at):  # S3 tells whole seconds
            return error
        resumable = ResumableTimeLimitError(error.what, job_name=snapshot.name)
        resumable.__dict__.update(error.__dict__)
        return resumable

    def _spec(self, context: Context) -> TrainingJobSpec:
        if is_model_trainer(self.spec):  # what a function (context, jinja_env) returned
            made = self.spec
            self.spec = from_model_trainer(lambda: made)
        if isinstance(self.spec, TrainerFunction):
            self.spec = self._trainer_spec(context, self.spec)
        given = self.spec
        if isinstance(given, TrainingJobSpec):
            return given
        mapping = dict(given)
        mapping["role"] = self.clients.execution_role(mapping.get("role"))
        if not mapping.get("output_path"):
            mapping["output_path"] = f"{self._run_uri(context)}/output"
        return TrainingJobSpec.from_mapping(mapping, where="spec")

    def _failed(
        self,
        context: Context,
        snapshot: JobSnapshot,
        result: dict[str, Any],
        earlier: Sequence[JobSnapshot],
    ) -> dict[str, Any]:
        # A trainer's secrets are known, and kept out of the error, once it is made.
        self._spec(context)
        return super()._failed(context, snapshot, result, earlier)

    def _trainer_spec(self, context: Context, function: TrainerFunction) -> TrainingJobSpec:
        """Return the spec of the trainer, made once in a process; its secrets are kept out of every log."""
        ti = context["ti"]
        place = ti.task_id if ti.map_index in {None, -1} else f"{ti.task_id}/{ti.map_index}"
        job = trainer_job(
            function,
            clients=self.clients,
            context=context,
            run_uri=f"{self._run_uri(context)}/{place}",
        )
        self._trainer_launch = job.distribution
        self.mask_secrets(job.spec)
        return job.spec

    def _run_uri(self, context: Context) -> str:
        run = f"{context['ti'].dag_id}/{run_slug(context['ti'].run_id)}"
        return f"{self.clients.root}/runs/{run}"
