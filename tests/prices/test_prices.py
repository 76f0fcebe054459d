"""`trainyard prices`: answers of the Price List API, served over HTTP, become a catalogue of their region."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.catalog.instances import PRICES_VARIABLE, catalogue, region_findings
from trainyard.cost.job_cost import cluster_ceiling
from trainyard.errors import Severity, SpecError
from trainyard.prices.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REGION = "eu-west-1"


def product(name: str, usd: str, **attributes: str) -> str:
    """Return a product as the API answers it: JSON in a text."""
    given = {
        "component": "Training",
        "instanceName": name,
        "regionCode": REGION,
        "usagetype": f"EU-Train:{name}",
        "servicecode": "AmazonSageMaker",
        **attributes,
    }
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}, "beginRange": "0", "endRange": "Inf"}
    term = {"offerTermCode": "JRTCKXETXF", "priceDimensions": {"A.B.C": dimension}}
    found = {
        "product": {"productFamily": "ML Instance", "attributes": given, "sku": name},
        "serviceCode": "AmazonSageMaker",
        "terms": {"OnDemand": {"A.B": term}},
        "version": "20261101000000",
    }
    return json.dumps(found)


PAGES = [
    {
        "FormatVersion": "aws_v1",
        "NextToken": "2",
        "PriceList": [
            product("ml.m5.xlarge", "0.2570000000"),
            product("ml.m5.xlarge", "0.0900000000", usagetype="EU-SpotTrain:ml.m5.xlarge"),
            product("ml.m5.2xlarge", "9.9", component="Hosting", usagetype="EU-Host:ml.m5.2xlarge"),
            product("ml.m5.4xlarge", "9.9", regionCode="eu-west-2"),
        ],
    },
    {
        "FormatVersion": "aws_v1",
        "PriceList": [
            product("ml.p5.48xlarge", "63.296", usagetype="EUW1-Train:ml.p5.48xlarge"),
            product("ml.g5.xlarge", "0.0000000000"),
            product("ml.new9.xlarge", "1.5"),
        ],
    },
]


class PriceList(BaseHTTPRequestHandler):
    """The Price List API with the pages of its server."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
        self.server.asked.append(asked)  # type: ignore[attr-defined]
        self.server.answer(self, asked)  # type: ignore[attr-defined]

    def send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def pages(request: PriceList, asked: dict[str, Any]) -> None:
    request.send(200, PAGES[1 if asked.get("NextToken") else 0])


def refusal(request: PriceList, _: dict[str, Any]) -> None:
    text = "User: me is not authorized to perform: pricing:GetProducts"
    request.send(400, {"__type": "AccessDeniedException", "message": text})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of the API that boto3 finds by its usual variable."""
    server: Any = HTTPServer(("127.0.0.1", 0), PriceList)
    server.asked, server.answer = [], pages
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_refresh_writes_a_catalogue_of_the_region(
    api: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "prices.csv"

    assert main(["--refresh", "--region", REGION, "--output", str(output)]) == 0

    table = catalogue(output)
    assert table.region == REGION
    assert table.source.startswith("AWS Price List API")
    assert table.date > "2026"
    priced = {name: each.price_usd_per_hour for name, each in table.types.items()}
    assert priced.pop("ml.m5.xlarge") == 0.257
    assert priced.pop("ml.p5.48xlarge") == 63.296
    assert set(priced.values()) == {None}, "no other product is on-demand training of the region"
    hardware = {name: each.vcpus for name, each in table.types.items()}
    assert hardware == {name: each.vcpus for name, each in catalogue().types.items()}
    assert {"Type": "TERM_MATCH", "Field": "regionCode", "Value": REGION} in api.asked[0]["Filters"]
    assert "not in the catalogue: ml.new9.xlarge" in capsys.readouterr().out


@pytest.mark.usefixtures("api")
def test_the_variable_puts_a_refreshed_catalogue_into_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "prices.csv"
    main(["--refresh", "--region", REGION, "--output", str(output)])
    monkeypatch.setenv(PRICES_VARIABLE, str(output))

    cost = cluster_ceiling({"ml.m5.xlarge": 2}, max_run_s=3600)

    assert cost.ceiling_usd == pytest.approx(0.514)
    assert f"on demand, {REGION}" in cost.note
    assert list(region_findings(REGION)) == []


def test_prices_of_another_region_are_a_warning() -> None:
    (found,) = region_findings("ap-south-1")

    assert found.severity is Severity.WARNING
    assert "prices for us-east-1" in str(found.got)
    assert "trainyard prices --refresh --region ap-south-1" in str(found.next_step)
    assert list(region_findings("us-east-1")) == []


def test_a_refused_call_names_its_action(
    api: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer = refusal
    output = tmp_path / "prices.csv"

    assert main(["--refresh", "--output", str(output)]) == 2

    assert "pricing:GetProducts" in capsys.readouterr().err
    assert not output.exists()


def test_a_region_without_prices_is_an_error(
    api: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer = lambda request, _: request.send(200, {"FormatVersion": "aws_v1", "PriceList": []})
    output = tmp_path / "prices.csv"

    assert main(["--refresh", "--region", "eu-west-11", "--output", str(output)]) == 2
    assert "eu-west-11: it lists no training instance" in capsys.readouterr().err
    assert not output.exists()


def test_a_missing_file_of_prices_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRICES_VARIABLE, "/nowhere/prices.csv")

    with pytest.raises(
        SpecError,
        match=r"TRAINYARD_PRICES: names a file that does not exist; got /nowhere/prices\.csv",
    ):
        catalogue()


def test_the_command_prints_date_region_and_unpriced_types(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0

    text = capsys.readouterr().out
    assert "date 2025-06-30, region us-east-1" in text
    assert "without a price: ml.c4.2xlarge" in text
