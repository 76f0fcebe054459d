"""Sources of a mixture: shares, and the faults that no run may start with."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from math import gcd
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.errors import SpecError
from trainyard.planning.estimate.work import data_key
from trainyard.specs.data_mixture import TOTAL_PARTS, parts_of, sources_in
from trainyard.specs.run_conf import RunConf

WEB: dict[str, Any] = {"source": "s3://b/web/", "weight": 3}
CODE: dict[str, Any] = {"source": "s3://b/code/", "weight": 1, "text_column": "content"}


def refusal(mixture: Any, **params: Any) -> str:
    with pytest.raises(SpecError) as caught:
        RunConf.from_mapping({"data_mixture": mixture, **params})
    return str(caught.value)


@given(
    weights=st.dictionaries(
        st.text("abcdef", min_size=1), st.floats(1e-300, 1e300), min_size=1, max_size=32
    )
)
def test_shares_add_up_and_are_the_weights_within_a_part(weights: dict[str, float]) -> None:
    parts = parts_of(weights)

    total, whole = sum(parts.values()), sum(map(Fraction, weights.values()))
    assert TOTAL_PARTS % total == 0
    assert gcd(*parts.values()) == 1
    for name, weight in weights.items():
        assert abs(Fraction(parts[name], total) - Fraction(weight) / whole) < Fraction(
            1, TOTAL_PARTS
        )


@pytest.mark.parametrize(
    ("weights", "parts"),
    [
        ({"web": 0.7, "code": 0.3}, {"code": 3, "web": 7}),
        ({"a": 2, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 1}),
        ({"a": 5, "b": 5, "c": 5}, {"a": 3334, "b": 3333, "c": 3333}),
    ],
    ids=["shares", "counts", "thirds"],
)
def test_worked_examples_of_shares(weights: dict[str, float], parts: dict[str, int]) -> None:
    assert parts_of(weights) == parts


def test_a_mixture_is_read_stored_and_split_by_source() -> None:
    conf = RunConf.from_mapping(
        {"data_mixture": {"web": WEB, "code": CODE}, "data_format": "jsonl"}
    )

    assert RunConf.from_mapping(asdict(conf)) == conf
    assert [
        (name, each.source, each.text_column, each.data_format, each.data_mixture)
        for name, each in conf.by_source.items()
    ] == [
        ("code", "s3://b/code/", "content", "jsonl", {}),
        ("web", "s3://b/web/", None, "jsonl", {}),
    ]
    assert RunConf(source="s3://b/x/").by_source == {"": RunConf(source="s3://b/x/")}


@pytest.mark.parametrize(
    ("mixture", "params", "says"),
    [
        (
            {"web": WEB},
            {},
            "data_mixture: has the wrong number of sources; got 1; allowed: 2 to 32",
        ),
        (
            {"web": WEB, "code": {"source": "s3://b/c/"}},
            {},
            "data_mixture.code.weight: is required",
        ),
        (
            {"web": WEB, "code": {**CODE, "weight": 0}},
            {},
            "data_mixture.code.weight: is not a weight; got 0; allowed: a number above 0",
        ),
        (
            {"web": WEB, "code": {**CODE, "weight": float("inf")}},
            {},
            "data_mixture.code.weight: has the wrong type or value; got inf",
        ),
        (
            {"web": WEB, "code": {**CODE, "weight": 1e-5}},
            {},
            "data_mixture.code.weight: is too small a share; got 3.33e-06 of the samples",
        ),
        ({"web": WEB, "code": {**CODE, "soruce": 1}}, {}, "did you mean 'source'?"),
        ({"web": WEB, "code": {**CODE, "source": " "}}, {}, "data_mixture.code.source: is empty"),
        (
            {"web": WEB, "Code:1": CODE},
            {},
            "data_mixture: has a source with an invalid name; got 'Code:1'",
        ),
        (
            {"web": WEB, "code": {**CODE, "data_format": "xml"}},
            {},
            "data_mixture.code.data_format: is not an allowed value; got 'xml'",
        ),
        ({"web": WEB, "more": WEB}, {}, "has a source several times; got s3://b/web/, 2 times"),
        (
            {"web": WEB, "code": CODE},
            {"source": "s3://b/x/"},
            "source: is set together with data_mixture",
        ),
        (
            {"web": WEB, "code": CODE},
            {"model": "mlp", "target_column": "y"},
            "data_mixture: needs token data, which the mlp model does not read",
        ),
        (
            {"web": WEB, "code": {**CODE, "source": "/data/code"}},
            {"shard_instance_count": 1},
            "got 1 with data_mixture.code.source '/data/code'; copy the data to S3",
        ),
        (
            {"web": {**WEB, "data_format": "tokens"}, "code": CODE},
            {},
            'vocab_size: is required for data_format "tokens"',
        ),
        (
            {"web": {**WEB, "data_format": "tokens"}, "code": {**CODE, "data_format": "text"}},
            {"vocab_size": 1000},
            "data_mixture.code.source: is text, but vocab_size is for token ids",
        ),
    ],
    ids=str,
)
def test_a_wrong_mixture_is_refused(mixture: Any, params: dict[str, Any], says: str) -> None:
    assert says in refusal(mixture, **params)


def test_sources_are_found_in_params_that_are_wrong_elsewhere() -> None:
    assert sources_in({"source": "/x"}) == {"source": "/x"}
    assert sources_in({"source": "/x", "data_mixture": {"web": WEB, "code": 3, "a": {}}}) == {
        "data_mixture.web.source": "s3://b/web/"
    }
    assert sources_in({"data_mixture": "web", "source": None}) == {}


def test_measurements_of_another_mixture_are_of_other_data() -> None:
    confs = [
        RunConf.from_mapping({"data_mixture": {"web": WEB, "code": {**CODE, "source": source}}})
        for source in ("s3://b/code/", "s3://b/books/")
    ]

    assert len({data_key(conf) for conf in [*confs, RunConf()]}) == 3
