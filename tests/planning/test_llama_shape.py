"""The plan of a Llama, and the example of docs/llama_weights.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trainer.hyperparameters import Hyperparameters
from trainyard.planning.evaluation_plan import parameters
from trainyard.planning.run_plan import num_parameters, plan_run
from trainyard.planning.shapes import shape_settings
from trainyard.specs.run_conf import HYPERPARAMETERS, RunConf

PAGE = Path(__file__).parents[2] / "docs" / "llama_weights.md"
SCALING = {
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LLAMA_3_2_1B = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": SCALING, "tie_word_embeddings": True,
    "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "max_position_embeddings": 131072,
}  # fmt: skip
LLAMA_3_8B: dict[str, Any] = {
    "num_layers": 32, "num_heads": 32, "hidden_size": 4096, "data_format": "tokens",
    "vocab_size": 128256, "hyperparameters": {"num_kv_heads": 8, "feed_forward_size": "14336"},
}  # fmt: skip


def test_the_example_of_the_page_is_the_model_that_it_names() -> None:
    found = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    plan_run(json.loads(found[1]))
    conf = RunConf.from_mapping(json.loads(found[1]))
    given = {name: getattr(conf, name) for name in HYPERPARAMETERS} | {**conf.hyperparameters}

    script = Hyperparameters.load(json.dumps(given))

    assert script.init_findings(LLAMA_3_2_1B, file="config.json") == []


def test_a_llama_is_planned_with_its_published_number_of_parameters() -> None:
    conf = RunConf.from_mapping(LLAMA_3_8B)

    assert parameters(conf) == num_parameters(conf) == 8_030_261_248


def test_a_tied_embedding_counts_once() -> None:
    settings = {"num_kv_heads": 8, "feed_forward_size": 8192, "tied_embeddings": True}
    shape = {"num_layers": 16, "num_heads": 32, "hidden_size": 2048, "hyperparameters": settings}
    conf = RunConf.from_mapping({**LLAMA_3_8B, **shape})

    assert parameters(conf) == 1_235_814_400


@pytest.mark.parametrize("value", [0, -1, "many", None, 3], ids=str)
def test_values_that_the_script_rejects_are_left_out_of_the_plan(value: Any) -> None:
    assert shape_settings({"num_kv_heads": value}, num_heads=4) == {"has_tied_tables": False}
