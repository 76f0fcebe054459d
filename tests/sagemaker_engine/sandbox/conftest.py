from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.sandbox import capabilities, network
from sagemaker_engine.sandbox.cluster import SandboxCluster
from sagemaker_engine.sandbox.instance import ClusterPlan, Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def best() -> tuple[str, ...]:
    """The best features of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        return capabilities.features(Path(folder) / "sandbox.json")


@pytest.fixture(params=["as-this-user", "in-a-user-namespace"])
def isolated(request: pytest.FixtureRequest, best: tuple[str, ...], tmp_path: Path) -> list[str]:
    """Features with instances of their own, or a skip where the machine has none.

    In a user namespace the instances have no rights over the machine, even if these tests have.
    """
    if "mount" not in best or "net" not in best:
        pytest.skip(f"this machine allows only {best}")
    if request.param == "as-this-user":
        return list(best)
    own = ("user", *(each for each in best if each != "user"))
    reason = capabilities.works(own, tmp_path / "probe")
    if "user" in best or reason is not None:
        pytest.skip(f"no other user namespace to try: {reason}")
    return list(own)


class SandboxRun:
    """What became of a cluster: exit codes and output by instance."""

    def __init__(self, codes: dict[str, int], output: dict[str, str]) -> None:
        self.codes = codes
        self.output = output


@pytest.fixture
def plan_of(tmp_path: Path) -> Iterator[Callable[..., tuple[ClusterPlan, dict[str, int]]]]:
    """Plan instances that each run a shell command; also returns where to read their output."""
    opened: list[int] = []

    def plan(
        commands: list[str], features: list[str], **more: Any
    ) -> tuple[ClusterPlan, dict[str, int]]:
        instances, readers = [], {}
        for index, command in enumerate(commands):
            name = f"algo-{index + 1}"
            folder = tmp_path / name
            (folder / "ml").mkdir(parents=True, exist_ok=True)
            read_end, write_end = os.pipe()
            opened.append(read_end)
            readers[name] = read_end
            instance = Instance(
                name=name,
                address=network.instance_address(index, own_network="net" in features),
                folder=str(folder),
                argv=["/bin/sh", "-c", command],
                environment={"PATH": os.environ["PATH"]},
                working_folder="/",
                descriptor=write_end,
                binds=[(str(folder / "ml"), "/opt/ml")],
            )
            instances.append(replace(instance, overlays=more.get("overlays", {}).get(name, [])))
        plan = ClusterPlan(
            instances=instances,
            features=features,
            ports=more.get("ports", {}),
            needed=[sys.base_prefix, *more.get("needed", [])],
            private=more.get("private", []),
        )
        return plan, readers

    yield plan
    for descriptor in opened:
        os.close(descriptor)


@pytest.fixture
def run(plan_of: Any) -> Callable[..., SandboxRun]:
    """Run shell commands, one an instance, to their end."""

    def execute(commands: list[str], features: list[str], **more: Any) -> SandboxRun:
        plan, readers = plan_of(commands, features, **more)
        codes: dict[str, int] = {}
        cluster = SandboxCluster(plan, answer=more.get("answer"))
        try:
            for instance in plan.instances:
                os.close(instance.descriptor)
            cluster.start()
            while cluster.running:
                for ended in cluster.wait(20.0):
                    codes[ended.instance] = ended.code
        finally:
            cluster.close()
        output = {name: _read_all(descriptor) for name, descriptor in readers.items()}
        return SandboxRun(codes, output)

    return execute


def _read_all(descriptor: int) -> str:
    data = b""
    while chunk := os.read(descriptor, 65536):
        data += chunk
    return data.decode()
