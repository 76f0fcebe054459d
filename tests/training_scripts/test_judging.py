"""Each script says by what its hyperparameters are judged, and it is what it trains with."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tensorflow_trainer.hyperparameters import TensorFlowHyperparameters
from tests.limits import EVENT_LIMIT_S
from train_horovod import HorovodTraining
from trainer.framework_hyperparameters import HuggingFaceHyperparameters
from trainer.hyperparameters import Hyperparameters
from trainer.judging import declared, judge
from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainer.sharding.training import ShardedTraining
from trainer.training import Training
from trainer.zero.training import ZeroTraining
from trainyard.specs.run_conf_rules import OF_SHARDS

SCRIPTS = Path(__file__).parents[2] / "training_scripts"
KINDS = {
    "train_ddp.py": Training.hyperparameters_class,
    "train_deepspeed.py": ZeroTraining.hyperparameters_class,
    "train_fsdp.py": ShardedTraining.hyperparameters_class,
    "train_horovod.py": HorovodTraining.hyperparameters_class,
    "train_huggingface.py": HuggingFaceHyperparameters,
    "train_tensorflow.py": TensorFlowHyperparameters,
}


def test_every_script_says_what_it_takes() -> None:
    assert {each.name: declared(each) for each in SCRIPTS.glob("train_*.py")} == KINDS


def test_what_the_sharded_script_has_more_is_known_to_the_specs() -> None:
    own = {each.name for each in dataclasses.fields(ShardedHyperparameters)}
    shared = {each.name for each in dataclasses.fields(Hyperparameters)}

    assert set(OF_SHARDS) == own - shared


@pytest.mark.parametrize(
    ("script", "ranks", "own", "says"),
    [
        ("train_ddp.py", 2, {"tensor_parallel_degree": 2}, "unknown hyperparameter"),
        ("train_ddp.py", 2, {"dropout": 1.5}, "a number of at least 0 and at most 0.95"),
        ("train_fsdp.py", 2, {"tensor_paralel_degree": 2}, "mean 'tensor_parallel_degree'?"),
        ("train_fsdp.py", 1, {"tensor_parallel_degree": 2}, "does not divide the 1 ranks"),
        (
            "train_fsdp.py",
            6,
            {"tensor_parallel_degree": 3, "sequence_length": 240},
            "does not divide num_heads 4",
        ),
        ("train_fsdp.py", 4, {"hybrid_shard_degree": 3}, "does not divide the 4 ranks"),
        (
            "train_fsdp.py",
            4,
            {"context_parallel_degree": 3, "sequence_length": 240},
            "ranks that share one copy",
        ),
        ("train_fsdp.py", 4, {"pipeline_parallel_degree": 8}, "does not divide the 4 ranks"),
        ("train_fsdp.py", 8, {"pipeline_parallel_degree": 8}, "is more than num_layers 4"),
        ("train_fsdp.py", 4, {"hybrid_shard_degree": "two"}, "a whole number of at least 0"),
        ("train_fsdp.py", 4, {"context_parallel_degree": 0}, "a whole number of at least 1"),
        ("train_fsdp.py", 2, {"precision": "fp16"}, "needs a loss scaler"),
        ("train_fsdp.py", 2, {"mp_parameters": {"experts": 1}}, "unknown key 'experts'"),
        ("train_deepspeed.py", 2, {"precision": "fp16"}, "needs a loss scaler"),
        ("train_deepspeed.py", 2, {"on_non_finite": "skip"}, "not possible under DeepSpeed"),
        ("train_horovod.py", 2, {"precision": "fp16"}, "needs a loss scaler"),
        ("train_tensorflow.py", 2, {"precision": "bf16"}, "leave it at 'fp32'"),
        (
            "train_tensorflow.py",
            2,
            {"micro_batch_size": 4},
            "leave micro_batch_size out, or set it to 8",
        ),
        ("train_huggingface.py", 2, {"model": "mlp"}, "leave it at 'gpt'"),
        ("train_huggingface.py", 2, {"num_kv_heads": 2}, "leave it at None"),
        ("train_tensorflow.py", 2, {"tied_embeddings": True}, "leave it at False"),
        ("train_huggingface.py", 2, {"tensor_parallel_degree": 2}, "unknown hyperparameter"),
    ],
)
def test_what_a_script_would_refuse(
    script: str, ranks: int, own: dict[str, Any], says: str
) -> None:
    (finding,) = judge(SCRIPTS / script, own, ranks=ranks)
    assert says in finding


LLAMA = {
    "model_type": "llama", "vocab_size": 257, "hidden_size": 128, "intermediate_size": 352,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("own", "content", "vocab_size", "says"),
    [
        ({"num_kv_heads": 2}, LLAMA, 257, []),
        ({"num_kv_heads": 2}, LLAMA, None, []),
        ({"num_kv_heads": 2}, LLAMA, 300, ["has a vocabulary of 300 tokens, but s3://b/m/"]),
        ({}, LLAMA, 257, ['num_kv_heads is 4 instead of 2; set {"num_kv_heads": 2}']),
        ({}, {**LLAMA, "model_type": "qwen3"}, 257, ["has model_type 'qwen3'; allowed is 'llama'"]),
        ({}, ["llama"], 257, ["is not a JSON object"]),
        ({"dropout": 2}, LLAMA, 300, []),  # reported without `init`
    ],
    ids=["same", "unknown-vocabulary", "vocabulary", "shape", "architecture", "list", "invalid"],
)
def test_initial_weights_that_a_script_would_refuse(
    own: dict[str, Any], content: Any, vocab_size: int | None, says: list[str]
) -> None:
    init = {"content": content, "file": "s3://b/m/config.json", "vocab_size": vocab_size}

    found = judge(SCRIPTS / "train_ddp.py", own, ranks=1, init=init)

    assert len(found) == len(says)
    assert all(text in each for text, each in zip(says, found, strict=True))


@pytest.mark.parametrize(
    ("script", "ranks", "own"),
    [
        ("train_ddp.py", 3, {"learning_rate": 1e-2, "dropout": 0.1}),
        ("train_fsdp.py", 1, {}),
        ("train_fsdp.py", 8, {"hybrid_shard_degree": 2, "tensor_parallel_degree": "2"}),
        ("train_fsdp.py", 4, {"pipeline_parallel_degree": 2, "context_parallel_degree": 2}),
        ("train_fsdp.py", 2, {"mp_parameters": {"tensor_parallel_degree": 2}}),
        ("train_deepspeed.py", 2, {"ds_config": {"zero_optimization": {"stage": 3}}}),
        ("train_deepspeed.py", 2, {"precision": "bf16"}),
        ("train_horovod.py", 2, {"precision": "bf16"}),
        ("train_tensorflow.py", 2, {"num_replicas": 2, "micro_batch_size": 8}),
        ("train_huggingface.py", 2, {"micro_batch_size": 4}),
        ("evaluate.py", 3, {"tensor_parallel_degree": 2, "anything": 1}),
        ("train_own.py", 3, {"tensor_parallel_degree": 2, "anything": 1}),
    ],
)
def test_what_a_script_takes(script: str, ranks: int, own: dict[str, Any]) -> None:
    assert judge(SCRIPTS / script, own, ranks=ranks) == []


def test_what_names_no_class_is_another_constant(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("HYPERPARAMETERS = 'learning_rate=0.1'\n")

    assert declared(script) is None
    assert judge(script, {"anything": 1}, ranks=1) == []


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import a_library_that_is_not_here", "ModuleNotFoundError: No module named 'a_library"),
        ("Misspelt = 1", "AttributeError: module 'own' has no attribute 'Own'"),
        ("raise SystemExit('no GPU')", "SystemExit: no GPU"),
        ("class Own:\n  load = lambda *_: 1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_one_that_cannot_be_asked_keeps_nobody_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, says: str
) -> None:
    (tmp_path / "own.py").write_text(f"print('I am imported')\n{module}\n")
    (tmp_path / "train_own.py").write_text("HYPERPARAMETERS = 'own:Own'\n")
    jobs = [
        {"entry_point": str(path), "hyperparameters": {"nothing": 1}, "ranks": 1}
        for path in (tmp_path / "train_own.py", SCRIPTS / "train_ddp.py")
    ]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    ended = subprocess.run(
        [sys.executable, "-m", "trainer.judging"],
        input=json.dumps(jobs),
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
        check=True,
        timeout=EVENT_LIMIT_S,
    )

    own, (other,) = json.loads(ended.stdout)
    assert own.startswith(says)
    assert "unknown hyperparameter" in other


def test_scripts_are_judged_without_any_framework() -> None:
    jobs = [{"entry_point": name, "hyperparameters": {"nothing": 1}, "ranks": 1} for name in KINDS]
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'numpy', 'tensorflow']))"
    run = "import runpy; runpy.run_module('trainer.judging', run_name='__main__')"

    ended = subprocess.run(
        [sys.executable, "-c", f"{blocked}; {run}"],
        input=json.dumps(jobs),
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
        check=True,
        timeout=EVENT_LIMIT_S,
    )

    assert [len(each) for each in json.loads(ended.stdout)] == [1] * len(KINDS)
