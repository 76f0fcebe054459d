"""Index and manifests of a mixture of sharded data sets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.sharding.conftest import DESTINATION, Store
from trainyard.errors import SpecError
from trainyard.sharding.mixture import ShardedSource, manifest_uri, write_mixture

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def sharded(store: Store, folder: Path, name: str, parts: int, **settings: Any) -> ShardedSource:
    path = folder / f"{name}.jsonl"
    rows = ({"text": f"{name} {n}", "at": n} for n in range(60))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fractions = {"validation_fraction": 0.2, "test_fraction": 0.2}
    given = {"text_column": "text", **fractions, **settings}
    return ShardedSource(name=name, parts=parts, index=store.shard(path, **given).index)


def read(store: Store, uri: str) -> Any:
    with store.open(uri) as stream:
        return json.load(stream)


def test_manifests_list_the_shards_of_all_sources_and_the_index_their_shares(store, tmp_path):
    web, code = sharded(store, tmp_path, "web", 3), sharded(store, tmp_path, "code", 1)

    mixture = write_mixture([web, code], store, destination=DESTINATION)

    index = read(store, f"{mixture.uri}/index/index.json")
    assert [(each["name"], each["share"]) for each in index["sources"]] == [
        ("code", 0.25),
        ("web", 0.75),
    ]
    for split in ("train", "validation", "test"):
        first, *names = read(store, manifest_uri(mixture.uri, split))
        assert names == [shard["file"] for shard in index["splits"][split]["shards"]]
        heads = {name: store.head(first["prefix"] + name) for name in names}
        sizes = {shard["file"]: shard["bytes"] for shard in index["splits"][split]["shards"]}
        assert {name: head and head.size for name, head in heads.items()} == sizes
        assert index["splits"][split]["num_tokens"] == sum(
            each.index.splits[split].num_tokens for each in (web, code)
        )
    losses = [each.index.baseline["unigram_loss_nats"] for each in (web, code)]
    assert index["baseline"]["unigram_loss_nats"] == pytest.approx(
        0.75 * losses[0] + 0.25 * losses[1]
    )


def test_the_same_sources_and_shares_have_the_same_address(store, tmp_path):
    web, code = sharded(store, tmp_path, "web", 3), sharded(store, tmp_path, "code", 1)
    more_code = ShardedSource(name="code", parts=2, index=code.index)

    first = write_mixture([web, code], store, destination=DESTINATION)
    again = write_mixture([code, web], store, destination=DESTINATION)
    other = write_mixture([web, more_code], store, destination=DESTINATION)

    assert first == again
    assert other.uri != first.uri


def test_sources_that_cannot_be_mixed_are_named_together(store, tmp_path):
    web = sharded(store, tmp_path, "web", 1)
    table = sharded(store, tmp_path, "table", 1, text_column=None)
    (tmp_path / "ids.jsonl").write_text("".join(f'{{"ids": [{n}, 1]}}\n' for n in range(60)))
    ids = store.shard(
        tmp_path / "ids.jsonl",
        text_column="ids",
        vocab_size=100,
        validation_fraction=0.2,
        test_fraction=0.2,
    ).index
    twin = ShardedSource(name="web2", parts=1, index=web.index)

    with pytest.raises(SpecError) as caught:
        write_mixture(
            [web, table, ShardedSource(name="ids", parts=1, index=ids), twin],
            store,
            destination=DESTINATION,
        )

    told = str(caught.value)
    assert "data_mixture.table: is a table, but a mixture consists of tokens" in told
    assert "set data_mixture.table.text_column to the column with the text" in told
    assert (
        "data_mixture.web: has another vocabulary than data_mixture.ids; got vocabulary 'bytes' of size 257"
        in told
    )
    assert "data_mixture.web2: has the same content as data_mixture.web;" in told
