"""Bounds of the numbers in a conf, for the trigger form and for the checks.

Every number has bounds, because Airflow's processes cannot exchange numbers beyond 64 bits.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from trainyard.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from _typeshed import DataclassInstance

MAX_RUN_S = 28 * 24 * 3600
"""The longest training that SageMaker allows."""
LEAST_RUN_S = 60
"""The shortest time limit of a training that the form accepts."""
STOP_RESERVE_S, LEAST_STOP_RESERVE_S = 300, 120
"""Seconds reserved for a stop at the cost cap (`trainyard.cost.cost_cap`): the default, and the least, which is the
time between the service's SIGTERM and SIGKILL."""
LEAST_IDLE_MINUTES = 5
"""Smallest `stop_if_idle_minutes`. Hosts upload their samples up to a minute late; within 5 minutes all are there."""
MAX_WARM_POOL_S = 21_600
"""Longest warm pool by botocore's description of the API; the developer guide states 3,600 s."""
MAX_PROCESSING_RUN_S = 9 * 24 * 3600
MAX_PROCESSING_VOLUME_GB = 16_384
MAX_RETRY_ATTEMPTS = 30
USUAL_MOST = 10**9
MOST: dict[str, float] = {
    **dict.fromkeys(("num_layers", "num_heads", "num_kv_heads"), 2**12),
    **dict.fromkeys(("hidden_size", "feed_forward_size"), 2**20),
    **dict.fromkeys(
        ("instance_count", "tuning_instance_count", "smoke_instance_count", "max_instances"), 1000
    ),
    **dict.fromkeys(("sequence_length", "vocab_size", "global_batch_size", "max_length"), 2**24),
    **dict.fromkeys(
        ("max_run_s", "tuning_max_run_s", "smoke_max_run_s", "heartbeat_timeout_s"), MAX_RUN_S
    ),
    "processes_per_instance": 256,
    "micro_batch_size": 2**16,
    "max_wait_s": 2 * MAX_RUN_S,
    "volume_size_gb": 16_384,
    "shard_instance_count": 100,
    "num_shards": 10**6,
    **dict.fromkeys(("max_source_bytes", "evaluation_max_samples"), 2**53 - 1),
    "seed": 2**53 - 1,
    "max_retry_attempts": MAX_RETRY_ATTEMPTS,
    "approval_timeout_s": MAX_RUN_S,
    "keep_alive_period_in_seconds": MAX_WARM_POOL_S,
    "evaluation_max_run_s": MAX_PROCESSING_RUN_S,
    "evaluation_volume_size_gb": MAX_PROCESSING_VOLUME_GB,
    "num_parameters": 1e15,
    "tokens": 1e18,
}
"""Largest value by field; `USUAL_MOST` for others. A browser's form cannot write whole numbers from 2**53 exactly."""
AT_LEAST_ONE = (
    *("num_layers", "num_heads", "hidden_size", "sequence_length", "instance_count"),
    *("processes_per_instance", "max_run_s", "volume_size_gb", "global_batch_size"),
    *("micro_batch_size", "max_steps"),
    *("evaluation_max_run_s", "evaluation_volume_size_gb", "evaluation_max_samples"),
    *("rank", "batch_size", "max_length", "smoke_instance_count"),
)
AT_LEAST_ZERO = (
    *("num_shards", "max_source_bytes", "shard_instance_count", "warmup_steps", "seed"),
    *("vocab_size", "eval_interval", "early_stopping_patience", "heartbeat_timeout_s"),
    *("max_quota_wait_s", "max_retry_attempts"),
)
ABOVE_ZERO = (
    *("learning_rate", "epochs", "mean_time_to_interruption_s"),
    *("budget_usd", "max_cost_usd", "approval_above_usd", "deadline_h"),
)
LEAST: dict[str, int] = {
    **dict.fromkeys(AT_LEAST_ONE, 1),
    **dict.fromkeys(AT_LEAST_ZERO, 0),
    "approval_timeout_s": LEAST_RUN_S,
    "smoke_max_run_s": LEAST_RUN_S,
    "keep_alive_period_in_seconds": 1,
    "checkpoint_interval": -1,
    "stop_if_idle_minutes": LEAST_IDLE_MINUTES,
    "stop_reserve_s": LEAST_STOP_RESERVE_S,
}


MONEY_FIELDS = ("budget_usd", "max_cost_usd", "stop_reserve_s")
"""Fields of a cost cap or budget, in the spec of a job and in the conf of a run."""


def number_findings(
    conf: DataclassInstance, *, only: Container[str] | None = None
) -> Iterator[Finding]:
    """Yield an error for each number of a conf that is too small or too large; `only` selects the fields to check."""
    for name in (each.name for each in fields(conf) if only is None or each.name in only):
        value = getattr(conf, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        most = MOST.get(name, USUAL_MOST)
        if name in ABOVE_ZERO and value <= 0:
            yield _beyond(name, value, "small", "more than 0")
        elif value < LEAST.get(name, -math.inf):
            yield _beyond(name, value, "small", f"at least {LEAST[name]}")
        elif value > most:
            days = f" ({MAX_RUN_S // 86400} days)" if most == MAX_RUN_S else ""
            yield _beyond(name, value, "large", f"at most {most}{days}")


def _beyond(where: str, value: float, kind: str, allowed: str) -> Finding:
    got = str(value) if isinstance(value, int) else f"{value:g}"
    return Finding(where=where, what=f"is too {kind}", got=got, allowed=allowed)
