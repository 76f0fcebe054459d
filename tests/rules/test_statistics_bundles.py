"""A host's objects become its ranks' files again, piece by piece."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from trainyard.errors import ContractError
from trainyard.rules.live import Piece
from trainyard.rules.statistics_bundles import BundledFiles, files_in

LINES = st.lists(st.binary(min_size=0, max_size=30).map(lambda b: b.replace(b"\n", b"") + b"\n"))


def bundle(*pieces: tuple[str, bytes]) -> bytes:
    return b"".join(
        json.dumps({"file": name, "bytes": len(content)}).encode() + b"\n" + content
        for name, content in pieces
    )


@settings(max_examples=30)
@given(st.lists(st.lists(st.tuples(st.sampled_from(["a", "b"]), LINES.map(b"".join)))))
def test_files_are_what_was_written_whatever_the_objects(
    objects: list[list[tuple[str, bytes]]],
) -> None:
    files, read = BundledFiles(), {"a": b"", "b": b""}
    for pieces in objects:
        files.take(bundle(*pieces), where="x")
        for name, size in files.sizes.items():
            read[name] += files.read(Piece(name, len(read[name]), size))

    for name in "ab":
        written = b"".join(content for pieces in objects for n, content in pieces if n == name)
        assert read[name] == written


def test_what_was_read_is_not_kept() -> None:
    files = BundledFiles()
    files.take(bundle(("a", b"one\ntwo\n")), where="x")

    assert files.read(Piece("a", 0, 4)) == b"one\n"
    assert files.read(Piece("a", 0, 4)) == b""
    assert files.read(Piece("a", 4, 8)) == b"two\n"
    assert sum(map(len, files._kept.values())) == 0
    assert files.sizes == {"a": 8}


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]\n", b'{"file": "a"}\n', b'{"file": "a", "bytes": 9}\nshort\n', b"\xff\n"],
)
def test_what_is_no_object_of_statistics_is_an_error(content: bytes) -> None:
    with pytest.raises(ContractError, match=r"s3://b/k"):
        list(files_in(content, where="s3://b/k"))
