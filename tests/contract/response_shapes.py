"""A check of every answer against the model that botocore parses it with.

botocore's parser is lenient: it skips unknown members and accepts absent ones. This check is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.model import OperationModel, Shape

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "character": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
    "timestamp": (int, float),
    "blob": (str,),
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
}


class ShapeCheck:
    """Listens to clients of JSON services and collects what is wrong with their answers."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.succeeded: set[str] = set()
        """SageMaker's operations that were answered with success."""
        self.rejected: set[str] = set()
        """SageMaker's operations that were answered with an error of the caller (400)."""
        self.num_checked = 0
        self._clients: list[Any] = []

    def watch(self, client: Any) -> None:
        """Check the answers of this client from now on; clients of other protocols are left be."""
        self._clients.append(client)
        if client.meta.service_model.protocol == "json":
            client.meta.events.register("before-parse", self._check)

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            client.close()

    def _check(self, operation_model: OperationModel, response_dict: Any, **_: Any) -> None:
        status = response_dict["status_code"]
        if operation_model.service_model.service_name == "sagemaker" and status in {200, 400}:
            (self.succeeded if status == 200 else self.rejected).add(operation_model.name)
        if status >= 300:
            document = json.loads(response_dict["body"])
            if "__type" not in document or not {"message", "Message"} & set(document):
                self.problems.append(f"{operation_model.name}: an error without type or message")
            return
        output = operation_model.output_shape
        body = response_dict["body"]
        self.num_checked += 1
        if output is None:
            if body not in {b"", b"{}"}:
                self.problems.append(f"{operation_model.name}: {body!r} where nothing belongs")
            return
        self.problems += find_problems(output, json.loads(body), operation_model.name)


def find_problems(shape: Shape, value: Any, path: str) -> list[str]:
    """Return one sentence for each place where the value, parsed from JSON, is not of the shape."""
    wrong_bool = isinstance(value, bool) and shape.type_name != "boolean"
    if wrong_bool or not isinstance(value, _TYPES[shape.type_name]):
        return [f"{path}: {value!r} is not a {shape.type_name}"]
    match shape.type_name:
        case "structure":
            return _structure_problems(shape, value, path)
        case "list":
            return [
                problem
                for index, item in enumerate(value)
                for problem in find_problems(shape.member, item, f"{path}[{index}]")
            ]
        case "map":
            return [
                problem
                for key, item in value.items()
                for problem in find_problems(shape.value, item, f"{path}[{key}]")
            ]
        case "string" if getattr(shape, "enum", None) and value not in shape.enum:
            return [f"{path}: {value!r} is none of {', '.join(shape.enum)}"]
    return []


def _structure_problems(shape: Any, value: dict[str, Any], path: str) -> list[str]:
    problems = [f"{path}.{name} is missing" for name in shape.required_members if name not in value]
    for name, item in value.items():
        if name not in shape.members:
            problems.append(f"{path}.{name} is not in the model")
        elif item is None:
            problems.append(f"{path}.{name} is null")
        else:
            problems += find_problems(shape.members[name], item, f"{path}.{name}")
    return problems
