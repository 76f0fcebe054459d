"""How hyperparameters are read, converted and refused."""

from __future__ import annotations

import json

import pytest

from trainer.hyperparameters import Hyperparameters
from trainyard_watch.errors import HyperparameterError

pytestmark = pytest.mark.torch


def load(argv=(), **given):
    return Hyperparameters.load(json.dumps(given), argv)


def findings(argv=(), **given):
    with pytest.raises(HyperparameterError) as caught:
        load(argv, **given)
    return caught.value.findings


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_steps", "12", 12),
        ("max_steps", "1e3", 1000),
        ("seed", str(2**62 + 1), 2**62 + 1),
        ("learning_rate", "3e-4", 3e-4),
        ("compile", "True", True),
        ("compile", "false", False),
        ("micro_batch_size", "null", None),
        ("micro_batch_size", "", None),
        ("micro_batch_size", "8", 8),
        ("target_column", "age", "age"),
        ("precision", "bf16", "bf16"),
    ],
)
def test_text_becomes_the_type_of_the_hyperparameter(name, text, value):
    assert getattr(load(**{name: text}), name) == value


def test_values_of_their_own_type_are_kept():
    assert load(compile=True, max_steps=7, micro_batch_size=None).max_steps == 7


def test_defaults_are_valid():
    assert load() == Hyperparameters()


def test_names_of_the_platform_are_ignored():
    assert load(sagemaker_program="x", mp_parameters="{}", _tuning_objective_metric="y") == load()


@pytest.mark.parametrize("argv", [["--max_steps", "5"], ["--max_steps=5"]])
def test_options_override_the_environment(argv):
    assert load(argv, max_steps=9).max_steps == 5


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("max_steps", "many", "a whole number of at least 0"),
        ("max_steps", "1.5", "a whole number of at least 0"),
        ("num_layers", "0", "a whole number of at least 1"),
        ("learning_rate", "0", "a number above 0"),
        ("learning_rate", "nan", "a number above 0"),
        ("dropout", "1", "a number of at least 0 and at most 0.95"),
        ("compile", "perhaps", "true or false, or null"),
        ("precision", "fp8", "one of auto, fp32, bf16, fp16"),
        ("micro_batch_size", "-1", "a whole number of at least 1, or null"),
    ],
)
def test_wrong_value_names_what_was_got_and_what_is_allowed(name, value, allowed):
    (finding,) = findings(**{name: value})

    assert finding == f"hyperparameter {name!r}: got {value!r}; allowed: {allowed}"


def test_unknown_name_suggests_the_nearest():
    assert findings(lerning_rate=1) == (
        "unknown hyperparameter 'lerning_rate': did you mean 'learning_rate'?",
    )


def test_unknown_option_suggests_the_nearest():
    assert "did you mean 'max_steps'?" in findings(["--max_step", "3"])[0]


def test_contradictions_are_found():
    assert "num_heads may be one of [1, 2, 3, 4, 6" in findings(hidden_size=192, num_heads=5)[0]
    assert "never reach its peak" in findings(max_steps=5, warmup_steps=6)[0]
    assert "run has no end" in findings(max_steps=0)[0]
    assert "not a multiple" in findings(global_batch_size=10, micro_batch_size=4)[0]
    assert "it may be one of [1, 2, 4]" in findings(num_heads=4, num_kv_heads=3)[0]


SCALING = {
    "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize("given", [SCALING, json.dumps(SCALING)], ids=["object", "text"])
def test_rope_scaling_is_the_object_of_config_json(given):
    assert load(rope_scaling=given).decoder_config(vocab_size=7).rope_scaling == SCALING


@pytest.mark.parametrize(
    "change",
    [{"rope_type": "yarn"}, {"factor": 0}, {"factor": None}, {"beta": 1}, {"high_freq_factor": 1}],
    ids=str,
)
def test_other_rope_scaling_is_refused(change):
    (finding,) = findings(rope_scaling={**SCALING, **change})

    assert finding.startswith("rope_scaling is not valid: got {")


@pytest.mark.parametrize("text", ["llama3", "[]", "7"])
def test_rope_scaling_that_is_no_object_is_refused(text):
    assert findings(rope_scaling=text)[0].startswith("rope_scaling is not valid")


def test_defaults_are_the_decoder_of_earlier_releases():
    config = load().decoder_config(vocab_size=257).to_dict()

    assert config == {
        "kind": "gpt", "vocab_size": 257, "num_layers": 4, "num_heads": 4, "hidden_size": 128,
        "sequence_length": 256, "dropout": 0.0,
    }  # fmt: skip


def test_all_faults_come_together():
    assert len(findings(lerning_rate=1, precision="fp8", hidden_size=33)) == 3


@pytest.mark.parametrize("text", ["[]", "{", "3"])
def test_text_that_is_no_object_is_refused(text):
    with pytest.raises(HyperparameterError, match="SM_HPS"):
        Hyperparameters.load(text)
