"""A job that asks for a launcher the engine lacks fails and says so; none is quietly run as something else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.images import resolve_image
from sagemaker_engine.jobs.instances import Ground
from sagemaker_engine.jobs.launchers import (
    LAUNCHERS,
    TORCHRUN,
    may_start_mpirun,
    missing_ground,
    missing_launcher,
)
from tests.sagemaker_engine.jobs.conftest import IMAGE, JobBench

if TYPE_CHECKING:
    from pathlib import Path

LACKING = [flag for flag, each in LAUNCHERS.items() if not each.programs]


@pytest.fixture
def bare_image(tmp_path: Path):
    """Return a stand-in whose environment is empty."""
    return replace(resolve_image(IMAGE), bin_folder=tmp_path / "bin", prefix=tmp_path)


def install(runtime, program: str) -> None:
    path = runtime.bin_folder / program
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o755)


@pytest.mark.engine
def test_a_job_with_a_parameter_server_fails_before_it_has_instances(bench: JobBench) -> None:
    parameters = bench.put_source({"train.py": "print('alone')"})
    parameters["sagemaker_parameter_server_enabled"] = "true"

    row = bench.run("server", instances=2, HyperParameters=parameters)

    assert row.status == "Failed"
    assert row.state["FailureReason"].startswith(
        "ClientError: hyperparameter sagemaker_parameter_server_enabled requests TensorFlow's "
        "parameter server, which this engine does not have. It starts torchrun"
    )
    assert bench.log("server") == []


@pytest.mark.parametrize("flag", LACKING)
@pytest.mark.parametrize("value", ["true", "True", "1"])
def test_what_no_stand_in_has_is_told_by_name(flag: str, value: str, bare_image) -> None:
    said = missing_launcher({flag: value}, bare_image)

    assert said
    assert f"{flag} requests {LAUNCHERS[flag].name}" in said


@pytest.mark.parametrize("flag", [flag for flag in LAUNCHERS if flag not in LACKING])
def test_a_launcher_is_there_when_its_programs_are(flag: str, bare_image) -> None:
    assert missing_launcher({flag: "true"}, bare_image, system_places="")

    for program in LAUNCHERS[flag].programs:
        install(bare_image, program)

    assert missing_launcher({flag: "true"}, bare_image, system_places="") is None


@pytest.mark.parametrize("value", ["false", "", "0", "null", "no"])
def test_a_flag_that_is_off_asks_for_nothing(value: str, bare_image) -> None:
    assert missing_launcher(dict.fromkeys(LAUNCHERS, value), bare_image) is None


def test_torchrun_goes_before_smddp_as_the_toolkit_has_it(bare_image) -> None:
    install(bare_image, "torchrun")
    both = {TORCHRUN: "true", "sagemaker_distributed_dataparallel_enabled": "true"}

    assert missing_launcher(both, bare_image) is None


@pytest.mark.parametrize(
    ("package", "is_missing"),
    [(None, True), ("torch/sagemaker", False), ("smdistributed/modelparallel", False)],
)
def test_model_parallel_needs_its_library(package: str | None, is_missing, bare_image) -> None:
    install(bare_image, "torchrun")
    if package:
        (bare_image.prefix / "lib/python3.11/site-packages" / package).mkdir(parents=True)

    said = missing_launcher({TORCHRUN: "true", "mp_parameters": '{"ddp": true}'}, bare_image)

    assert bool(said) is is_missing
    assert not said or "mp_parameters requests SageMaker's model parallel library" in said


def test_no_parameters_of_model_parallel_ask_for_nothing(bare_image) -> None:
    assert missing_launcher({"mp_parameters": "{}"}, bare_image) is None


@pytest.mark.parametrize(
    ("command", "channels", "may"),
    [
        (["/bin/bash", "-c", "sm_train.sh"], ["code", "sm_drivers"], True),
        (["mpirun", "-np", "2", "python", "train.py"], [], True),
        (["/bin/sh", "-c", "python train.py"], ["train"], False),
        ([], ["sm_drivers"], False),
    ],
    ids=["the SDK v3's drivers", "by name", "another", "no entry point"],
)
def test_an_entry_point_of_its_own_may_start_mpirun(
    command: list[str], channels: list[str], may: bool
) -> None:
    request = {
        "AlgorithmSpecification": {
            "ContainerEntrypoint": command[:1],
            "ContainerArguments": command[1:],
        },
        "InputDataConfig": [{"ChannelName": each} for each in channels],
    }

    assert may_start_mpirun(request) is may


@pytest.mark.parametrize(
    ("features", "is_missing"),
    [
        (("user", "mount", "pid", "net", "overlay"), False),
        (("mount", "pid", "overlay"), True),
        (("mount", "pid", "net"), True),
        ((), True),
    ],
)
def test_mpirun_needs_instances_with_a_network_and_files_of_their_own(
    features: tuple[str, ...], is_missing: bool
) -> None:
    ground = Ground(features=features, is_isolated=False)

    said = missing_ground({"sagemaker_mpi_enabled": "true"}, ground)

    assert bool(said) is is_missing
    assert not said or "allow user namespaces" in said
    assert missing_ground({TORCHRUN: "true"}, ground) is None
