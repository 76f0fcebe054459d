"""Keys of every legal form, none of which may escape the store or collide with another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings, strategies as st

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from tests.sagemaker_engine.s3.conftest import RawClient

BUCKET = "data-bucket"
KEYS = [
    "plain",
    "with space",
    "a//b",
    "/leading",
    "//",
    "trailing/",
    "p",
    "p/q",
    "p/q/",
    "dir/./dot",
    ".",
    "..",
    "../../escape",
    "a/../../b",
    "umlaut-ü/日本語/🎉",
    "e\u0301",
    "\u00e9",
    "plus+and%20percent%2F",
    "quote'\"<&>;#?=:@",
    "tab\tnewline\nreturn\r",
    "control\x01\x1f",
    "nul\x00inside",
    "\\back\\slash",
    "UPPER",
    "upper",
    "x" * 1024,
    "日" * 341,
    "con.txt",
    "~tilde*star|pipe",
]


@pytest.mark.parametrize("key", KEYS, ids=[ascii(key)[:30] for key in KEYS])
def test_a_key_round_trips_through_put_get_list_and_delete(
    s3: Any, store: ObjectStore, raw: RawClient, key: str
) -> None:
    body = key.encode()
    target = f"/{BUCKET}/{quote(key, safe='')}"
    assert raw.send("PUT", target, body).status == 200
    assert raw.send("GET", target).body == body
    assert [info.key for info in store.list(BUCKET)] == [key]
    listed = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    assert [item["Key"] for item in listed] == [key]
    assert raw.send("DELETE", target).status == 204
    assert list(store.list(BUCKET)) == []


def test_the_sdk_reaches_every_key_it_can_send(s3: Any, store: ObjectStore) -> None:
    for key in KEYS:
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    stored = [info.key for info in store.list(BUCKET)]
    assert stored == sorted(KEYS, key=str.encode)
    for key in KEYS:
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == key.encode()
    wanted = [{"Key": key} for key in KEYS if key.isprintable()]
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": wanted})
    assert all(not info.key.isprintable() for info in store.list(BUCKET))


def test_no_key_leaves_the_store(raw: RawClient, store: ObjectStore) -> None:
    before = {path for path in store.root.parent.rglob("*") if store.root not in path.parents}
    for key in ("../../../outside", "/etc/trainyard-outside", "..", "a/../../../outside"):
        assert raw.send("PUT", f"/{BUCKET}/{quote(key, safe='')}", b"1").status == 200
    after = {path for path in store.root.parent.rglob("*") if store.root not in path.parents}
    assert after == before


def test_a_key_of_1025_bytes_is_too_long(s3: Any) -> None:
    with pytest.raises(ClientError, match="KeyTooLongError"):
        s3.put_object(Bucket=BUCKET, Key="é" * 512 + "x", Body=b"1")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)))
def test_any_set_of_keys_is_kept_apart(store: ObjectStore, keys: set[str]) -> None:
    for key in keys:
        store.put(BUCKET, key, key.encode())
    stored = {info.key: store.path(BUCKET, info.key).read_bytes() for info in store.list(BUCKET)}
    assert stored == {key: key.encode() for key in keys}
    store.delete_many(BUCKET, keys)
