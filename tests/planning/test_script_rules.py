"""What our scripts would refuse is told before a job is paid."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from include.planning.script_rules import script_findings
from include.specs.run_conf_rules import OF_SHARDS
from trainer.hyperparameters import Hyperparameters
from trainer.sharding.hyperparameters import ShardedHyperparameters

SHARED = {"num_heads": 4, "learning_rate": 1e-3}


def told(entry_point: str, ranks: int, **own: Any) -> list[str]:
    return [
        str(each)
        for each in script_findings(entry_point, own, SHARED, ranks=ranks, where="hyperparameters")
    ]


def test_what_the_sharded_script_has_more_is_known() -> None:
    own = {each.name for each in dataclasses.fields(ShardedHyperparameters)}
    shared = {each.name for each in dataclasses.fields(Hyperparameters)}

    assert set(OF_SHARDS) == own - shared


@pytest.mark.parametrize(
    ("entry_point", "ranks", "own", "says"),
    [
        ("train_ddp.py", 2, {"tensor_parallel_degree": 2}, "is no key anybody knows"),
        (
            "train_fsdp.py",
            2,
            {"tensor_paralel_degree": 2},
            "did you mean 'tensor_parallel_degree'?",
        ),
        ("train_fsdp.py", 1, {"tensor_parallel_degree": 2}, "no part of the ranks"),
        ("train_fsdp.py", 6, {"tensor_parallel_degree": 3}, "does not divide num_heads 4"),
        ("train_fsdp.py", 4, {"hybrid_shard_degree": 3}, "does not divide the 4 ranks"),
        ("train_fsdp.py", 4, {"context_parallel_degree": 3}, "ranks that share a shard"),
        ("train_fsdp.py", 4, {"pipeline_parallel_degree": 8}, "no part of the ranks"),
        ("train_fsdp.py", 4, {"hybrid_shard_degree": "two"}, "must be whole numbers"),
        ("train_fsdp.py", 4, {"context_parallel_degree": 0}, "the other degrees 1 or more"),
    ],
)
def test_what_a_script_would_refuse(
    entry_point: str, ranks: int, own: dict[str, Any], says: str
) -> None:
    (finding,) = told(entry_point, ranks, **own)
    assert says in finding


@pytest.mark.parametrize(
    ("entry_point", "ranks", "own"),
    [
        ("train_ddp.py", 3, {"learning_rate": 1e-2, "dropout": 0.1}),
        ("train_fsdp.py", 1, {}),
        ("train_fsdp.py", 8, {"hybrid_shard_degree": 2, "tensor_parallel_degree": "2"}),
        ("train_fsdp.py", 4, {"pipeline_parallel_degree": 2, "context_parallel_degree": 2}),
        ("train_own.py", 3, {"tensor_parallel_degree": 2, "anything": 1}),
    ],
)
def test_what_a_script_takes(entry_point: str, ranks: int, own: dict[str, Any]) -> None:
    assert told(entry_point, ranks, **own) == []
