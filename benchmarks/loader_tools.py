"""Work of one tool in the loader benchmark, in a separate process: `loader_tools.py OPTIONS`, with options as JSON.

The action `prepare` writes the data in the tool's format. The actions `epochs`, `half` and `resume` read it from S3
into batches of token ids, and print the figures as one JSON line. All actions have the same seed. The first two ids of
a sample are its number.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import pickle
import resource
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import checkout  # noqa: F401  # finds the imports below
import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BASE = 1 << 16
SEED = 0
BUFFER = 1000
"""Samples in the shuffle buffer of the tools that have one."""


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """Options of one process of the benchmark.

    Attributes:
        folder: folder of the written data, or of the cache of a reader.
        state: file of the state in the middle of the first epoch.
    """

    tool: str
    action: str
    folder: str
    num_samples: int
    length: int
    batch_size: int
    num_files: int
    bucket: str = ""
    endpoint: str = ""
    state: str = ""

    @property
    def num_batches(self) -> int:
        """Number of whole batches in an epoch, without the last sample, which lacks the token after it."""
        return (self.num_samples - 1) // self.batch_size

    def client(self) -> Any:
        """Return an S3 client."""
        import boto3

        return boto3.client("s3", **credentials(self.endpoint))


@dataclass(frozen=True, kw_only=True)
class ToolReader:
    """Opened data of one tool.

    Attributes:
        epoch: returns the batches (int64, batch x length) from the current position to the end of the epoch.
        state: returns the state after a number of batches, from which a new process resumes.
    """

    epoch: Callable[[], Iterable[torch.Tensor]]
    state: Callable[[int], Any]


def credentials(endpoint: str) -> dict[str, str]:
    """Return the arguments of a boto3 client of the engine's S3, which accepts any keys."""
    return {
        "endpoint_url": endpoint,
        "region_name": "us-east-1",
        "aws_access_key_id": "testing",
        "aws_secret_access_key": "testing",
    }


def rows(options: ToolOptions) -> np.ndarray:
    """Return the samples as uint16 ids."""
    ids = np.random.default_rng(SEED).integers(
        0, BASE, (options.num_samples, options.length), dtype=np.uint16
    )
    ids[:, 1], ids[:, 0] = np.divmod(np.arange(options.num_samples), BASE)
    return ids


def write_ours(options: ToolOptions) -> None:
    """Shard an array with Trainyard."""
    from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset

    folder = Path(options.folder)
    np.save(folder / "rows.npy", rows(options))
    result = shard_dataset(
        Source(uri=str(folder / "rows.npy")),
        ShardSettings(
            num_shards=options.num_files, vocab_size=BASE, validation_fraction=0, test_fraction=0
        ),
        LocalObjects(folder / "store"),
        destination="s3://bucket/data",
        work_dir=folder / "work",
    )
    Path(folder / "store" / result.uri.removeprefix("s3://")).rename(folder / "out")


def read_ours(options: ToolOptions, state: Any) -> ToolReader:
    """Copy all shards to disk, as SageMaker's File mode does, and check them, as the training scripts do."""
    from trainer.data.loader import training_batches
    from trainer.data.sample_order import RankBatches, SampleOrder
    from trainer.data.shard_index import ChannelIndex
    from trainer.data.token_blocks import TokenBlocks

    client, channels = options.client(), Path(options.folder)
    for each in client.list_objects_v2(Bucket=options.bucket)["Contents"]:
        path = channels / each["Key"]
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(options.bucket, each["Key"], str(path))
    index = ChannelIndex.load(channels / "index")
    blocks = TokenBlocks.open(
        index, "train", channels / "train", sequence_length=options.length, verify=True
    )
    first = state or 0
    batches = training_batches(
        blocks,
        RankBatches(
            order=SampleOrder(num_samples=len(blocks), seed=SEED),
            start=first * options.batch_size,
            global_batch_size=options.batch_size,
            micro_batch_size=options.batch_size,
            rank=0,
            world_size=1,
        ),
        num_workers=0,
        device=torch.device("cpu"),
    )
    sizes = itertools.chain([options.num_batches - first], itertools.repeat(options.num_batches))

    def epoch() -> Iterator[torch.Tensor]:
        for (inputs, _), _ in itertools.islice(batches, next(sizes)):
            yield inputs

    return ToolReader(epoch=epoch, state=lambda done: first + done)


def write_litdata(options: ToolOptions) -> None:
    """Optimise for litdata's loader of tokens."""
    from litdata import TokensLoader, optimize

    folder = Path(options.folder)
    np.save(folder / "rows.npy", rows(options))
    optimize(
        fn=functools.partial(_row, str(folder / "rows.npy")),
        inputs=list(range(options.num_samples)),
        output_dir=str(folder / "out"),
        chunk_size=-(-options.num_samples // options.num_files) * options.length,
        num_workers=1,
        item_loader=TokensLoader(),
    )


def _row(path: str, number: int) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[number])


def read_litdata(options: ToolOptions, state: Any) -> ToolReader:
    """Stream chunks, shuffled within and across chunks, with litdata's own state."""
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # noqa: SLF001 - it has no option for this
    dataset = StreamingDataset(
        f"s3://{options.bucket}/",
        cache_dir=options.folder,
        item_loader=TokensLoader(block_size=options.length),
        shuffle=True,
        seed=SEED,
        max_cache_size="8GB",
        storage_options=credentials(options.endpoint),
    )
    loader = StreamingDataLoader(dataset, batch_size=options.batch_size, num_workers=0)
    if state is not None:
        loader.load_state_dict(state)
    return ToolReader(
        epoch=lambda: (batch.to(torch.int64) for batch in loader),
        state=lambda _: loader.state_dict(),
    )


def write_webdataset(options: ToolOptions) -> None:
    """Write tar archives with the raw ids of a sample per file."""
    folder = Path(options.folder) / "out"
    for number, part in enumerate(np.array_split(rows(options), options.num_files)):
        with tarfile.open(folder / f"{number:05d}.tar", "w") as archive:
            for at, row in enumerate(part):
                info = tarfile.TarInfo(f"{number:05d}-{at:07d}.ids")
                info.size = row.nbytes
                archive.addfile(info, io.BytesIO(row.tobytes()))


def read_webdataset(options: ToolOptions, state: Any) -> ToolReader:
    """Stream archives with a shuffle buffer. There is no state: a resume reads the consumed batches again."""
    import webdataset as wds

    client = options.client()
    addresses = [
        client.generate_presigned_url(
            "get_object", Params={"Bucket": options.bucket, "Key": each["Key"]}
        )
        for each in client.list_objects_v2(Bucket=options.bucket)["Contents"]
    ]
    pipeline = wds.DataPipeline(
        wds.SimpleShardList(addresses),
        wds.detshuffle(bufsize=len(addresses), seed=SEED),
        wds.tarfile_to_samples(),
        wds.detshuffle(bufsize=BUFFER, seed=SEED),
        wds.map(lambda sample: np.frombuffer(sample["ids"], np.uint16)),
        wds.batched(options.batch_size, collation_fn=np.stack),
    )
    skipped = iter([state or 0])

    def epoch() -> Iterator[torch.Tensor]:
        for batch in itertools.islice(pipeline, next(skipped, 0), None):
            yield torch.from_numpy(batch.astype(np.int64))

    return ToolReader(epoch=epoch, state=lambda done: done)


def write_huggingface(options: ToolOptions) -> None:
    """Write Parquet files with a column of lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(options.folder) / "out"
    for number, part in enumerate(np.array_split(rows(options), options.num_files)):
        ends = np.arange(0, part.size + 1, options.length, dtype=np.int32)
        ids = pa.ListArray.from_arrays(ends, pa.array(part.reshape(-1)))
        pq.write_table(pa.table({"ids": ids}), folder / f"{number:05d}.parquet")


def read_huggingface(options: ToolOptions, state: Any) -> ToolReader:
    """Stream Parquet files with a shuffle buffer, with the state of Hugging Face's own data sets."""
    from datasets import load_dataset

    found = options.client().list_objects_v2(Bucket=options.bucket)["Contents"]
    dataset = load_dataset(
        "parquet",
        data_files=[f"s3://{options.bucket}/{each['Key']}" for each in found],
        split="train",
        streaming=True,
        cache_dir=options.folder,
        storage_options={
            "key": "testing",
            "secret": "testing",
            "client_kwargs": {"endpoint_url": options.endpoint, "region_name": "us-east-1"},
        },
    )
    dataset = dataset.with_format("numpy").shuffle(seed=SEED, buffer_size=BUFFER)
    dataset = dataset.batch(options.batch_size)
    if state is not None:
        dataset.load_state_dict(state)
    numbers = itertools.count()

    def epoch() -> Iterator[torch.Tensor]:
        if number := next(numbers):
            dataset.set_epoch(number)
        for batch in dataset:
            yield torch.from_numpy(np.stack(batch["ids"]).astype(np.int64))

    return ToolReader(epoch=epoch, state=lambda _: dataset.state_dict())


TOOLS: dict[str, tuple[Callable[[ToolOptions], None], Callable[[ToolOptions, Any], ToolReader]]] = {
    "trainyard": (write_ours, read_ours),
    "litdata": (write_litdata, read_litdata),
    "webdataset": (write_webdataset, read_webdataset),
    "huggingface": (write_huggingface, read_huggingface),
}


def measure(options: ToolOptions, read: Callable[[ToolOptions, Any], ToolReader]) -> dict[str, Any]:
    """Return the seconds until the first batch and of each epoch, and the samples of the first epoch."""
    state = pickle.loads(Path(options.state).read_bytes()) if options.action == "resume" else None  # noqa: S301 - our own
    import_packages(options.tool)
    began, used = time.perf_counter(), sum(os.times()[:4])
    reader = read(options, state)
    limit = options.num_batches // 2 if options.action == "half" else None
    first_batch, samples, epochs = 0.0, [], []
    for number in range(2 if options.action == "epochs" else 1):
        started, count = time.perf_counter() if number else began, 0
        for done, batch in enumerate(itertools.islice(reader.epoch(), limit), start=1):
            first_batch = first_batch or time.perf_counter() - began
            numbers = (batch[:, 0] + BASE * batch[:, 1]).tolist()
            count += len(numbers)
            if number == 0:
                samples += numbers
            if done == limit:
                Path(options.state).write_bytes(pickle.dumps(reader.state(done)))
        epochs.append((count, time.perf_counter() - started))
    return {
        "first_batch": first_batch,
        "epochs": epochs,
        "processor_seconds": sum(os.times()[:4]) - used,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "samples": samples,
    }


def import_packages(tool: str) -> None:
    """Import the tool's packages before the measurement, so no time includes the imports."""
    import boto3  # noqa: F401

    match tool:
        case "litdata":
            import litdata  # noqa: F401
        case "webdataset":
            import webdataset  # noqa: F401
        case "huggingface":
            import datasets  # noqa: F401
            import s3fs  # noqa: F401
        case _:
            import trainer.data.token_blocks  # noqa: F401


def main(text: str) -> None:
    """Run one action."""
    options = ToolOptions(**json.loads(text))
    torch.set_num_threads(1)
    write, read = TOOLS[options.tool]
    if options.action == "prepare":
        Path(options.folder, "out").mkdir()
        write(options)
        return
    sys.stdout.write(json.dumps(measure(options, read)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # engines with threads of their own take their time to leave


if __name__ == "__main__":
    main(*sys.argv[1:])
