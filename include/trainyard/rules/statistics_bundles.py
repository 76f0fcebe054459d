"""Statistics in S3: for each attempt and host, a sequence of objects with the lines of the host's ranks. Pure.

    <prefix>/0001.algo-1/00000001.bundle      key of the first object of attempt 1 on host algo-1

    {"file": "rank-00000.attempt-0001.part-0001.jsonl", "bytes": 1234}   followed by 1234 bytes, whole lines
    {"file": "rank-00001.attempt-0001.part-0001.jsonl", "bytes": 980}    followed by 980 bytes, and so on

An object never changes. The names of a host's objects are increasing numbers. An object contains pieces of
the files that `trainyard.rules.statistics_file` describes. The pieces of a file are in the order of its
lines. The writer is training_scripts/trainyard_watch/statistics/shipping.py; other scripts may write the
same format.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.rules.live import Piece

STREAM = re.compile(r"(\d{4,})\.[^/]+/")
BUNDLE = re.compile(r"(?:^|/)\d{4,}\.[^/]+/\d{8,}\.bundle$")


def upload_pause_s(age_s: float) -> float:
    """Return the pause in seconds between two objects of a host whose processes are `age_s` seconds old.

    The pause is `age_s` / 60, but at least 1 s and at most 60 s. Examples: it is 1 s at an age of 30 s, 10 s at
    10 minutes, and 60 s from an hour on. The writer's `pause_s` uses the same formula.
    """
    return min(60.0, max(1.0, age_s / 60))


def uploaded_until(now: float, *, trains_since: float | None) -> float:
    """Return the epoch seconds up to which S3 has all records of a running job.

    A host uploads its records once per pause (`upload_pause_s`). Another half pause and 5 s are allowed for
    slow and failed uploads. Worked: after more than an hour of training, the pause is 60 s, so the records of
    the last 60 + 30 + 5 = 95 s may be missing.

    Args:
        now: epoch seconds.
        trains_since: epoch seconds at which the instances last began to train; None if they do not train now.
    """
    age_s = 0.0 if trains_since is None else now - trains_since
    return now - 1.5 * upload_pause_s(age_s) - 5.0


def files_in(bundle: bytes, *, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, content) of each piece in one object; a piece is a part of the statistics file of this name.

    Args:
        bundle: the object's content.
        where: address of the object, for errors.

    Raises:
        ContractError: the object does not have this format.
    """
    at = 0
    while at < len(bundle):
        ends = bundle.find(b"\n", at)
        try:
            head = json.loads(bundle[at : ends if ends >= 0 else None])
            name, size = str(head["file"]), int(head["bytes"])
        except (ValueError, KeyError, TypeError) as error:
            raise ContractError(**_broken(where, f"{type(error).__name__} at byte {at}")) from error
        content = bundle[ends + 1 : ends + 1 + size]
        if ends < 0 or len(content) != size:
            raise ContractError(
                **_broken(where, f"{len(content)} of {size} bytes of file {name!r}")
            )
        yield name, content
        at = ends + 1 + size


def _broken(where: str, got: str) -> dict[str, str]:
    return {
        "what": "an object of the training's statistics cannot be read",
        "where": where,
        "got": got,
        "allowed": 'JSON lines {"file": name, "bytes": n}, each followed by n bytes',
        "next_step": "write the format that include/trainyard/rules/statistics_bundles.py describes",
    }


@dataclass(slots=True)
class BundledFiles:
    """Statistics files of the ranks, reassembled from the bundles received so far. Content is dropped once read."""

    _sizes: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, bytearray] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each file in bytes, by name."""
        return dict(self._sizes)

    def take(self, bundle: bytes, *, where: str) -> None:
        """Append an object's pieces to their files.

        Raises:
            ContractError: the object is not a bundle.
        """
        for name, content in files_in(bundle, where=where):
            self._sizes[name] = self._sizes.get(name, 0) + len(content)
            self._kept.setdefault(name, bytearray()).extend(content)

    def read(self, piece: Piece) -> bytes:
        """Return the bytes of a piece, and drop its file's bytes up to the end of the piece.

        Return no bytes if the first byte of the piece was dropped before.
        """
        kept = self._kept[piece.name]
        begins = self._sizes[piece.name] - len(kept)
        if piece.start < begins:
            return b""
        content = bytes(kept[piece.start - begins : piece.end - begins])
        del kept[: piece.end - begins]
        return content
