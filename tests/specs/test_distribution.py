"""The SDK's names are known, and the wrong ones that circulate are put right."""

from __future__ import annotations

from typing import Any

import pytest

from include.errors import SpecError
from include.specs.distribution import NOT_YET, WRONG_NAMES, TorchDistributed, read_distribution


def refusal(distribution: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        read_distribution(distribution)
    return str(caught.value)


@pytest.mark.parametrize(
    ("distribution", "launcher"),
    [
        ({}, None),
        ({"torch_distributed": {"enabled": False}}, None),
        ({"torch_distributed": {}}, None),
        ({"torch_distributed": {"enabled": True}}, TorchDistributed()),
        (
            {"torch_distributed": {"enabled": True, "processes_per_host": 4}},
            TorchDistributed(processes_per_host=4),
        ),
    ],
    ids=["none", "off", "empty", "on", "with ranks"],
)
def test_what_the_sdk_takes_is_read(
    distribution: dict[str, Any], launcher: TorchDistributed | None
) -> None:
    assert read_distribution(distribution) == launcher


@pytest.mark.parametrize("name", sorted(WRONG_NAMES))
def test_a_wrong_name_is_answered_with_the_right_one(name: str) -> None:
    message = refusal({name: {"enabled": True}})

    assert "is in no SDK" in message
    assert WRONG_NAMES[name] in message


@pytest.mark.parametrize("name", NOT_YET)
def test_a_name_of_the_sdk_that_is_not_launched_yet_says_so(name: str) -> None:
    assert "the SDK's name, but Trainyard does not launch it yet" in refusal({name: {}})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"enabeld": True}, "did you mean 'enabled'?"),
        ({"deepspeed_enabled": True}, "deepspeed.initialize in the script"),
        ({"enabled": "yes"}, "enabled: has the wrong type or value; got 'yes'"),
        ({"enabled": True, "processes_per_host": 0}, "a whole number of at least 1"),
        ({"enabled": True, "processes_per_host": True}, "a whole number of at least 1"),
        (True, 'allowed: {"enabled": true}'),
    ],
    ids=str,
)
def test_a_wrong_setting_says_what_is_right(settings: Any, says: str) -> None:
    assert says in refusal({"torch_distributed": settings})


def test_a_misspelt_name_gets_the_nearest() -> None:
    assert "did you mean 'torch_distributed'?" in refusal({"torch_distribted": {}})
