"""Handlers of AWS's inference toolkit for a model of these scripts: `code/inference.py` of its model.tar.gz.

The toolkit of the PyTorch inference images calls them. Requests and answers are JSON, as `trainer.serving` has them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.serving import ServedModel, load_served

JSON = "application/json"


def model_fn(model_dir: str) -> ServedModel:
    """Return the model of a folder.

    Raises:
        DataError: the folder holds no model of these scripts.
    """
    return load_served(Path(model_dir))


def input_fn(request_body: str | bytes, request_content_type: str) -> dict[str, Any]:
    """Return the request.

    Raises:
        ValueError: it is no JSON object.
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
        ValueError: the request does not go with the model.
    """
    return model.answer(input_data)


def output_fn(prediction: dict[str, Any], accept: str) -> str:
    """Return the answer as JSON, whatever else the client accepts."""
    del accept
    return json.dumps(prediction)
