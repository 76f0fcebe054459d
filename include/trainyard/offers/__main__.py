"""`trainyard offers`: compare training plan offers with spot and on-demand prices. It buys nothing."""

from __future__ import annotations

import argparse
import math
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.catalog.instances import catalogue
from trainyard.errors import SpecError
from trainyard.offers.comparison import PlanOffer, compare, table
from trainyard.sagemaker_api.training_plan import TERMINATION_LEAD_S
from trainyard.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

OFFERED, NO_OFFER, FAILED = 0, 1, 2
DAY_H = 24


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of offers.

    Return 0, or 1 if no plan is on offer, or 2 if the instance type is unknown or AWS rejects the call.
    """
    options = _parser().parse_args(arguments)
    try:
        price = catalogue().find(options.instance_type).price_usd_per_hour
    except SpecError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    client = boto3.client("sagemaker", region_name=options.region)
    try:
        found = client.search_training_plan_offerings(**_request(options))
    except (BotoCoreError, ClientError) as error:
        sys.stderr.write(
            f"error: SearchTrainingPlanOfferings: {error}; your AWS identity needs "
            "sagemaker:SearchTrainingPlanOfferings\n"
        )
        return FAILED
    offers = [PlanOffer.from_wire(each) for each in found["TrainingPlanOfferings"]]
    choices = compare(
        offers,
        hours=options.hours,
        instance_count=options.instance_count,
        price_usd_per_hour=price,
    )
    sys.stdout.write(
        f"{options.instance_count} x {options.instance_type} for {options.hours:g} h in {client.meta.region_name}\n"
    )
    sys.stdout.write("".join(f"  {line}\n" for line in table(choices)))
    if not offers:
        sys.stdout.write("no plan is on offer: search other hours, counts or types\n")
        return NO_OFFER
    sys.stdout.write(
        "to buy one: aws sagemaker create-training-plan --training-plan-name <name> --training-plan-offering-id <id>\n"
    )
    return OFFERED


def _request(options: argparse.Namespace) -> dict[str, Any]:
    """Return the search request, with a duration in whole days.

    The duration covers the planned hours and a plan's last 30 minutes, in which no job runs.
    """
    days = max(1, math.ceil((options.hours + TERMINATION_LEAD_S / SECONDS_PER_HOUR) / DAY_H))
    times = {"StartTimeAfter": options.start_after, "EndTimeBefore": options.end_before}
    return {
        "InstanceType": options.instance_type,
        "InstanceCount": options.instance_count,
        "DurationHours": days * DAY_H,
        "TargetResources": ["training-job"],
        **{name: moment for name, moment in times.items() if moment is not None},
    }


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a date; allowed: 2026-12-01 or 2026-12-01T11:30, UTC by default"
        raise argparse.ArgumentTypeError(message) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainyard offers", description=__doc__)
    parser.add_argument("--instance-type", required=True, help="such as ml.p5.48xlarge")
    parser.add_argument("--instance-count", type=int, default=1, help="number of instances")
    parser.add_argument("--hours", type=float, required=True, help="planned hours of the training")
    parser.add_argument("--region", help="region of the plan (default: your configuration's)")
    parser.add_argument(
        "--start-after", type=_moment, help="earliest begin, such as 2026-12-01 or 2026-12-01T11:30"
    )
    parser.add_argument("--end-before", type=_moment, help="latest end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
