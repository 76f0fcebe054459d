"""Offers of plans are compared with spot and on demand for the planned hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trainyard.offers.__main__ import NO_OFFER, OFFERED, main
from trainyard.offers.comparison import PlanOffer, compare, table

DAY = timedelta(days=1)
START = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)


def offer(days: float = 1, fee: str | None = "100.00") -> PlanOffer:
    wire = {
        "TrainingPlanOfferingId": "tpo-1",
        "ReservedCapacityOfferings": [{"StartTime": START, "EndTime": START + days * DAY}],
        "CurrencyCode": "USD",
    }
    return PlanOffer.from_wire(wire if fee is None else {**wire, "UpfrontFee": fee})


def test_choices_cost_the_planned_hours_and_a_plan_its_whole_fee() -> None:
    choices = compare([offer()], hours=40, instance_count=2, price_usd_per_hour=30.0)
    assert [(each.name, each.cost_usd) for each in choices] == [
        ("on demand", 2400.0),
        ("spot", pytest.approx(960.0)),
        ("plan tpo-1", 100.0),
    ]
    assert choices[1].remark == "assuming 60% off and no interruptions; when there is capacity"


def test_plan_that_is_too_short_says_so_with_its_window() -> None:
    (short,) = compare([offer()], hours=23.75, instance_count=1, price_usd_per_hour=None)[2:]
    (enough,) = compare([offer()], hours=23.5, instance_count=1, price_usd_per_hour=None)[2:]
    assert short.remark == (
        "2026-12-01 11:30 to 2026-12-02 11:30 UTC, 23 h 30 min usable, too short"
    )
    assert "too short" not in enough.remark


def test_unknown_prices_stay_unknown() -> None:
    choices = compare([offer(fee=None)], hours=1, instance_count=1, price_usd_per_hour=None)
    assert all("unknown price" in line for line in table(choices))


@pytest.mark.engine
@pytest.mark.parametrize(
    ("count", "status", "line"), [(1, OFFERED, "plan tpo-"), (3, NO_OFFER, "no plan is on offer")]
)
def test_command_prints_the_offers_of_the_service(
    engine, monkeypatch, capsys, count: int, status: int, line: str
) -> None:
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    arguments = [
        "--instance-type",
        "ml.p5.4xlarge",
        "--instance-count",
        str(count),
        "--hours",
        "40",
    ]

    assert main(arguments) == status
    printed = capsys.readouterr().out
    assert printed.startswith(f"{count} x ml.p5.4xlarge for 40 h in us-east-1\n  on demand")
    assert line in printed


def test_a_wrong_start_is_named_with_a_valid_form(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--instance-type", "ml.p5.4xlarge", "--hours", "40", "--start-after", "tomorrow"]

    with pytest.raises(SystemExit):
        main(arguments)

    assert "--start-after: 'tomorrow' is not a date; allowed: 2026-12-01" in capsys.readouterr().err
