"""On-demand prices of SageMaker training, and a catalogue with these prices. Pure.

The prices are read from responses of AWS's Price List API. Source: AWS Price List API, `GetProducts` with
format `aws_v1`, service `AmazonSageMaker`. A product of a training instance has the attributes `component`
(Training), `instanceName` (ml.m5.xlarge), `regionCode` and `usagetype`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SERVICE_CODE = "AmazonSageMaker"
COMPONENT = "Training"
SOURCE = (
    "AWS Price List API, GetProducts of AmazonSageMaker, component Training, on demand, USD per hour. "
    "An empty price is unknown, never free."
)
_ON_DEMAND = re.compile(r"(^|-)Train:ml\.")
"""Usage type of on-demand training; spot, warm pools and reserved plans have other usage types."""
_PRICE = "price_usd_per_hour"
_NAME = "instance_type"


def filters(region: str) -> list[dict[str, str]]:
    """Return the filters of `GetProducts` for a region's training instances."""
    wanted = {"component": COMPONENT, "regionCode": region}
    return [{"Type": "TERM_MATCH", "Field": name, "Value": each} for name, each in wanted.items()]


def prices_of(products: Iterable[str], *, region: str) -> dict[str, float]:
    """Return the hourly price of one instance in USD, as a mapping from instance type to price.

    If a type has several prices, the highest one is returned.

    Args:
        products: the `PriceList` of all responses: a JSON text for each product.
        region: the region; products of other regions are left out.
    """
    found: dict[str, float] = {}
    for text in products:
        product = json.loads(text)
        attributes = product.get("product", {}).get("attributes", {})
        if not _is_training(attributes, region):
            continue
        name = str(attributes.get("instanceName"))
        for price in _hourly_usd(product):
            found[name] = max(price, found.get(name, 0.0))
    return found


def with_prices(catalogue_csv: str, prices: Mapping[str, float], *, date: str, region: str) -> str:
    """Return the text of a catalogue file with these prices, and their date, region and source.

    A type without a price in the region gets an empty price.
    """
    lines = catalogue_csv.splitlines()
    notes = {"date": date, "region": region, "source": SOURCE}
    head = [_noted(line, notes) for line in lines if line.startswith("#")]
    rows = csv.DictReader(line for line in lines if line and not line.startswith("#"))
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows.fieldnames or ()), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        price = prices.get(row[_NAME])
        writer.writerow({**row, _PRICE: "" if price is None else f"{price:g}"})
    return "\n".join(head) + "\n" + out.getvalue()


def _noted(line: str, notes: Mapping[str, str]) -> str:
    name = line[1:].strip().partition(": ")[0]
    return f"# {name}: {notes[name]}" if name in notes else line


def _is_training(attributes: Mapping[str, Any], region: str) -> bool:
    is_wanted = attributes.get("component") == COMPONENT and attributes.get("regionCode") == region
    return is_wanted and bool(_ON_DEMAND.search(str(attributes.get("usagetype"))))


def _hourly_usd(product: Mapping[str, Any]) -> Iterator[float]:
    """Yield the on-demand prices of a product per hour, except prices of 0."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            price = float(dimension.get("pricePerUnit", {}).get("USD", 0))
            if str(dimension.get("unit", "")).lower().startswith(("hr", "hour")) and price > 0:
                yield price
