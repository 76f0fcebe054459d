"""Turn a data set of any size into balanced shards and an index, in bounded memory.

For whom: the shard task of a DAG, the processing job that shards over several instances (`python -m
trainyard.sharding`), and anyone with a folder of files. What a training script reads back is described in `index.py`.

May import errors, units, catalog and specs, numpy, pandas, pyarrow and tokenizers (the last four only once data is
read: importing this package is cheap). Knows no AWS client: it writes through the
`Objects` seam (`objects.py`).

Promises: the same source and settings give byte-identical shards under the same address, and nothing is uploaded
twice; the index is written last, so its presence means the data set is complete; a row's split depends on its content
alone; memory does not grow with the data. Rows keep the source's order: shuffling is the sampler's work, by index.
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
