"""Tokens: bytes by default, or a tokenizers file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.sharding.conftest import Store
from trainyard.errors import SpecError
from trainyard.sharding.tokenizer import (
    ByteTokenizer,
    load_tokenizer,
    read_tokenizer_file,
    token_dtype,
)

if TYPE_CHECKING:
    from pathlib import Path


@given(texts=st.lists(st.text(max_size=50), max_size=20))
def test_byte_tokens_spell_the_text(texts: list[str]) -> None:
    rows = [text.encode() for text in texts]
    tokens, ends = ByteTokenizer().encode(rows)
    starts = [0, *ends[:-1].tolist()]
    spelled = [
        tokens[a : b - 1].astype(np.uint8).tobytes() for a, b in zip(starts, ends, strict=False)
    ]
    assert spelled == rows
    assert all(tokens[end - 1] == 256 for end in ends)


def word_tokenizer(path: Path, *, end: str | None) -> Path:
    words = ["the", "cat", "sat", "?", *([end] if end else []), "mat"]
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="?"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize(
    ("end", "end_id"),
    [
        ("</s>", 4),
        ("<\uff5cend\u2581of\u2581sentence\uff5c>", 4),
        (None, 5),
    ],
    ids=["usual", "DeepSeek", "none"],
)
def test_tokenizer_file_is_used_and_rows_end_with_eos(
    tmp_path: Path, store: Store, end: str | None, end_id: int
) -> None:
    path = word_tokenizer(tmp_path / "tokenizer.json", end=end)
    (tmp_path / "t.txt").write_text("the cat sat\n")
    held_out = {"validation_fraction": 0, "test_fraction": 0}
    result = store.shard(tmp_path / "t.txt", tokenizer=str(path), num_shards=1, **held_out)
    assert store.buffers(result, "train")[0]["tokens"].tolist() == [0, 1, 2, end_id]
    assert result.index.tokenizer == {
        "name": "tokenizer.json",
        "vocab_size": 6,
        "eos_token_id": end_id,
    }


def test_other_tokenizer_is_another_data_set(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.txt").write_text("the cat sat\n")
    held_out = {"validation_fraction": 0, "test_fraction": 0, "num_shards": 1}
    uris = set()
    for end in ("</s>", None):
        path = word_tokenizer(tmp_path / "tokenizer.json", end=end)
        uris.add(store.shard(tmp_path / "t.txt", tokenizer=str(path), **held_out).uri)
    assert len(uris) == 2


@pytest.mark.parametrize(
    ("size", "dtype"), [(257, "uint16"), (65_536, "uint16"), (65_537, "uint32")]
)
def test_dtype_holds_every_token(size: int, dtype: str) -> None:
    assert token_dtype(size) == dtype


def test_tokenizer_of_the_store_gives_the_same_data_set_as_the_same_file(
    tmp_path: Path, store: Store
) -> None:
    path = word_tokenizer(tmp_path / "tokenizer.json", end="</s>")
    (tmp_path / "t.txt").write_text("the cat sat\n")
    store.put_file(path, "s3://bucket/own/tokenizer.json", sha256="")
    held_out = {"validation_fraction": 0, "test_fraction": 0, "num_shards": 1}

    of_file = store.shard(tmp_path / "t.txt", tokenizer=str(path), **held_out)
    of_store = store.shard(
        tmp_path / "t.txt", tokenizer="s3://bucket/own/tokenizer.json", **held_out
    )

    assert of_store.uri == of_file.uri
    assert store.buffers(of_store, "train")[0]["tokens"].tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize("address", ["/nowhere/own.json", "s3://bucket/nowhere/own.json"])
def test_missing_tokenizer_is_named(address: str, store: Store) -> None:
    with pytest.raises(SpecError, match=rf"tokenizer; got {address} \(FileNotFound.*\);"):
        load_tokenizer(address, store)


def test_bytes_is_the_default(store: Store) -> None:
    assert load_tokenizer("bytes", store).vocab_size == 257


@pytest.mark.parametrize("highest", [1_000, 70_000])
def test_ids_with_gaps_fit_the_vocabulary(tmp_path: Path, store: Store, highest: int) -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "the": highest}, unk_token="?"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "t.txt").write_text("the cat\n" * 400)
    settings = {"tokenizer": str(tmp_path / "tokenizer.json"), "text_row_bytes": 8}
    result = store.shard(tmp_path / "t.txt", **settings, validation_fraction=0, test_fraction=0)
    tokens = np.concatenate([shard["tokens"] for shard in store.buffers(result, "train")])
    assert sorted(set(tokens.tolist())) == [0, highest, highest + 1]
    assert result.index.tokenizer is not None
    assert result.index.tokenizer["vocab_size"] == highest + 2


def test_text_that_spells_the_end_token_is_no_end(tmp_path: Path) -> None:
    path = word_tokenizer(tmp_path / "tokenizer.json", end="</s>")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(path))
    tokens, _ = load_tokenizer(str(path), Store(tmp_path)).encode([b"the </s> cat"])
    assert tokens.tolist().count(4) == 1


def test_file_that_changed_since_the_plan_is_refused(tmp_path: Path, store: Store) -> None:
    path = word_tokenizer(tmp_path / "tokenizer.json", end="</s>")
    planned = load_tokenizer(str(path), store).identity
    assert read_tokenizer_file(str(path), store, identity=planned) == path.read_bytes()
    word_tokenizer(path, end=None)
    with pytest.raises(SpecError, match="has changed since the data set was planned"):
        read_tokenizer_file(str(path), store, identity=planned)
