"""No success without its effect: every operation is executed, stored, or rejected by name."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from sagemaker_engine.coverage import OTHER_SERVICES, PAGE, answered, refusals, render
from sagemaker_engine.wire.model import load_model, models_signed_as
from tests.conftest import REPOSITORY
from tests.contract.proofs import read_proofs

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

UNKNOWN = "UnknownOperationException"


def answer_to(
    engine: RunningEngine, path: str = "/", *, method: str = "POST", **headers: str
) -> tuple[int, str]:
    """Return status and body of the answer to a request with an empty JSON object."""
    scope = "Credential=test/20260101/us-east-1/sagemaker/aws4_request"
    request = urllib.request.Request(  # noqa: S310
        engine.endpoint_url + path,
        data=None if method == "GET" else b"{}",
        method=method,
        headers={"Authorization": f"AWS4-HMAC-SHA256 {scope}, Signature=0", **headers},
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def is_refusal(operation: str, status: int, body: str) -> bool:
    """Tell whether an answer rejects the operation by its name, with the page that lists it."""
    if status != 501:
        return False
    error = json.loads(body)
    names_it = re.search(rf"\b{operation}\b", error["message"])
    return bool(error["__type"] == UNKNOWN and names_it and PAGE in error["message"])


@pytest.mark.engine
def test_every_operation_is_executed_stored_or_rejected_by_name(engine: RunningEngine) -> None:
    wrong = []
    for operation in load_model("sagemaker").operations:
        header = {"X-Amz-Target": f"SageMaker.{operation}"}
        status, body = answer_to(engine, **header)
        is_ours = operation in answered()
        if is_refusal(operation, status, body) is is_ours or status == 500:
            wrong.append((operation, status, body))
    assert wrong == []


def test_every_operation_that_succeeds_is_proved_by_the_conformance_suite() -> None:
    proofs = read_proofs()
    assert set(proofs) == set(answered()), "record the proofs anew: tests/contract/proofs.py"
    for proof in set(proofs.values()):
        file, _, test = proof.partition("::")
        assert f"def {test}(" in (REPOSITORY / "tests/contract" / file).read_text(), proof


def test_the_table_names_operations_of_the_service_once() -> None:
    assert set(answered()) | set(refusals()) == set(load_model("sagemaker").operations)
    assert not set(answered()) & set(refusals())


@pytest.mark.engine
def test_runtime_services_are_rejected_by_operation(engine: RunningEngine) -> None:
    wrong = []
    for model in models_signed_as("sagemaker"):
        for operation, shape in model.operations.items():
            if model.name == "sagemaker":
                continue
            http = shape["http"]
            path = re.sub(r"\{[^}]+\}", "thing", http["requestUri"])
            status, body = answer_to(engine, path, method=http["method"])
            if not is_refusal(operation, status, body):
                wrong.append((model.name, operation, status, body))
    assert wrong == []


@pytest.mark.engine
def test_an_endpoint_is_neither_created_nor_invoked(engine: RunningEngine) -> None:
    sagemaker, runtime = engine.client("sagemaker"), engine.client("sagemaker-runtime")
    with pytest.raises(ClientError, match="CreateEndpoint: the engine serves no models") as caught:
        sagemaker.create_endpoint(EndpointName="mine", EndpointConfigName="any")
    assert caught.value.response["Error"]["Code"] == UNKNOWN
    with pytest.raises(ClientError, match="InvokeEndpoint: the engine serves no models"):
        runtime.invoke_endpoint(EndpointName="mine", Body=b"\x80\xff binary")
    assert sagemaker.list_endpoints()["Endpoints"] == []


@pytest.mark.engine
@pytest.mark.parametrize("service", ["ec2", "lambda", "glue", "cloudformation", "dynamodb"])
def test_a_service_that_the_engine_does_not_have_is_rejected(
    engine: RunningEngine, service: str
) -> None:
    assert service not in OTHER_SERVICES
    calls = {
        "ec2": ("describe_instances", {}),
        "lambda": ("list_functions", {}),
        "glue": ("get_databases", {}),
        "cloudformation": ("list_stacks", {}),
        "dynamodb": ("list_tables", {}),
    }
    operation, arguments = calls[service]
    with pytest.raises(ClientError, match=rf"service {service}.*{PAGE}") as caught:
        getattr(engine.client(service), operation)(**arguments)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501


def test_the_page_is_the_table() -> None:
    written = (REPOSITORY / PAGE).read_text()
    assert written == render(), "write it anew: python -m sagemaker_engine.coverage > " + PAGE
