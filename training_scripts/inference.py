"""Request handlers for models of these training scripts: `code/inference.py` in their model.tar.gz.

The toolkit of the PyTorch inference images calls them. Requests and answers are JSON; `trainer.serving` has the format.
An invalid request is an error with HTTP status 400 if the toolkit is installed, otherwise a ValueError.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.serving import ServedModel, load_served

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = "application/json"


def model_fn(model_dir: str) -> ServedModel:
    """Return the model in the folder `model_dir`.

    Raises:
        DataError: the folder has no model of these scripts.
    """
    return load_served(Path(model_dir))


def input_fn(request_body: str | bytes, request_content_type: str) -> dict[str, Any]:
    """Return the parsed request.

    Raises:
        ValueError: the content type is not JSON, or the request is not a JSON object. With the toolkit, an error with
            HTTP status 400 is raised instead.
    """
    with _client_errors():
        if request_content_type.partition(";")[0].strip() != JSON:
            raise ValueError(f"content type {request_content_type!r} is not supported; send {JSON}")
        request = json.loads(request_body)
        if not isinstance(request, dict):
            raise ValueError(f"the request is a {type(request).__name__}; send a JSON object")  # noqa: TRY004
        return request


def predict_fn(input_data: dict[str, Any], model: ServedModel) -> dict[str, Any]:
    """Return the answer to a request.

    A request that does not match the model raises a ValueError; with the toolkit, an error with HTTP status 400.
    """
    with _client_errors():
        return model.answer(input_data)


def output_fn(prediction: dict[str, Any], accept: str) -> tuple[str, str]:
    """Return the answer as JSON text, and the content type of JSON; `accept` is ignored."""
    del accept
    return json.dumps(prediction), JSON


@contextmanager
def _client_errors() -> Iterator[None]:
    """Convert a ValueError of the `with` block to the toolkit's error with status 400.

    Other errors are not converted: the toolkit responds to them with status 500. Without the toolkit, no error
    is converted.

    Raises:
        ValueError: the block raised this error, and the toolkit is not installed.
        BaseInferenceToolkitError: the block raised a ValueError, and the toolkit is installed.
    """
    try:
        yield
    except ValueError as error:
        try:
            from sagemaker_inference.errors import BaseInferenceToolkitError  # noqa: PLC0415  # only serving images have it
        except ImportError:
            raise error from None
        raise BaseInferenceToolkitError(400, str(error), "Bad Request") from error
