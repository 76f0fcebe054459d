"""Every NVIDIA type of the catalogue has its speeds, and they are of the right order."""

from __future__ import annotations

import pytest

from trainyard.catalog.hardware import hardware, speeds_date
from trainyard.catalog.instances import catalogue


def test_every_nvidia_type_has_its_speeds() -> None:
    nvidia = {name for name, t in catalogue().types.items() if t.accelerator.startswith("NVIDIA")}

    assert set(hardware()) == nvidia


def test_the_speeds_have_a_date() -> None:
    assert speeds_date() == "2026-11-21"


@pytest.mark.parametrize(
    ("name", "bf16_tflops", "link_gb_per_s", "network_gbps"),
    [
        ("ml.p4d.24xlarge", 312, 300, 400),
        ("ml.p4de.24xlarge", 312, 300, 400),
        ("ml.p5.48xlarge", 989, 450, 3200),
        ("ml.p5e.48xlarge", 989, 450, 3200),
        ("ml.p6-b200.48xlarge", 2250, 900, 3200),
        ("ml.g6e.48xlarge", 362, 24, 400),
        ("ml.p3.16xlarge", None, 130, 25),
    ],
)
def test_published_speeds(
    name: str, bf16_tflops: float | None, link_gb_per_s: float, network_gbps: float
) -> None:
    each = hardware()[name]

    assert each.bf16_tflops == bf16_tflops
    assert each.link_gb_per_s == link_gb_per_s
    assert each.network_gbps == network_gbps
    assert each.peak_tflops("bf16") == bf16_tflops
    assert each.peak_tflops("fp32") == each.fp32_tflops


def test_reachable_shares_and_links_are_possible() -> None:
    for each in hardware().values():
        assert 0 < each.efficiency < 1
        assert each.link in {"NVLink", "PCIe"}
        assert (each.link_gb_per_s > 100) is (each.link == "NVLink")
        assert each.bf16_tflops is None or each.bf16_tflops > each.fp32_tflops
        assert each.network_gbps / 8 < each.link_gb_per_s * each.instance.num_accelerators
