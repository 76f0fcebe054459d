"""A minimal writer of shards and index, after the format's description."""

from __future__ import annotations

import array
import hashlib
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ALIGNMENT = 64
EOS, VOCAB_SIZE = 256, 257
CODES = {
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "int32": "i",
    "int64": "q",
    "float32": "f",
    "float64": "d",
}


def write_token_dataset(
    root: Path, splits: Mapping[str, Sequence[bytes]], *, num_shards: int = 2
) -> Path:
    """Write a data set of documents, each followed by the end token; return `root`."""
    entries = {name: _token_split(root, name, docs, num_shards) for name, docs in splits.items()}
    unigram = unigram_loss(splits["train"], splits["validation"])
    content = {
        "kind": "tokens",
        "tokenizer": {"name": "bytes", "vocab_size": VOCAB_SIZE, "eos_token_id": EOS},
        "dtype": "uint16",
        "baseline": {"unigram_loss_nats": unigram},
    }
    return write_index(root, content, entries)


def write_index(root: Path, content: Mapping[str, Any], splits: Mapping[str, Any]) -> Path:
    """Write index/index.json."""
    fingerprint = hashlib.sha256(json.dumps(splits, sort_keys=True).encode()).hexdigest()
    index = {"format": "trainyard-shards", "version": 1, "fingerprint": fingerprint}
    (root / "index").mkdir(parents=True, exist_ok=True)
    (root / "index" / "index.json").write_text(json.dumps({**index, **content, "splits": splits}))
    return root


def unigram_loss(train: Sequence[bytes], validation: Sequence[bytes]) -> float:
    """Return validation's cross-entropy in nats a token under train's add-one smoothed counts."""
    counts = Counter(token for document in train for token in (*document, EOS))
    total = sum(counts.values()) + VOCAB_SIZE
    held_out = Counter(token for document in validation for token in (*document, EOS))
    nats = -sum(n * math.log((counts[token] + 1) / total) for token, n in held_out.items())
    return nats / max(1, sum(held_out.values()))


def write_shard(path: Path, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> dict[str, Any]:
    """Write aligned little-endian buffers; return the shard's entry without rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data, described = bytearray(), []
    for name, (dtype, values) in columns.items():
        data += b"\0" * (-len(data) % ALIGNMENT)
        buffer = array.array(CODES[dtype], values).tobytes()
        described.append({"name": name, "dtype": dtype, "offset": len(data), "bytes": len(buffer)})
        data += buffer
    path.write_bytes(data)
    return {
        "file": f"{path.parent.name}/{path.name}",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "columns": described,
    }


def _token_split(
    root: Path, name: str, documents: Sequence[bytes], num_shards: int
) -> dict[str, Any]:
    shards, first_row, first_token = [], 0, 0
    for number in range(num_shards):
        part = documents[
            number * len(documents) // num_shards : (number + 1) * len(documents) // num_shards
        ]
        tokens = array.array("H")
        ends = []
        for document in part:
            tokens.extend(document)
            tokens.append(EOS)
            ends.append(len(tokens))
        entry = write_shard(
            root / name / f"shard-{number:05d}.bin",
            {"tokens": ("uint16", tokens), "row_ends": ("uint64", ends)},
        )
        place = {
            "rows": len(part),
            "first_row": first_row,
            "num_tokens": len(tokens),
            "first_token": first_token,
        }
        shards.append(entry | place)
        first_row += len(part)
        first_token += len(tokens)
    return {"num_rows": first_row, "num_tokens": first_token, "shards": shards}
