"""Shapes have the parameters and operations that are published of them."""

from __future__ import annotations

import pytest

from trainyard.errors import SpecError
from trainyard.planning.run_plan import num_parameters
from trainyard.planning.shapes import PUBLISHED, ModelShape, shape_of_size
from trainyard.specs.run_conf import RunConf


@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [
        ("llama3-8b", 8_030_261_248, 0),
        ("llama3-70b", 70_553_706_496, 0),
        ("gpt3-175b", 175e9, 0.003),
        ("gpt2-124m", 124e6, 0.005),
    ],
)
def test_published_models_have_their_parameters(name: str, published: float, tolerance: float):
    assert PUBLISHED[name].num_parameters == pytest.approx(published, rel=tolerance)


def test_a_layer_of_llama_3_8b_as_in_the_docstring() -> None:
    assert PUBLISHED["llama3-8b"].layer_parameters == 218_112_000


def test_operations_of_gpt_3_are_narayanans() -> None:
    shape = PUBLISHED["gpt3-175b"]
    layers, h, s, v = 96, 12288, 2048, 51200

    narayanan = 72 * layers * h**2 * (1 + s / (6 * h) + v / (12 * h * layers))

    assert shape.flops_per_token == pytest.approx(narayanan, rel=1e-12)
    assert shape.flops_per_token == pytest.approx(1.0764e12, rel=1e-4)


def test_the_run_confs_count_is_of_the_same_model() -> None:
    conf = RunConf(num_layers=12, hidden_size=768, num_heads=12)
    shape = ModelShape(
        num_layers=12, hidden_size=768, num_heads=12, vocab_size=257, sequence_length=256
    )

    assert shape.num_parameters == pytest.approx(num_parameters(conf), rel=0.01)


@pytest.mark.parametrize("size", [1.2e8, 1e9, 8e9, 7e10, 1e12])
def test_a_number_of_parameters_gives_a_shape_of_about_it(size: float) -> None:
    shape = shape_of_size(size, vocab_size=50304, sequence_length=2048)

    assert shape.num_parameters == pytest.approx(size, rel=0.2)
    assert shape.hidden_size % 128 == shape.num_heads % 8 == shape.num_layers % 4 == 0


def test_eight_billion_as_in_the_docstring() -> None:
    shape = shape_of_size(8e9, vocab_size=128256, sequence_length=8192)

    assert (shape.num_layers, shape.hidden_size, shape.num_heads) == (32, 4224, 32)


def test_a_number_that_no_shape_has_is_refused() -> None:
    with pytest.raises(
        SpecError, match="is too far from every model shape that the planner can derive"
    ):
        shape_of_size(1e5, vocab_size=50304, sequence_length=2048)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_heads": 5}, "num_heads: does not divide hidden_size; got 5 with hidden_size 512"),
        ({"num_kv_heads": 3}, "num_kv_heads: does not divide num_heads; got 3 with num_heads 8"),
        ({"num_layers": 0}, "num_layers: is too small"),
        ({"family": "bert"}, "family: is not an allowed value; got 'bert'; allowed: llama, gpt"),
        ({"attention": "sparse"}, "allowed: flash, eager"),
    ],
)
def test_a_shape_that_contradicts_itself_is_refused(changes, says: str) -> None:
    shape = {
        "num_layers": 2,
        "hidden_size": 512,
        "num_heads": 8,
        "vocab_size": 9,
        "sequence_length": 4,
    }

    with pytest.raises(SpecError) as caught:
        ModelShape(**{**shape, **changes})

    assert says in str(caught.value)
