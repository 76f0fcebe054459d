"""The catalogue of reservable instances, and the clock of their windows: invalid values are refused by their place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.plans.catalogue import (
    DEFAULT_CATALOGUE,
    CatalogueError,
    as_json,
    read_catalogue,
)
from sagemaker_engine.plans.clock import PlanClock

if TYPE_CHECKING:
    from pathlib import Path

TYPE = {"instance_type": "ml.p5.4xlarge", "usd_per_hour": 3.5}


def test_the_default_catalogue_is_read_back() -> None:
    assert read_catalogue(
        [{**each, "counts": list(each["counts"])} for each in as_json(DEFAULT_CATALOGUE)]
    ) == (DEFAULT_CATALOGUE)


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"usd_per_hour": math.nan}, "usd_per_hour"),
        ({"usd_per_hour": math.inf}, "usd_per_hour"),
        ({"usd_per_hour": -1}, "usd_per_hour"),
        ({"counts": [True]}, "counts"),
        ({"counts": [0]}, "counts"),
        ({"ultra_servers": {"ml.u-p6e-gb200x36": 0}}, "ultra_servers"),
        ({"ultra_servers": {"ml.u-p6e-gb200x36": -9}}, "ultra_servers"),
        ({"ultra_servers": {"ml.u-p6e-gb200x36": True}}, "ultra_servers"),
        ({"ultra_servers": 0}, "ultra_servers"),
    ],
)
def test_an_invalid_value_is_refused(members: dict[str, Any], place: str) -> None:
    with pytest.raises(CatalogueError, match=rf"catalogue\[0\]\.{place}: got"):
        read_catalogue([{**TYPE, **members}])


@pytest.mark.parametrize("advance_s", [math.nan, math.inf, -1, True])
def test_the_clock_is_not_moved_to_a_time_that_does_not_exist(
    tmp_path: Path, advance_s: float
) -> None:
    clock = PlanClock(path=tmp_path / "plans.json")

    with pytest.raises(CatalogueError, match="advance_s: got"):
        clock.change({"advance_s": advance_s})

    assert clock.ahead_s() == 0
