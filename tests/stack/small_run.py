"""A run that is real and small: two ranks, twenty steps, a part of the standard library's source."""

from __future__ import annotations

SMALL_RUN = {
    "max_source_bytes": 1_000_000,
    "validation_fraction": 0.2,
    "test_fraction": 0.2,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_size": 32,
    "sequence_length": 32,
    "global_batch_size": 8,
    "micro_batch_size": 4,
    "max_steps": 20,
    "warmup_steps": 2,
    "eval_interval": 10,
    "checkpoint_interval": 10,
}

SUCCEEDED = {
    **dict.fromkeys(
        ("preflight", "shard", "train", "watch_rules", "evaluate", "register", "report", "outcome"),
        "success",
    ),
    **dict.fromkeys(("smoke_test", "tune", "set_up_monitoring", "tear_down_monitoring"), "skipped"),
}
"""Its tasks' states once it has succeeded: it has no search, no alarms and no dashboard."""
