"""Numerics of the models against references."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.nn import functional

from trainer.models import build
from trainer.models.gpt import GPT, GPTConfig, RMSNorm, attend, rope_tables, rotate
from trainer.models.mlp import MLP, MLPConfig, embedding_size
from trainer.tasks import LanguageTask, TableTask
from trainyard.specs.run_conf_tuning import THROUGHPUTS

pytestmark = pytest.mark.torch
CONFIG = GPTConfig(vocab_size=11, num_layers=2, num_heads=2, hidden_size=16, sequence_length=12)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_rms_norm_matches_its_formula_and_worked_number():
    hidden = torch.randn(3, 5, 8)
    norm = RMSNorm(8)
    torch.nn.init.normal_(norm.weight)

    expected = hidden / (hidden.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight

    torch.testing.assert_close(norm(hidden), expected)
    torch.testing.assert_close(
        norm(hidden), functional.rms_norm(hidden, (8,), norm.weight, norm.eps)
    )
    worked = RMSNorm(2)(torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(worked, torch.tensor([0.8485, 1.1314]), atol=1e-4, rtol=0)


def test_rms_norm_of_bf16_is_computed_in_float32():
    hidden = torch.randn(4, 64).bfloat16()

    assert RMSNorm(64)(hidden).dtype is torch.bfloat16
    torch.testing.assert_close(RMSNorm(64)(hidden), RMSNorm(64)(hidden.float()).bfloat16())


def tables(num_positions):
    """Return the rotary tables of heads of width 8."""
    config = GPTConfig(
        vocab_size=1, num_layers=1, num_heads=1, hidden_size=8, sequence_length=num_positions
    )
    return rope_tables(config)


def test_rotation_equals_multiplication_by_complex_numbers():
    heads = torch.randn(2, 3, 7, 8)
    cos, sin = tables(7)

    turned = rotate(heads, cos, sin)

    first, second = heads.chunk(2, dim=-1)
    angle = torch.outer(torch.arange(7.0), 10_000 ** (-torch.arange(0, 8, 2) / 8))
    expected = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(turned, torch.cat([expected.real, expected.imag], dim=-1))


def test_rotated_products_depend_on_the_distance_only():
    cos, sin = tables(32)
    query, key = torch.randn(8), torch.randn(8)

    def product(position, other):
        at = [rotate(v.view(1, 1, 1, 8), cos[p : p + 1], sin[p : p + 1])
              for v, p in ((query, position), (key, other))]  # fmt: skip
        return (at[0] * at[1]).sum()

    torch.testing.assert_close(product(3, 1), product(30, 28))


def test_grouped_heads_are_repeated_for_kernels_without_groups():
    query, key = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8)

    grouped = attend(query, key, key, is_causal=True)

    repeated = key.repeat_interleave(2, dim=1)
    torch.testing.assert_close(grouped, attend(query, repeated, repeated, is_causal=True))
    assert attend(query.to("meta"), key.to("meta"), key.to("meta")).shape == query.shape


def test_decoder_does_not_look_ahead():
    model = GPT(CONFIG).eval()
    tokens = torch.randint(11, (1, 12))
    changed = tokens.clone()
    changed[0, 8:] = (changed[0, 8:] + 1) % 11

    difference = (model(tokens) - model(changed)).abs().amax(dim=(0, 2))

    assert difference[:8].max() < 1e-5
    assert difference[8:].min() > 1e-4


def test_untrained_decoder_is_as_unsure_as_a_uniform_guess():
    tokens = torch.randint(11, (8, 12))

    loss = functional.cross_entropy(GPT(CONFIG)(tokens).flatten(0, 1), tokens.flatten())

    assert loss.item() == pytest.approx(torch.tensor(11.0).log().item(), abs=0.1)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        MLPConfig(
            means=[1.0], stds=[2.0], category_sizes=[3], num_outputs=2, num_layers=1, hidden_size=4
        ),
    ],
    ids=["gpt", "mlp"],
)
def test_model_is_rebuilt_from_its_config(config):
    model = build(config.to_dict())

    again = build(config.to_dict())
    again.load_state_dict(model.state_dict())

    assert type(again) is type(model)
    assert again.state_dict().keys() == model.state_dict().keys()


def test_unknown_kind_of_model_is_refused():
    with pytest.raises(ValueError, match="'cnn'; known are gpt and mlp"):
        build({"kind": "cnn"})


def test_perceptron_takes_a_number_that_is_missing_or_too_large_as_the_mean():
    config = MLPConfig(
        means=[5.0], stds=[2.0], category_sizes=[], num_outputs=1, num_layers=1, hidden_size=4
    )
    model = MLP(config).eval()
    seen = []
    model.layers.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))

    numbers = [[math.nan], [math.inf], [-math.inf], [1e300], [9.0]]
    model(torch.tensor(numbers, dtype=torch.float64), torch.empty(5, 0, dtype=torch.int64))

    torch.testing.assert_close(seen[0], torch.tensor([[0.0, 1.0]] * 4 + [[2.0, 0.0]]))


def test_perceptron_gives_a_missing_category_its_own_embedding():
    config = MLPConfig(
        means=[], stds=[], category_sizes=[10], num_outputs=1, num_layers=1, hidden_size=4
    )
    model = MLP(config)

    assert model.embeddings[0].weight.shape == (11, embedding_size(10)) == (11, 5)
    assert model(torch.empty(2, 0), torch.tensor([[-1], [9]])).shape == (2, 1)


def test_a_search_knows_the_throughput_that_a_model_logs():
    tasks = {"gpt": LanguageTask, "mlp": TableTask}
    units = {
        model: next(each.default for each in dataclasses.fields(task) if each.name == "unit")
        for model, task in tasks.items()
    }

    assert {m: f"train:{unit}_per_second" for m, unit in units.items()} == THROUGHPUTS
