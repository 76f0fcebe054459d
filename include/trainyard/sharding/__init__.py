"""Sharding of a data set of any size into balanced shards and an index, in bounded memory.

Users are the shard task of a DAG, the processing job that shards on several instances (`python -m trainyard.sharding`),
and anyone with a folder of files. `index.py` describes the format that a training script reads.

May import errors, units, catalog and specs, and the libraries numpy, pyarrow, tokenizers and blake3. The libraries are
imported only when they are needed, so importing this package is cheap. The package accesses S3 through the interface
`Objects` (`objects.py`), not through an AWS client.

Promises:

- The same source and settings give byte-identical shards under the same address. With `checksums`, a repeated run
  uploads only what is missing.
- The index is written last, so its presence means that the data set is complete.
- The split of a row depends only on its content and the fractions of the splits.
- Memory does not grow with the data, except for the list of files and the index of a Megatron array.
- Rows keep the source's order; the sampler shuffles them by index.
"""

from trainyard.sharding.index import ShardIndex
from trainyard.sharding.objects import LocalObjects, ObjectHead, Objects
from trainyard.sharding.plan import DatasetPlan, plan_dataset
from trainyard.sharding.run import ShardingResult, shard_dataset
from trainyard.sharding.settings import DataFormat, ShardSettings, Source
from trainyard.sharding.shard_count import fit_num_shards

__all__ = [
    "DataFormat",
    "DatasetPlan",
    "LocalObjects",
    "ObjectHead",
    "Objects",
    "ShardIndex",
    "ShardSettings",
    "ShardingResult",
    "Source",
    "fit_num_shards",
    "plan_dataset",
    "shard_dataset",
]
