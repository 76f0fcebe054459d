"""The SDK's dicts are read word for word, and the wrong ones that circulate are put right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.specs.distribution import STRATEGIES, Distribution, read_distribution
from trainyard.specs.strategies.mpi import Mpi
from trainyard.specs.strategies.sections import NO_SECTIONS, WRONG_NAMES
from trainyard.specs.strategies.smddp import PytorchDdp, SmDataParallel, SmDataParallelUnderTorchrun
from trainyard.specs.strategies.smp_v1 import SmModelParallelV1
from trainyard.specs.strategies.smp_v2 import OF_VERSION_1, SmModelParallelV2
from trainyard.specs.strategies.strategy import Launcher, Target
from trainyard.specs.strategies.tensorflow import MultiWorkerMirrored, ParameterServer
from trainyard.specs.strategies.torch_distributed import TorchDistributed

ON = {"enabled": True}


def refusal(distribution: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        read_distribution(distribution)
    return str(caught.value)


def smp_v2(**parameters: Any) -> dict[str, Any]:
    return {
        "torch_distributed": ON,
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}},
    }


def smp_v1(**parameters: Any) -> dict[str, Any]:
    given = {"pipeline_parallel_degree": 2, **parameters}
    return {
        "mpi": {"enabled": True, "processes_per_host": 8},
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": given}},
    }


@pytest.mark.parametrize(
    ("distribution", "strategy"),
    [
        ({}, None),
        ({"torch_distributed": {"enabled": False}}, None),
        ({"torch_distributed": {}}, None),
        ({"mpi": {"enabled": False, "processes_per_host": 8}, "parameter_server": {}}, None),
        ({"torch_distributed": ON}, TorchDistributed()),
        (
            {"torch_distributed": {"enabled": True, "processes_per_host": 4}},
            TorchDistributed(processes_per_host=4),
        ),
        ({"torch_distributed": ON, "mpi": {"enabled": False}}, TorchDistributed()),
        ({"pytorchddp": ON}, PytorchDdp()),
        ({"smdistributed": {"dataparallel": ON}}, SmDataParallel()),
        (
            {"smdistributed": {"dataparallel": {**ON, "custom_mpi_options": "-verbose"}}},
            SmDataParallel(custom_mpi_options="-verbose"),
        ),
        (
            {"smdistributed": {"dataparallel": {**ON, "processes_per_host": 2}}},
            SmDataParallel(processes_per_host=2),
        ),
        (
            {"pytorchddp": {**ON, "processes_per_host": 2}},
            PytorchDdp(processes_per_host=2),
        ),
        (
            {"smdistributed": {"dataparallel": ON}, "torch_distributed": ON},
            SmDataParallelUnderTorchrun(),
        ),
        (
            smp_v2(hybrid_shard_degree=8),
            SmModelParallelV2(parameters={"hybrid_shard_degree": 8}),
        ),
        (
            smp_v1(microbatches=4),
            SmModelParallelV1(
                parameters={"pipeline_parallel_degree": 2, "microbatches": 4}, processes_per_host=8
            ),
        ),
        (
            {"mpi": {**ON, "processes_per_host": 8, "custom_mpi_options": "-x A=1"}},
            Mpi(processes_per_host=8, custom_mpi_options="-x A=1"),
        ),
        ({"parameter_server": ON}, ParameterServer()),
        ({"multi_worker_mirrored_strategy": ON}, MultiWorkerMirrored()),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
)
def test_what_the_sdk_takes_is_read(distribution: dict[str, Any], strategy: Any) -> None:
    read = read_distribution(distribution)

    assert (read and read.strategy) == strategy


class SdkInstanceGroup:
    """As the SDK's: what its estimators take in `instance_groups`."""

    instance_group_name = "gpu"


@pytest.mark.parametrize(
    "group", ["gpu", {"instance_group_name": "gpu", "instance_count": 1}, SdkInstanceGroup()]
)
def test_a_group_is_named_or_given_as_the_sdk_gives_it(group: Any) -> None:
    read = read_distribution({"torch_distributed": ON, "instance_groups": [group]})

    assert read == Distribution(strategy=TorchDistributed(), instance_groups=("gpu",))


@pytest.mark.parametrize("groups", [["a", "b"], "a", [1], {"gpu": 1}])
def test_a_strategy_runs_on_one_group(groups: Any) -> None:
    message = refusal({"mpi": ON, "instance_groups": groups})

    assert "is not a list with one group name" in message


def test_groups_without_a_strategy_are_refused_as_the_sdk_does() -> None:
    message = refusal({"torch_distributed": {"enabled": False}, "instance_groups": ["gpu"]})

    assert "names a group, but no strategy is enabled for it" in message


@pytest.mark.parametrize("name", sorted(WRONG_NAMES))
def test_a_wrong_name_is_answered_with_the_right_one(name: str) -> None:
    for message in (refusal({name: ON}), refusal({"torch_distributed": {**ON, name: True}})):
        assert "is not a strategy or setting of any SageMaker SDK" in message
        assert WRONG_NAMES[name] in message


@pytest.mark.parametrize("name", ["ddp", "smddp", "smp", "modelparallel_v2"])
def test_a_wrong_smdistributed_strategy_is_refused_at_its_place(name: str) -> None:
    assert f"distribution.smdistributed.{name}: is" in refusal({"smdistributed": {name: ON}})


@pytest.mark.parametrize("advice", sorted({a for a in WRONG_NAMES.values() if a[0] == "{"}))
def test_a_distribution_that_is_advised_is_read(advice: str) -> None:
    text, _ = json.JSONDecoder().raw_decode(advice.replace("n}}", "2}}").replace("{...}", "{}"))

    assert read_distribution(text) is not None


@pytest.mark.parametrize("name", sorted(NO_SECTIONS))
def test_what_has_no_place_says_what_to_do(name: str) -> None:
    message = refusal({name: ON})

    assert all(each in message for each in NO_SECTIONS[name])


@pytest.mark.parametrize(
    ("distribution", "says"),
    [
        ({"torch_distributed": {"enabeld": True}}, "did you mean 'enabled'?"),
        (
            {"torch_distributed": {"enabled": "yes"}},
            "torch_distributed.enabled: has the wrong type or value; got 'yes'",
        ),
        (
            {"torch_distributed": {**ON, "processes_per_host": 0}},
            "a whole number of at least 1",
        ),
        (
            {"mpi": {**ON, "processes_per_host": True}},
            "mpi.processes_per_host: has the wrong type",
        ),
        ({"mpi": {**ON, "custom_mpi_options": ["-x"]}}, "allowed: text"),
        ({"torch_distributed": True}, 'allowed: {"enabled": true}'),
        ({"smdistributed": True}, 'allowed: {"dataparallel": {"enabled": true}}'),
        ({"smdistributed": {"dataparallel": True}}, 'allowed: {"enabled": true}'),
        ({"torch_distribted": {}}, "did you mean 'torch_distributed'?"),
        (
            {"smdistributed": {"modelparallel": {**ON, "parameters": "/opt/config.json"}}},
            "the content of the file, not its name",
        ),
        (
            {"smdistributed": {"modelparallel": ON}},
            "has no launcher, so every instance would run a single process",
        ),
        (
            {"smdistributed": {"dataparallel": ON, "modelparallel": ON}},
            "enables strategies that cannot be combined",
        ),
        ({"mpi": ON, "torch_distributed": ON}, "got mpi + torch_distributed"),
        (
            {"parameter_server": ON, "mpi": ON},
            "enables strategies that cannot be combined, because the toolkit would use only one of them",
        ),
        (
            {"multi_worker_mirrored_strategy": ON, "parameter_server": ON},
            "enables strategies that cannot be combined",
        ),
        (
            {"pytorchddp": ON, "smdistributed": {"dataparallel": ON}},
            "enables strategies that cannot be combined",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:60],
)
def test_a_wrong_setting_says_what_is_right(distribution: dict[str, Any], says: str) -> None:
    assert says in refusal(distribution)


def test_everything_wrong_is_said_at_once() -> None:
    message = refusal(
        {"pytorchx": ON, "mpi": {"processes_per_host": 0}, "instance_groups": ["a", "b"]}
    )

    assert "3 problem(s)" in message


@pytest.mark.parametrize("key", sorted(OF_VERSION_1))
def test_a_key_of_smp_v1_gets_what_version_2_has_instead(key: str) -> None:
    message = refusal(smp_v2(**{key: 2}))

    assert OF_VERSION_1[key] in message
    assert "belongs to version 1 of the library; this distribution starts version 2" in message


@pytest.mark.parametrize(
    ("distribution", "says"),
    [
        (smp_v2(hybrid_shard_degree=-1), "a whole number of at least 0"),
        (smp_v2(tensor_parallel_degree=0), "a whole number of at least 1"),
        (smp_v2(tensor_parallel_degree=True), "a whole number of at least 1"),
        (smp_v2(sm_activation_offloading="yes"), "allowed: true or false"),
        (smp_v2(tensor_paralel_degree=2), "did you mean 'tensor_parallel_degree'?"),
        (smp_v2(activation_loading_horizon=4), "sm_activation_offloading is off"),
        (
            smp_v2(hybrid_shard_degree=2, context_parallel_degree=4),
            "got 4 with hybrid_shard_degree 2; allowed: at most 2",
        ),
        (smp_v1(hybrid_shard_degree=4), "keep version 1 and write sharded_data_parallel_degree"),
        (smp_v1(pipeline="fast"), "interleaved, simple, _only_forward"),
        (smp_v1(memory_weight=1.5), "a number of at least 0, at most 1"),
        (smp_v1(tensor_parallel_degree=2), "above 1 needs ddp"),
        (smp_v1(ddp=True, horovod=True), "cannot be combined with horovod"),
        (smp_v1(ddp_port=1234), "ddp_port: needs ddp"),
        (smp_v1(auto_partition=False), "default_partition: is required"),
        (smp_v1(default_partition=2), "is too large: partitions are numbered from 0"),
        (smp_v1(offload_activations=True), "raise microbatches"),
        (smp_v1(partition_file="x" * 2500), "are too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_parameter_of_smp_says_what_is_right(
    distribution: dict[str, Any], says: str
) -> None:
    assert says in refusal(distribution)


@pytest.mark.parametrize(
    "distribution",
    [
        smp_v2(),
        smp_v2(hybrid_shard_degree=0, context_parallel_degree=4),
        smp_v2(hybrid_shard_degree=4, context_parallel_degree=4),
        smp_v2(sm_activation_offloading=True, activation_loading_horizon=4),
        smp_v1(tensor_parallel_degree=2, ddp=True),
        smp_v1(memory_weight=1.0, optimize="memory"),
        smp_v1(auto_partition=False, default_partition=1),
        smp_v1(offload_activations=True, microbatches=2),
        smp_v1(placement_strategy="TPD", sdp_gradient_clipping=0.5),
    ],
    ids=lambda value: json.dumps(value["smdistributed"]["modelparallel"]["parameters"]),
)
def test_a_right_parameter_beside_a_wrong_one_is_taken(distribution: dict[str, Any]) -> None:
    assert read_distribution(distribution) is not None


def test_every_strategy_names_its_launcher_and_its_frameworks() -> None:
    by_launcher = {strategy.name: strategy.launcher for strategy in STRATEGIES}

    assert by_launcher == {
        "torch_distributed": Launcher.TORCHRUN,
        "pytorchddp": Launcher.SMDDPRUN,
        "smddp": Launcher.SMDDPRUN,
        "smddp_torchrun": Launcher.TORCHRUN,
        "smp_v2": Launcher.TORCHRUN,
        "smp_v1": Launcher.MPIRUN,
        "mpi": Launcher.MPIRUN,
        "parameter_server": Launcher.PARAMETER_SERVER,
        "multi_worker_mirrored_strategy": Launcher.MULTI_WORKER_MIRRORED,
    }
    assert all(strategy.frameworks for strategy in STRATEGIES)


@pytest.mark.parametrize("framework", ["pytorch", "huggingface"])
@pytest.mark.parametrize("strategy", [PytorchDdp, SmDataParallel])
def test_ranks_of_an_instance_are_told_under_smddprun_too(strategy: type, framework: str) -> None:
    target = Target(framework=framework, instance_type="ml.p4d.24xlarge")

    told = strategy(processes_per_host=2).hyperparameters(target)

    assert told["sagemaker_mpi_num_of_processes_per_host"] == 2
    assert told == {
        **strategy().hyperparameters(target),
        "sagemaker_mpi_num_of_processes_per_host": 2,
    }
