from __future__ import annotations

from typing import Any

import pytest

from sagemaker_engine.wire.errors import SerializationError, ValidationError
from sagemaker_engine.wire.model import ServiceModel, load_model
from sagemaker_engine.wire.validation import matches, validate

SHAPES: dict[str, dict[str, Any]] = {
    "Input": {
        "type": "structure",
        "required": ["Name"],
        "members": {
            member: {"shape": shape}
            for member, shape in {
                "Name": "Name",
                "Secret": "Secret",
                "Color": "Color",
                "Count": "Count",
                "Share": "Share",
                "Flag": "Flag",
                "When": "When",
                "Items": "Items",
                "Labels": "Labels",
                "Choice": "Choice",
            }.items()
        },
    },
    "Name": {"type": "string", "pattern": "[a-z]+", "max": 4},
    "Secret": {"type": "string", "max": 2, "sensitive": True},
    "Color": {"type": "string", "enum": ["red", "green"]},
    "Count": {"type": "integer", "min": 1, "max": 9},
    "Share": {"type": "double", "max": 1},
    "Flag": {"type": "boolean"},
    "When": {"type": "timestamp"},
    "Items": {"type": "list", "member": {"shape": "Item"}, "max": 2},
    "Item": {
        "type": "structure",
        "required": ["Key"],
        "members": {"Key": {"shape": "Name"}},
    },
    "Labels": {"type": "map", "key": {"shape": "Name"}, "value": {"shape": "Name"}},
    "Choice": {
        "type": "structure",
        "union": True,
        "members": {"A": {"shape": "Name"}, "B": {"shape": "Name"}},
    },
}
MODEL = ServiceModel(
    name="test",
    target_prefix="Test",
    signing_name="test",
    operations={"Do": {"input": {"shape": "Input"}}},
    shapes=SHAPES,
)


def message(request: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        validate(MODEL, "Do", request)
    return caught.value.message


@pytest.mark.parametrize(
    "request_",
    [
        {"Name": "abc"},
        {"Name": "abc", "Color": None},
        {"Name": "abc", "Unknown": 1},
        {"Name": "abc", "Count": 9, "Share": 1, "Flag": False, "When": 1.5, "Items": []},
        {"Name": "abc", "Labels": {"a": "b"}, "Choice": {"A": "a"}, "Items": [{"Key": "k"}]},
    ],
    ids=["least", "null-is-absent", "unknown-member", "bounds", "nested"],
)
def test_valid_requests_pass(request_: dict[str, Any]) -> None:
    validate(MODEL, "Do", request_)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"Name": None}, "Value null at 'name' failed to satisfy constraint: Member must not be"),
        ({"Name": "A"}, "Value 'A' at 'name' failed to satisfy constraint: Member must satisfy"),
        ({"Name": "abcde"}, "Member must have length less than or equal to 4"),
        ({"Secret": "abc"}, "Value at 'secret' failed to satisfy constraint: Member must have"),
        ({"Color": "blue"}, "Member must satisfy enum value set: [red, green]"),
        ({"Count": 0}, "Value '0' at 'count' failed to satisfy constraint: Member must have value"),
        ({"Count": 10}, "Member must have value less than or equal to 9"),
        ({"Share": 1.5}, "Value '1.5' at 'share' failed to satisfy constraint: Member must have"),
        ({"Items": [{}]}, "Value null at 'items.1.member.key' failed to satisfy constraint"),
        ({"Items": [{"Key": "k"}] * 3}, "at 'items' failed to satisfy constraint: Member must"),
        ({"Labels": {"a": "B"}}, "Value '{a=B}' at 'labels' failed to satisfy constraint: Map val"),
        ({"Labels": {"A": "b"}}, "Value '{A=b}' at 'labels' failed to satisfy constraint: Map key"),
        ({"Choice": {}}, "Exactly one member must be set: [A, B]"),
        ({"Choice": {"A": "a", "B": "b"}}, "Exactly one member must be set: [A, B]"),
    ],
)
def test_broken_constraint_is_named_in_the_services_words(
    members: dict[str, Any], expected: str
) -> None:
    assert expected in message({"Name": "abc", **members})


def test_all_broken_constraints_are_counted() -> None:
    text = message({"Color": "blue", "Count": 0})
    assert text.startswith("3 validation errors detected: Value null at 'name'")
    assert text.count("; Value ") == 2


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"Name": 1}, "NUMBER_VALUE can not be converted to a String at 'name'"),
        ({"Count": "1"}, "STRING_VALUE can not be converted to an Integer at 'count'"),
        ({"Count": 1.5}, "NUMBER_VALUE can not be converted to an Integer at 'count'"),
        ({"Count": True}, "TRUE_VALUE can not be converted to an Integer at 'count'"),
        ({"Share": "1"}, "STRING_VALUE can not be converted to a Double at 'share'"),
        ({"Flag": "true"}, "STRING_VALUE can not be converted to a Boolean at 'flag'"),
        ({"When": "now"}, "STRING_VALUE can not be converted to a Timestamp at 'when'"),
        ({"Items": {}}, "START_OBJECT can not be converted to a List at 'items'"),
        ({"Labels": []}, "START_ARRAY can not be converted to a Map at 'labels'"),
        ({"Choice": "a"}, "STRING_VALUE can not be converted to a structure at 'choice'"),
    ],
)
def test_wrong_json_type_is_a_serialization_error(members: dict[str, Any], expected: str) -> None:
    with pytest.raises(SerializationError) as caught:
        validate(MODEL, "Do", {"Name": "abc", **members})
    assert caught.value.message == expected


@pytest.mark.parametrize("service", ["sagemaker", "logs"])
def test_every_pattern_of_the_model_compiles(service: str) -> None:
    patterns = {
        shape["pattern"] for shape in load_model(service).shapes.values() if "pattern" in shape
    }
    assert len(patterns) > 10
    for pattern in patterns:
        matches(pattern, "")


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"[\p{L}\p{Z}\p{N}_.:\/=+\-@]*", "größe 1", True),
        (r"[\p{L}\p{Z}\p{N}_.:\/=+\-@]*", "a,b", False),
        (r"[a-z]{2}", "abc", False),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", "a\U0001f600", True),
    ],
    ids=["letters", "comma", "whole-text", "surrogates"],
)
def test_java_patterns_match_as_in_java(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected
