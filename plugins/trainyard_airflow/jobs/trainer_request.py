"""Request of a trainer of SDK v3, created by the SDK; settings that the SDK would break are corrected or rejected."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api import mpi_all_hosts_driver
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BEFORE_CREATION = "before-parameter-build.sagemaker.CreateTrainingJob"


class _CreationCaughtError(BaseException):
    """Ends a fine-tuning trainer's `train()` before it creates a job.

    It is not an `Exception`, because the SDK catches every `Exception`.
    """


def is_model_trainer(value: object) -> bool:
    """Return whether a value is the SDK's ModelTrainer, without importing the SDK."""
    return _is_of_sdk(value, "ModelTrainer")


def is_trainer(value: object) -> bool:
    """Return whether a value is a trainer of the SDK: a ModelTrainer, or one that fine-tunes a model of the hub."""
    return is_model_trainer(value) or _is_of_sdk(value, "BaseTrainer")


def _is_of_sdk(value: object, name: str) -> bool:
    return any(
        each.__name__ == name and each.__module__.startswith("sagemaker.")
        for each in type(value).__mro__
    )


def trainer_request(trainer: Any, *, run_uri: str) -> dict[str, Any]:
    """Return the request that `trainer.train()` sends, without a job name.

    The trainer's `sagemaker_session` uploads the code and the drivers.

    Args:
        trainer: a ModelTrainer, or a trainer that fine-tunes a model of the hub (`SFTTrainer`, `DPOTrainer`,
            ...).
        run_uri: S3 prefix to use if the trainer sets no address. It is used for the checkpoints of a
            ModelTrainer, and for the output of a trainer that fine-tunes.

    Raises:
        SpecError: the trainer does not describe a training job, or the SDK would break the job.
    """
    if not is_model_trainer(trainer):
        if not getattr(trainer, "s3_output_path", None):
            # The SDK's default is the bucket `sagemaker-<region>-<account>`, which it creates.
            trainer.s3_output_path = f"{run_uri}/output"
        return _without_name(_fine_tuning_request(trainer))
    findings = list(_findings(trainer))
    if findings:
        raise SpecError(findings, subject="ModelTrainer")
    if trainer.checkpoint_config and not trainer.checkpoint_config.s3_uri:
        # The SDK's default address contains the time, so that the next attempt would find no checkpoint.
        place = f"{run_uri}/{trainer.base_job_name}/checkpoints"
        trainer.checkpoint_config = trainer.checkpoint_config.model_copy(update={"s3_uri": place})
    with _mpi_on_all_hosts(trainer), _drivers_removed(trainer):
        # Private, of a pinned SDK: the way the SDK's own queue for AWS Batch takes a trainer's request.
        request: dict[str, Any] = trainer._create_training_job_args(boto3=True)  # noqa: SLF001
    foreign = [each for name, value in request.items() for each in _foreign(value, name)]
    if foreign:
        raise SpecError(foreign, subject="ModelTrainer")
    return _without_name(request)


def _without_name(request: Mapping[str, Any]) -> dict[str, Any]:
    name_key = JOB_APIS[JobKind.TRAINING].name_key
    return {name: value for name, value in request.items() if name != name_key}


def _fine_tuning_request(trainer: Any) -> dict[str, Any]:
    """Return the request with which `train()` would create its job; the Create call is intercepted, not sent.

    Raises:
        SpecError: the trainer does not create a training job.
    """
    kind = type(trainer).__name__
    if type(getattr(trainer, "compute", None)).__name__ == "HyperPodCompute":
        finding = Finding(
            where="compute",
            what="trains on a HyperPod cluster and does not create a training job",
            got="HyperPodCompute",
            allowed="TrainingJobCompute, or none for a serverless job",
        )
        raise SpecError(finding, subject=kind)
    caught: list[dict[str, Any]] = []

    def catch(params: dict[str, Any], **_: Any) -> None:
        caught.append(params)
        raise _CreationCaughtError

    events = trainer.sagemaker_session.boto_session.client("sagemaker").meta.events
    events.register_first(_BEFORE_CREATION, catch)
    try:
        with suppress(_CreationCaughtError):
            trainer.train(wait=False)
    finally:
        events.unregister(_BEFORE_CREATION, catch)
    if not caught:
        finding = Finding(where="train()", what="does not create a training job", got=kind)
        raise SpecError(finding, subject=kind)
    return caught[0]


def launch_of(trainer: Any) -> dict[str, Any]:
    """Return the value of a spec's `distribution` that starts the ranks as the trainer's driver does.

    The result is empty if the trainer has no driver. It is also empty if the trainer has a user's own
    `DistributedConfig`, because it is not known how that starts the ranks.
    """
    distributed = getattr(trainer, "distributed", None)
    if distributed is None:
        return {}
    settings: dict[str, Any] = {"enabled": True}
    if distributed.__class__.__name__ not in {"Torchrun", "MPI"}:
        return {}
    if distributed.process_count_per_node:
        settings["processes_per_host"] = distributed.process_count_per_node
    if distributed.__class__.__name__ == "MPI":
        options = " ".join(distributed.mpi_additional_options or ())
        return {"mpi": {**settings, "custom_mpi_options": options}}
    smp = distributed.smp
    if smp is None:
        return {"torch_distributed": settings}
    parameters = smp.model_dump(exclude_none=True)
    parallel = {"modelparallel": {"enabled": True, "parameters": parameters}}
    return {"torch_distributed": settings, "smdistributed": parallel}


def _findings(trainer: Any) -> Iterator[Finding]:
    if trainer.training_mode.value != "SAGEMAKER_TRAINING_JOB":
        yield Finding(
            where="training_mode",
            what="runs Docker on the worker and does not create a training job",
            got=trainer.training_mode.value,
            next_step="remove the setting; without an AWS account, use the connection of Trainyard's local engine",
        )
    if trainer.source_code is None:
        return
    for name, value in (trainer.hyperparameters or {}).items():
        if "'" in str(value):
            yield Finding(
                where=f"hyperparameters.{name}",
                what="contains a single quote, which breaks the SDK's container script",
                got=repr(value)[:80],
                next_step="remove the quote, or put the value into a file in a channel",
                source="sagemaker-train 1.27.0, container_drivers/scripts/environment.py: export NAME='value'",
            )


@contextmanager
def _drivers_removed(trainer: Any) -> Iterator[None]:
    """Remove the SDK's temporary copy of its container scripts (drivers) at the end of the `with` block.

    They are uploaded within the block. The SDK's own `ModelTrainer.train()` removes the copy in the same way.
    """
    try:
        yield
    finally:
        if trainer._temp_code_dir is not None:  # noqa: SLF001  # see above
            trainer._temp_code_dir.cleanup()  # noqa: SLF001


@contextmanager
def _mpi_on_all_hosts(trainer: Any) -> Iterator[None]:
    """In the block, replace the SDK's MPI driver with `mpi_all_hosts_driver` if the trainer uses several hosts.

    A user's own driver is not replaced.
    """
    from sagemaker.train.distributed import MPI  # type: ignore[import-untyped]  # ships no types

    if type(trainer.distributed) is not MPI or not _has_several_hosts(trainer.compute):
        yield
        return
    given, driver = trainer.distributed, Path(mpi_all_hosts_driver.__file__)
    with tempfile.TemporaryDirectory(prefix="trainyard-drivers-") as folder:
        shutil.copy(driver, folder)
        trainer.distributed = _own_driver(MPI, folder=folder, script=driver.name)(
            **given.model_dump()
        )
        try:
            yield
        finally:
            trainer.distributed = given


def _own_driver(mpi: Any, *, folder: str, script: str) -> Any:
    """Return a subclass of the SDK's MPI class that uses another driver script."""

    class MPI(mpi):  # type: ignore[misc]  # the SDK's class, which is known inside the task only
        @property
        def driver_dir(self) -> str:
            return folder

        @property
        def driver_script(self) -> str:
            return script

    return MPI


def _has_several_hosts(compute: Any) -> bool:
    return bool(compute.instance_groups or compute.instance_preferences) or (
        (compute.instance_count or 1) > 1
    )


def _foreign(value: object, where: str) -> Iterator[Finding]:
    """Yield a finding for each value that is not JSON, such as a variable of a SageMaker pipeline."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _foreign(each, f"{where}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _foreign(each, f"{where}[{index}]")
    elif not isinstance(value, (str, int, float, bool, type(None))):
        yield _not_json(value, where)


def _not_json(value: object, where: str) -> Finding:
    from sagemaker.core.helper.pipeline_variable import PipelineVariable  # type: ignore[import-untyped]  # ships no types

    next_step = "convert it, for example with str()"
    if isinstance(value, PipelineVariable):
        next_step = (
            "pipeline variables exist in SageMaker Pipelines only: take the value from Airflow's "
            "params or an earlier task's XCom"
        )
    return Finding(
        where=where,
        what="cannot be sent as JSON",
        got=type(value).__name__,
        allowed="text, a number, true or false, null, a list or a mapping",
        next_step=next_step,
    )
