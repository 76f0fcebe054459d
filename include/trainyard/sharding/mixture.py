"""Index of a data mixture: several data sets of tokens, each with a share, for one training.

A mixture copies no shards. Below its own prefix it has `index/index.json`, which lists the shards of all
sources. It also has a manifest for each split, such as `train.manifest`. The manifest lists the files of a
job's channel, so a split is one channel for any number of sources. In the channel, each data set has a
folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.sharding.index import INDEX_NAME, dataset_uri
from trainyard.sharding.split_rule import SPLITS
from trainyard.sharding.uploads import digest_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainyard.sharding.index import ShardIndex
    from trainyard.sharding.objects import Objects

FORMAT, VERSION = "trainyard-mixture", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedSource:
    """One source of a mixture: its name, the index of its data set, and its share.

    The share is `parts` divided by the sum of the `parts` of all sources.
    """

    name: str
    parts: int
    index: ShardIndex

    def folder(self, destination: str) -> str:
        """Return the name of the data set's folder in the channel.

        The data set's prefix is `<destination>/datasets/<folder>`, and `<folder>` is this name. It differs from
        `name`, the name of the source.
        """
        return self.index.uri(destination).rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A complete mixture.

    Attributes:
        uri: prefix of its index and manifests.
        index: content of its index.
    """

    uri: str
    fingerprint: str
    index: Mapping[str, Any]


def manifest_uri(mixture_uri: str, split: str) -> str:
    """Return the address of the manifest of a split."""
    return f"{mixture_uri}/{split}.manifest"


def write_mixture(
    sources: Sequence[ShardedSource], objects: Objects, *, destination: str
) -> Mixture:
    """Write the manifests and the index of a mixture, and return the mixture.

    Repeated calls write the same content.

    Args:
        sources: the data sets, sharded to the same destination.
        objects: store of the shards.
        destination: `s3://bucket/prefix`; the mixture is stored at `datasets/<fingerprint>/` below it.

    Raises:
        SpecError: a data set is a table instead of tokens, or two data sets have different vocabularies or the
            same content. The error lists all such faults.
    """
    sources = sorted(sources, key=lambda each: each.name)
    if findings := list(_findings(sources)):
        raise SpecError(findings, subject="data mixture")
    known = [[each.name, each.parts, each.index.fingerprint] for each in sources]
    fingerprint = hashlib.sha256(json.dumps([FORMAT, VERSION, known]).encode()).hexdigest()
    uri = dataset_uri(destination, fingerprint)
    index = _index(sources, fingerprint, destination=destination)
    root = uri.rpartition("/")[0] + "/"
    with tempfile.TemporaryDirectory(prefix="mixture-") as folder:
        for split in SPLITS:
            names = [shard["file"] for shard in index["splits"][split]["shards"]]
            _put(objects, manifest_uri(uri, split), [{"prefix": root}, *names], Path(folder))
        _put(objects, f"{uri}/{INDEX_NAME}", index, Path(folder))
    return Mixture(uri=uri, fingerprint=fingerprint, index=index)


def _findings(sources: Sequence[ShardedSource]) -> Iterator[Finding]:
    """Yield the faults of data sets that cannot be mixed."""
    tokens = [each for each in sources if each.index.kind == "tokens"]
    for each in sources:
        if each not in tokens:
            yield not_of_tokens(each.name, str(each.index.source.get("uri")))
    for each in tokens[1:]:
        if each.index.tokenizer != tokens[0].index.tokenizer:
            yield Finding(
                where=f"data_mixture.{each.name}",
                what=f"has another vocabulary than data_mixture.{tokens[0].name}",
                got=f"{_vocabulary(each)}, but data_mixture.{tokens[0].name} has {_vocabulary(tokens[0])}",
                allowed="one vocabulary for all sources",
                next_step="set tokenizer to the file of the tokenizer that created the token ids",
            )
    names: dict[str, str] = {}
    for each in sources:
        if (other := names.setdefault(each.index.fingerprint, each.name)) != each.name:
            yield Finding(
                where=f"data_mixture.{each.name}",
                what=f"has the same content as data_mixture.{other}",
                got=str(each.index.source.get("uri")),
                next_step="keep one of them, with the sum of their weights",
            )


def not_of_tokens(name: str, uri: str) -> Finding:
    """Return the finding on a source of a mixture that is a table without a text column."""
    return Finding(
        where=f"data_mixture.{name}",
        what="is a table, but a mixture consists of tokens",
        got=uri,
        allowed="text, token ids, or a table with text_column",
        next_step=f"set data_mixture.{name}.text_column to the column with the text or the token ids",
    )


def _vocabulary(source: ShardedSource) -> str:
    tokenizer = source.index.tokenizer or {}
    name, size = tokenizer.get("name"), tokenizer.get("vocab_size")
    return f"vocabulary {name!r} of size {size} with eos_token_id {tokenizer.get('eos_token_id')}"


def _index(
    sources: Sequence[ShardedSource], fingerprint: str, *, destination: str
) -> dict[str, Any]:
    """Return the content of the mixture's index.

    It has the form of a data set's index. The additional member `sources` describes each source and its
    share.
    """
    origins = [each.index.source for each in sources]
    total = sum(each.parts for each in sources)
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": "tokens",
        "fingerprint": fingerprint,
        "sources": [
            {
                "name": each.name,
                "parts": each.parts,
                "share": each.parts / total,
                "dataset_uri": each.index.uri(destination),
                "fingerprint": each.index.fingerprint,
                "source": dict(each.index.source),
                "num_tokens": {name: s.num_tokens for name, s in each.index.splits.items()},
            }
            for each in sources
        ],
        "source": {
            "uri": ", ".join(f"{s.name}: {s.index.source.get('uri')}" for s in sources),
            "files": sum(each.get("files") or 0 for each in origins),
            "bytes": sum(each.get("bytes") or 0 for each in origins),
        },
        "bad_rows": {"count": sum(each.index.bad_rows.get("count") or 0 for each in sources)},
        "tokenizer": dict(sources[0].index.tokenizer or {}),
        "dtype": sources[0].index.dtype,
        "baseline": _baseline(sources, total),
        "splits": {
            split: {
                "num_rows": sum(each.index.splits[split].num_rows for each in sources),
                "num_tokens": sum(each.index.splits[split].num_tokens or 0 for each in sources),
                "shards": list(_shards(sources, split, destination)),
            }
            for split in SPLITS
        },
    }


def _baseline(sources: Sequence[ShardedSource], total: int) -> dict[str, float] | None:
    """Return the mean of the sources' unigram losses, weighted by their shares; None if a loss is unknown."""
    losses = [(each.index.baseline or {}).get("unigram_loss_nats") for each in sources]
    known = [loss for loss in losses if loss is not None]
    if len(known) < len(sources):
        return None
    mean = sum(each.parts * loss for each, loss in zip(sources, known, strict=True)) / total
    return {"unigram_loss_nats": mean}


def _shards(
    sources: Sequence[ShardedSource], split: str, destination: str
) -> Iterator[dict[str, Any]]:
    """Yield one entry per shard of the split, source by source.

    An entry's `file` is the path of the shard below the folder that contains all data sets:
    `<folder of the shard's data set>/<shard>`.
    """
    for each in sources:
        folder = each.folder(destination)
        for shard in each.index.splits[split].shards:
            yield {**asdict(shard), "source": each.name, "file": f"{folder}/{shard.file}"}


def _put(objects: Objects, uri: str, content: Any, folder: Path) -> None:
    path = folder / uri.rpartition("/")[2]
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    objects.put_file(path, uri, sha256=digest_file(path)[0])
