"""Request handlers for models of these training scripts: `code/inference.py` in their model.tar.gz.

The inference toolkit of AWS's PyTorch inference images calls them. Requests and answers are JSON; `trainer.serving`
documents their fields.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.serving import ServedModel, load_served

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
        ValueError: the content type is not JSON, or the body is not a JSON object.
    """
    if request_content_type.partition(";")[0].strip() != JSON:
        raise ValueError(f"content type {request_content_type!r} is not read; send {JSON}")
    request = json.loads(request_body)
    if not isinstance(request, dict):
        raise ValueError(f"the request is a {type(request).__name__}; send a JSON object")  # noqa: TRY004  # of the client
    return request


def predict_fn(input_data: dict[str, Any], model: ServedModel) -> dict[str, Any]:
    """Return the answer to a request.

    Raises:
        ValueError: a field of the request is unknown, missing or not valid for the model.
    """
    return model.answer(input_data)


def output_fn(prediction: dict[str, Any], accept: str) -> str:
    """Return the answer as JSON text; `accept` is ignored."""
    del accept
    return json.dumps(prediction)
