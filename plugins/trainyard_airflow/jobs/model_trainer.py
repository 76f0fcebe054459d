"""Conversion of a trainer of the SageMaker SDK v3 to a `TrainingJobSpec`, inside the task.

The SDK creates the request, which therefore contains all settings of a trainer. The request is read back into a spec,
and the job then has attempts, linter, budget and ledger like all other jobs. Importing the SDK takes seconds, and
creating a trainer calls IAM. Therefore a DAG file passes a function that returns the trainer.
"""

from __future__ import annotations

import inspect
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.training_request_reading import training_job_fields
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.jobs.trainer_request import is_trainer, launch_of, trainer_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainyard_airflow.hooks.aws_clients import AwsClients

SESSION_ARGUMENT = "sagemaker_session"
_MERGED = ("inputs", "environment", "hyperparameters", "tags")
_LADDER_REPLACES = ("instance_type", "use_spot_instances")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFunction:
    """Source of a training job's spec: a function and additional fields.

    Attributes:
        make: the function, which returns a trainer of SDK v3.
        fields: fields of `TrainingJobSpec` with their values, mostly fields that a trainer lacks.
    """

    make: Callable[..., Any]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def serialize(self) -> dict[str, Any]:
        """Return the serialized value that Airflow displays and stores.

        It is the same at each parse of the DAG file.
        """
        name = f"{self.make.__module__}.{self.make.__qualname__}"
        return {"model_trainer": name, **self.fields}

    def trainer(self, clients: AwsClients, context: Mapping[str, Any]) -> Any:
        """Call the function, and return the trainer that it creates.

        The function's parameters select its arguments: the SDK session, and members of Airflow's
        context.

        Raises:
            SpecError: the function did not return a trainer.
        """
        from trainyard_airflow.hooks.trainer_session import trainer_session

        session = trainer_session(clients)
        offered = {**context, SESSION_ARGUMENT: session}
        with _region_set(clients.region):
            trainer = self.make(**_asked_for(self.make, offered))
        if not is_trainer(trainer):
            finding = Finding(
                where=f"spec: {self.make.__name__}()",
                what="returned no trainer of the SDK",
                got=type(trainer).__name__,
                allowed="sagemaker.train.ModelTrainer, SFTTrainer, DPOTrainer, RLVRTrainer or RLAIFTrainer",
            )
            raise SpecError(finding)
        trainer.sagemaker_session = session
        return trainer


@contextmanager
def _region_set(region: str) -> Iterator[None]:
    """Set the default region during the block, because some of the SDK's modules create clients when imported."""
    name = "AWS_DEFAULT_REGION"
    given = os.environ.get(name)
    os.environ[name] = region
    try:
        yield
    finally:
        os.environ.pop(name)
        if given is not None:
            os.environ[name] = given


def from_model_trainer(make: Callable[..., Any], /, **fields: Any) -> TrainerFunction:
    """Return a value for `TrainingJobOperator(spec=...)`: the job that a trainer of SDK v3 describes.

    Args:
        make: function that returns the trainer; it is called inside the task. The names of its parameters
            select its arguments: `sagemaker_session` (the connection's session), and members of Airflow's
            context (`params`, `ti`, ...).
        fields: fields of `TrainingJobSpec`, mostly those that a trainer lacks, such as `budget_usd`,
            `capacity_ladder`, `heartbeat_timeout_s`, `rules` or `debugger_hook_config`. `inputs`,
            `environment`, `hyperparameters` and `tags` are merged with the trainer's; other fields replace
            the trainer's.
    """
    return TrainerFunction(make=make, fields=fields)


def checked_spec(spec: Any) -> Any:
    """Return an operator's `spec`.

    If it is a function with a parameter for the SDK's session, it is returned as a `TrainerFunction`.

    Raises:
        SpecError: the spec is a trainer. It was therefore created while the DAG file was parsed.
    """
    if is_trainer(spec):
        finding = Finding(
            where="spec",
            what=f"is a {type(spec).__name__}, created when the DAG file is parsed: each parse takes seconds and calls "
            "AWS",
            next_step=f"write a function with the parameter {SESSION_ARGUMENT} that returns the trainer, and pass the "
            "function",
        )
        raise SpecError(finding, subject="TrainingJobOperator")
    asks = callable(spec) and SESSION_ARGUMENT in inspect.signature(spec).parameters
    return from_model_trainer(spec) if asks else spec


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerJob:
    """Job that a trainer describes.

    Attributes:
        distribution: the value of a spec's `distribution` that starts the ranks as the SDK's driver does.
    """

    spec: TrainingJobSpec
    distribution: Mapping[str, Any]


def trainer_job(
    function: TrainerFunction, *, clients: AwsClients, context: Mapping[str, Any], run_uri: str
) -> TrainerJob:
    """Return the job that a trainer describes, and upload its code and the SDK's drivers.

    Args:
        function: returns the trainer.
        clients: clients of the connection.
        context: Airflow's context.
        run_uri: S3 prefix for the checkpoints or the output, if the trainer sets none; see `trainer_request`.

    Raises:
        SpecError: the trainer has settings that are not possible for a task's training job, or settings that
            the SDK would break.
    """
    trainer = function.trainer(clients, context)
    launch = launch_of(trainer)
    fields = training_job_fields(trainer_request(trainer, run_uri=run_uri))
    spec = TrainingJobSpec.from_mapping(_with_fields(fields, function.fields), where="spec")
    return TrainerJob(spec=spec, distribution=launch)


def launched_by(spec: TrainingJobSpec, distribution: Mapping[str, Any]) -> TrainingJobSpec:
    """Return the spec with `distribution`, from which the linter learns how the SDK's driver starts the ranks.

    The spec is returned unchanged if `distribution` is empty, or if the spec would be invalid with it. It would
    be invalid, for example, with several instance groups that all get ranks, or with a channel `code` together
    with network isolation.
    """
    if not distribution:
        return spec
    own = {name: each for name, each in spec.hyperparameters.items() if name != "mp_parameters"}
    try:
        return replace(
            spec,
            distribution=distribution,
            hyperparameters=own,
            entry_point="script.py",
            container_entry_point=(),
            container_arguments=(),
        )
    except SpecError:
        return spec


def _with_fields(fields: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trainer's fields merged with `added`, the fields that the author of the DAG sets.

    `added` takes precedence. Fields that are merged as mappings, such as `environment`, keep the trainer's
    other members.
    """
    merged = {name: {**fields.get(name, {}), **added[name]} for name in _MERGED if name in added}
    left_out = _LADDER_REPLACES if added.get("capacity_ladder") else ()
    kept = {name: value for name, value in fields.items() if name not in left_out}
    return {**kept, **added, **merged}


def _asked_for(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of `offered` that the function has parameters for; all members if it has `**context`."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return dict(offered)
    return {each.name: offered[each.name] for each in parameters if each.name in offered}
