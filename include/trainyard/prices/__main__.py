"""`trainyard prices`: print the date, region and missing prices of the catalogue, or fetch the prices of a region."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.catalog.instances import PRICES_VARIABLE, catalogue, data_file
from trainyard.prices.price_list import SERVICE_CODE, filters, prices_of, with_prices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

API_REGION = "us-east-1"
"""A region that has the Price List API; the responses cover all regions."""
FAILED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the state of the catalogue's prices, or write a catalogue with a region's current prices.

    Return 0, or 2 if AWS rejects a call or lists no price.
    """
    options = _parser().parse_args(arguments)
    if not options.refresh:
        _print_state()
        return 0
    region = options.region or catalogue().region
    products, error = _products(region)
    prices = prices_of(products, region=region)
    if not prices:
        why = error or "it lists no training instance; check the region's name"
        sys.stderr.write(f"error: AWS Price List API, {region}: {why}\n")
        return FAILED
    date = datetime.now(tz=UTC).date().isoformat()
    text = with_prices(data_file().read_text(encoding="utf-8"), prices, date=date, region=region)
    output: Path = options.output or Path(f"trainyard_prices_{region}.csv")
    output.write_text(text, encoding="utf-8")
    _print_refreshed(output, prices=set(prices))
    return 0


def _products(region: str) -> tuple[list[str], str | None]:
    """Return the products of a region, and AWS's error or None. After an error there are no products."""
    pages = boto3.client("pricing", region_name=API_REGION).get_paginator("get_products")
    try:
        found = pages.paginate(ServiceCode=SERVICE_CODE, Filters=filters(region))
        return [each for page in found for each in page["PriceList"]], None
    except (BotoCoreError, ClientError) as error:
        return [], f"{error}; your AWS identity needs pricing:GetProducts"


def _print_state() -> None:
    table = catalogue()
    sys.stdout.write(
        f"{data_file()}\n  date {table.date}, region {table.region}\n  {table.source}\n"
    )
    unpriced = sorted(_unpriced())
    sys.stdout.write(
        f"  {len(table.types)} types, {len(unpriced)} without a price: {_listed(unpriced)}\n"
    )


def _print_refreshed(output: Path, *, prices: set[str]) -> None:
    table = catalogue(output)
    priced = len(prices & set(table.types))
    sys.stdout.write(
        f"wrote {output}: {table.region}, {table.date}, {priced} of {len(table.types)} types\n"
    )
    if unknown := sorted(prices - set(table.types)):
        sys.stdout.write(f"not in the catalogue: {_listed(unknown)}\n")
    sys.stdout.write(
        f"to use it, set {PRICES_VARIABLE}={output.resolve()} for all processes of Airflow\n"
    )


def _unpriced() -> Iterator[str]:
    for name, each in catalogue().types.items():
        if each.price_usd_per_hour is None:
            yield name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainyard prices", description=__doc__)
    parser.add_argument(
        "--refresh", action="store_true", help="fetch the prices from AWS's Price List API"
    )
    parser.add_argument("--region", help="region of the prices (default: the catalogue's)")
    parser.add_argument(
        "--output",
        type=Path,
        help="file to write (default: trainyard_prices_<region>.csv in the working directory)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
