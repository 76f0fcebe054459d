"""Listings equal a model of S3's rules, whatever the keys, the page size and the version."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings, strategies as st

from sagemaker_engine.s3.objects import CommonPrefix

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.s3.objects import ObjectInfo

BUCKET = "data-bucket"
LAW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NAMES = st.text(st.sampled_from("ab/-\u00e9\U0001f389"), min_size=1, max_size=6)


def model(keys: set[str], prefix: str, delimiter: str, start_after: str) -> list[str]:
    """Return what a listing names: keys and common prefixes, by UTF-8 order, without repeats."""
    names: list[str] = []
    for key in sorted(keys, key=str.encode):
        if not key.startswith(prefix) or key.encode() <= start_after.encode():
            continue
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key if cut < 0 else key[: cut + len(delimiter)]
        if cut >= 0 and name == start_after:
            continue
        if name not in names:
            names.append(name)
    return names


def name_of(entry: ObjectInfo | CommonPrefix) -> str:
    return entry.prefix if isinstance(entry, CommonPrefix) else entry.key


def fill(store: ObjectStore, keys: set[str]) -> None:
    store.delete_many(BUCKET, [name_of(entry) for entry in store.list(BUCKET)])
    for key in keys:
        store.put(BUCKET, key, b"1")


@LAW
@given(st.sets(NAMES, max_size=25), NAMES | st.just(""), st.sampled_from(["", "/", "b", "a/"]))
def test_the_walk_equals_the_model(
    store: ObjectStore, keys: set[str], prefix: str, delimiter: str
) -> None:
    fill(store, keys)
    for start_after in {"", *itertools.islice(keys, 3), "a", "a/"}:
        found = store.list(BUCKET, prefix, delimiter or None, start_after or None)
        assert [name_of(entry) for entry in found] == model(keys, prefix, delimiter, start_after)


def pages_v1(s3: Any, **asked: Any) -> list[dict[str, Any]]:
    """Return the pages as a client that knows the rules walks them."""
    pages = [s3.list_objects(Bucket=BUCKET, **asked)]
    while pages[-1]["IsTruncated"]:
        last = pages[-1].get("Contents", [{}])[-1].get("Key", "")
        marker = pages[-1].get("NextMarker", last)
        pages.append(s3.list_objects(Bucket=BUCKET, Marker=marker, **asked))
    return pages


def pages_v2(s3: Any, **asked: Any) -> list[dict[str, Any]]:
    return list(s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, **asked))


def names_on(page: dict[str, Any]) -> list[str]:
    names = [item["Key"] for item in page.get("Contents", [])]
    names += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
    return sorted(names, key=str.encode)


@settings(LAW, max_examples=15)
@given(
    keys=st.sets(NAMES, max_size=15),
    prefix=st.sampled_from(["", "a", "a/"]),
    delimiter=st.sampled_from(["", "/"]),
    page_size=st.integers(1, 7),
)
@pytest.mark.parametrize("walk", [pages_v1, pages_v2])
def test_pages_of_any_size_give_the_whole_listing_once(
    s3: Any,
    store: ObjectStore,
    walk: Any,
    keys: set[str],
    prefix: str,
    delimiter: str,
    page_size: int,
) -> None:
    fill(store, keys)
    asked = {"Prefix": prefix, "Delimiter": delimiter, "MaxKeys": page_size}
    pages = walk(s3, **{name: value for name, value in asked.items() if value != ""})
    sizes = [len(names_on(page)) for page in pages]
    assert all(size == page_size for size in sizes[:-1])
    assert [name for page in pages for name in names_on(page)] == model(keys, prefix, delimiter, "")


def test_the_fields_of_a_v2_page(s3: Any, store: ObjectStore) -> None:
    fill(store, {"a", "b/1", "b/2", "c"})
    page = s3.list_objects_v2(
        Bucket=BUCKET, Delimiter="/", MaxKeys=2, StartAfter="A", FetchOwner=True
    )
    assert (page["KeyCount"], page["MaxKeys"], page["IsTruncated"]) == (2, 2, True)
    assert (page["StartAfter"], page["Delimiter"], page["Name"]) == ("A", "/", BUCKET)
    assert page["CommonPrefixes"] == [{"Prefix": "b/"}]
    item = page["Contents"][0]
    assert (item["Key"], item["Size"], item["StorageClass"]) == ("a", 1, "STANDARD")
    assert item["ETag"] == '"c4ca4238a0b923820dcc509a6f75849b"'
    assert item["Owner"]["ID"]
    following = s3.list_objects_v2(
        Bucket=BUCKET, Delimiter="/", ContinuationToken=page["NextContinuationToken"]
    )
    assert names_on(following) == ["c"]
    assert following["ContinuationToken"] == page["NextContinuationToken"]


def test_max_keys_of_zero_is_an_empty_complete_page(s3: Any, store: ObjectStore) -> None:
    fill(store, {"a"})
    page = s3.list_objects_v2(Bucket=BUCKET, MaxKeys=0)
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)


def test_more_than_a_thousand_keys_come_in_pages_of_a_thousand(s3: Any, store: ObjectStore) -> None:
    fill(store, {f"{number:04}" for number in range(1001)})
    page = s3.list_objects_v2(Bucket=BUCKET, MaxKeys=5000)
    assert (page["KeyCount"], page["IsTruncated"], page["MaxKeys"]) == (1000, True, 1000)


def test_versions_list_every_object_as_its_latest(s3: Any, store: ObjectStore) -> None:
    fill(store, {"a", "b"})
    versions = s3.list_object_versions(Bucket=BUCKET)["Versions"]
    assert [(v["Key"], v["VersionId"], v["IsLatest"]) for v in versions] == [
        ("a", "null", True),
        ("b", "null", True),
    ]


@pytest.mark.parametrize("asked", [{"MaxKeys": -1}, {"ContinuationToken": "%%%"}])
def test_a_bad_listing_request_is_an_invalid_argument(s3: Any, asked: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="InvalidArgument"):
        s3.list_objects_v2(Bucket=BUCKET, **asked)


def test_listing_top_level_prefixes_does_not_read_every_key(store: ObjectStore) -> None:
    with store.index.write() as db:
        db.executemany(
            "INSERT INTO objects VALUES (?, ?, '', 1, 'e', 0, '{}', '')",
            ((BUCKET, b"%02d/%05d" % (n % 20, n)) for n in range(100_000)),
        )
    work = itertools.count()  # of the database, in units of 100 of its instructions
    with store.index.read() as db:
        db.set_progress_handler(lambda: next(work) < 0, 100)

    rolled = [name_of(entry) for entry in store.list(BUCKET, "", "/")]
    of_rolled = next(work)
    everything = sum(1 for _ in store.list(BUCKET))
    of_everything = next(work) - of_rolled

    assert rolled == [f"{number:02}/" for number in range(20)]
    assert everything == 100_000
    assert of_everything > 1000  # The listings use the connection whose work is counted.
    assert of_rolled < of_everything / 20


@pytest.mark.parametrize("prefix", ["\n", "a b+c%/\u00e9"])
def test_a_prefix_comes_back_as_it_was_given(s3: Any, prefix: str) -> None:
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}key", Body=b"1")

    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    encoded = s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix, EncodingType="url")
    first = s3.list_objects(Bucket=BUCKET, Prefix=prefix)

    assert (listed["Prefix"], listed["Contents"][0]["Key"]) == (prefix, f"{prefix}key")
    assert unquote_plus(encoded["Prefix"]) == prefix
    # botocore asks for encoded names but does not decode this member of version 1.
    assert (unquote_plus(first["Prefix"]), first["Contents"][0]["Key"]) == (prefix, f"{prefix}key")
