"""Number of shards of each split. Every reader gets the same number of train shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from trainyard.sharding.settings import ShardSettings


def fit_num_shards(settings: ShardSettings, *, train_bytes: int) -> int:
    """Return the number of train shards: `num_shards` of the settings, or a derived number if `num_shards` is 0.

    The number of readers is instances x processes x loader workers. The derived number is the smallest multiple
    of the number of readers that gives shards of at most `target_shard_bytes` on average.

    Args:
        settings: settings of the shards.
        train_bytes: expected bytes of the train split's shards.

    Raises:
        SpecError: `num_shards` is not a multiple of the number of readers.
    """
    readers = settings.num_readers
    if settings.num_shards == 0:
        wanted = -(-train_bytes // settings.target_shard_bytes)
        return max(1, -(-wanted // readers)) * readers
    if settings.num_shards % readers:
        raise SpecError(_uneven(settings), subject="shard settings")
    return settings.num_shards


def held_out_shards(num_shards: int, *, fraction: float, train_fraction: float, share: int) -> int:
    """Return the number of shards of a held-out split, in proportion to the `num_shards` of the train split.

    The result is rounded up to a multiple of `share`, the number of instances that divide the shards among them. It
    is at most `num_shards`, and 0 for a fraction of 0.
    `held_out_shards(64, fraction=0.05, train_fraction=0.9, share=2)` is 4.
    """
    if fraction == 0:
        return 0
    per_mille = max(1, int(train_fraction * 1000))
    wanted = max(1, -(-int(num_shards * fraction * 1000) // per_mille))
    return min(num_shards, -(-wanted // share) * share)


def _uneven(settings: ShardSettings) -> Finding:
    readers = settings.num_readers
    below = settings.num_shards // readers * readers
    fitting = " or ".join(str(each) for each in (below, below + readers) if each)
    return Finding(
        where="num_shards",
        what="cannot be divided evenly among the readers",
        got=str(settings.num_shards),
        allowed=(
            f"0 to choose the number automatically, or a multiple of {readers} ({settings.instance_count} "
            f"instance(s) x {settings.processes_per_instance} process(es) x {max(1, settings.num_workers)} worker(s)), "
            f"for example {fitting}"
        ),
    )
