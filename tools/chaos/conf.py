"""Conf of the chaos run: a real training on spot capacity, with enough steps for strikes, and short enough to watch."""

from __future__ import annotations

from typing import Any

CHAOS_CONF: dict[str, Any] = {
    "use_spot_instances": True,
    "max_run_s": 1800,
    "max_wait_s": 3600,
    "max_source_bytes": 2_000_000,
    "validation_fraction": 0.1,
    "test_fraction": 0.1,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_size": 64,
    "sequence_length": 128,
    "max_steps": 600,
    "warmup_steps": 60,
    "eval_interval": 200,
    "checkpoint_interval": 25,
    "heartbeat_timeout_s": 45,
    "max_retry_attempts": 0,  # a lost host ends the job, and the test is whether the run survives that
    "hyperparameters": {"log_interval": 1},
}
