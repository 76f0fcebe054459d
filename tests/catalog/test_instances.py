"""The catalogue agrees with the service and never guesses."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from botocore.loaders import Loader

from trainyard.catalog.instances import catalogue, ranks_on
from trainyard.errors import ContractError, SpecError

if TYPE_CHECKING:
    from pathlib import Path

# In the service's list, but their hardware was not known when the file was written.
WITHOUT_HARDWARE = {f"ml.g7.{n}xlarge" for n in (2, 4, 8, 12, 24, 48)}


def service_types(kind: str = "Training") -> set[str]:
    model = Loader().load_service_model("sagemaker", "service-2")
    return set(model["shapes"][f"{kind}InstanceType"]["enum"])


def test_the_catalogue_has_the_types_the_service_has() -> None:
    assert set(catalogue().types) == service_types() - WITHOUT_HARDWARE


def test_the_catalogue_knows_which_types_processing_jobs_may_have() -> None:
    known = {name for name, each in catalogue().types.items() if each.is_for_processing}

    assert known == service_types("Processing") & set(catalogue().types)


@pytest.mark.parametrize(
    "family",
    ["m5", "m6i", "m7i", "c5", "c6i", "c7i", "g4dn", "g5", "g6", "p3", "p4d", "p4de", "p5", "trn1"],
)
def test_the_largest_size_of_a_common_family_has_a_price(family: str) -> None:
    sizes = [t for name, t in catalogue().types.items() if name.startswith(f"ml.{family}.")]

    assert max(sizes, key=lambda t: t.vcpus).price_usd_per_hour


def test_within_a_family_more_vcpus_of_the_same_accelerators_cost_more() -> None:
    priced = [t for t in catalogue().types.values() if t.price_usd_per_hour is not None]
    by_family: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for each in priced:
        key = (each.name.split(".")[1], each.num_accelerators)
        by_family.setdefault(key, []).append((each.vcpus, each.price_usd_per_hour or 0))

    for sizes in by_family.values():
        assert [price for _, price in sorted(sizes)] == sorted(price for _, price in sizes)


def test_accelerators_have_a_name_and_memory_and_others_have_neither() -> None:
    for each in catalogue().types.values():
        has = each.num_accelerators > 0
        assert bool(each.accelerator) is has
        assert (each.accelerator_memory_gib > 0) is has
        assert each.vcpus > 0 < each.memory_gib


@pytest.mark.parametrize(
    ("name", "gb"),
    [
        ("ml.m5.large", None),
        ("ml.g4dn.xlarge", 125),
        ("ml.g5.xlarge", 250),
        ("ml.p4d.24xlarge", 8000),
        ("ml.p6e-gb200.36xlarge", None),
    ],
)
def test_the_disks_of_a_type_have_a_size_if_a_source_has_it(name: str, gb: int | None) -> None:
    assert catalogue().types[name].local_storage_gb == gb


def test_only_types_with_local_storage_have_a_size_of_it() -> None:
    known = [each for each in catalogue().types.values() if each.local_storage_gb]

    assert len(known) > 50
    assert all(each.has_local_storage for each in known)


@pytest.mark.parametrize(
    ("name", "vcpus", "memory_gib", "num_accelerators", "accelerator_memory_gib", "has_efa"),
    [
        ("ml.m5.large", 2, 8, 0, 0, False),
        ("ml.c5.18xlarge", 72, 144, 0, 0, False),
        ("ml.g5.12xlarge", 48, 192, 4, 24, True),
        ("ml.p4d.24xlarge", 96, 1152, 8, 40, True),
        ("ml.trn1.32xlarge", 128, 512, 16, 32, True),
    ],
)
def test_known_hardware(
    name: str,
    vcpus: int,
    memory_gib: float,
    num_accelerators: int,
    accelerator_memory_gib: float,
    *,
    has_efa: bool,
) -> None:
    each = catalogue().find(name)

    assert (each.vcpus, each.memory_gib, each.has_efa) == (vcpus, memory_gib, has_efa)
    assert each.num_accelerators == num_accelerators
    assert each.accelerator_memory_gib == accelerator_memory_gib


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("ml.m5.large", 1),
        ("ml.g5.xlarge", 1),
        ("ml.p4d.24xlarge", 8),
        ("ml.trn1.2xlarge", 2),
        ("ml.trn1.32xlarge", 32),
        ("ml.trn2.48xlarge", 64),
        ("ml.no.such", 1),
    ],
)
def test_each_gpu_or_logical_neuron_core_has_a_rank(name: str, ranks: int) -> None:
    assert ranks_on(name) == ranks


def test_an_unknown_type_names_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"got 'ml.m5.lrge'.*did you mean 'ml.m5.large'"):
        catalogue().find("ml.m5.lrge")


def test_an_unknown_price_is_none() -> None:
    assert catalogue().find("ml.p2.xlarge").price_usd_per_hour is None


def test_prices_carry_their_date_and_source() -> None:
    assert catalogue().date == "2025-06-30"
    assert catalogue().region == "us-east-1"
    assert "Replace" in catalogue().source


def test_a_data_file_without_its_date_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "types.csv"
    path.write_text("# region: us-east-1\n# source: x\ninstance_type\n", encoding="utf-8")

    with pytest.raises(ContractError, match="has no date"):
        catalogue(path)


@pytest.fixture(scope="module")
def ec2_types() -> dict[str, Any]:
    """EC2's DescribeInstanceTypes, as stored in moto."""
    path = files("moto.ec2") / "resources" / "instance_types.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))


def test_ranks_of_trainium_are_the_cores_of_ec2_and_two_of_trainium2_are_a_logical_one(
    ec2_types: dict[str, Any],
) -> None:
    trainium = [each for each in catalogue().types.values() if each.is_trainium]

    assert len(trainium) >= 4
    for each in trainium:
        (devices,) = ec2_types[each.name.removeprefix("ml.")]["NeuronInfo"]["NeuronDevices"]
        joined = 2 if each.accelerator == "AWS Trainium2" else 1
        assert each.num_ranks == devices["Count"] * devices["CoreInfo"]["Count"] // joined


def test_a_type_that_ec2_lists_no_more_is_retired(ec2_types: dict[str, Any]) -> None:
    types = catalogue().types

    retired = {name for name, each in types.items() if each.is_retired}

    assert retired == {name for name in types if name.split(".")[1] in {"p2", "p3"}}
    assert {name for name in types if name.removeprefix("ml.") not in ec2_types} == {
        *retired,
        "ml.p6e-gb200.36xlarge",  # offered in few regions
    }


def test_ec2_has_spot_instances_of_every_type_that_it_lists(ec2_types: dict[str, Any]) -> None:
    """Therefore the catalogue has no column for spot: the account's quota of spot trainings decides."""
    listed = {each.removeprefix("ml.") for each in catalogue().types} & set(ec2_types)

    assert all("spot" in ec2_types[each]["SupportedUsageClasses"] for each in listed)
