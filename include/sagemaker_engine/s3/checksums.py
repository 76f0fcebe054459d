"""Digests of streams, and S3's checksum values derived from them.

CRC32, SHA1, SHA256, SHA512 and MD5 are computed and verified. CRC32C, CRC64NVME and the xxHash family
are not: the standard library lacks them, and pure Python is too slow (about 10 MB/s). For these, the values
that clients send are stored and returned without being compared with the data.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

DIGEST_BYTES = {
    "CRC32": 4,
    "CRC32C": 4,
    "CRC64NVME": 8,
    "SHA1": 20,
    "SHA256": 32,
    "SHA512": 64,
    "MD5": 16,
    "XXHASH64": 8,
    "XXHASH3": 8,
    "XXHASH128": 16,
}
"""Length in bytes of the checksum of each algorithm that S3 supports (botocore 1.43)."""
_CRCS = {
    "CRC32": (32, 0xEDB88320),
    "CRC32C": (32, 0x82F63B78),
    "CRC64NVME": (64, 0x9A6C9329AC4BC9B5),
}
"""CRC -> width in bits, and reflected polynomial."""


class Digest(Protocol):
    """A running digest with the interface of `hashlib`'s objects."""

    def update(self, data: memoryview, /) -> None:
        """Add the next bytes."""

    def digest(self) -> bytes:
        """Return the digest of all bytes added so far."""


class Crc32:
    """CRC-32 with the interface of `hashlib`'s objects. Example: b"123456789" -> cbf43926."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview, /) -> None:
        """Add the next bytes."""
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        """Return the value as 4 big-endian bytes, the order S3 uses."""
        return self._value.to_bytes(4, "big")


class Digests:
    """Several digests of one stream. MD5 is always included: it becomes the ETag."""

    def __init__(self, algorithms: Iterable[str] = ()) -> None:
        self._running: dict[str, Digest] = {
            name: _start(name) for name in {"MD5", *algorithms} if is_computed(name)
        }

    def update(self, data: memoryview) -> None:
        """Add the next bytes."""
        for digest in self._running.values():
            digest.update(data)

    def value(self, algorithm: str) -> str | None:
        """Return the base64 value, or None if this algorithm was not computed."""
        digest = self._running.get(algorithm)
        return None if digest is None else encode(digest.digest())

    @property
    def md5_hex(self) -> str:
        """The MD5 in hexadecimal."""
        return self._running["MD5"].digest().hex()


def is_computed(algorithm: str) -> bool:
    """Return whether this module can compute `algorithm` (and therefore verify it)."""
    return algorithm in {"CRC32", "SHA1", "SHA256", "SHA512", "MD5"}


def encode(digest: bytes) -> str:
    """Return a digest as base64 text, as S3 writes it."""
    return base64.b64encode(digest).decode("ascii")


def decode(text: str, *, size: int) -> bytes | None:
    """Return the digest's bytes, or None if `text` is not base64 of `size` bytes."""
    try:
        value = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return value if len(value) == size else None


def composite(algorithm: str, values: list[str]) -> str | None:
    """Return the composite checksum of a multipart object, or None if `algorithm` cannot be computed.

    `values` are the base64 checksums of the parts in order. They are decoded and joined. The result is the
    base64 digest of the joined checksums, followed by ``-`` and the number of parts. Source: S3 user guide,
    "Checking object integrity", composite checksums.
    """
    if not is_computed(algorithm):
        return None
    digest = _start(algorithm)
    for value in values:
        digest.update(memoryview(base64.b64decode(value)))
    return f"{encode(digest.digest())}-{len(values)}"


def combine_crcs(algorithm: str, pieces: list[tuple[str, int]]) -> str | None:
    """Return the base64 CRC of the joined pieces, or None if `algorithm` is not a CRC.

    `pieces` are (base64 CRC, length in bytes) in order. The data is not read again. Appending one zero byte to
    a message multiplies the message's CRC register by a fixed matrix M over GF(2); n zero bytes multiply it by
    M^n. For a message A followed by a message B of n bytes, therefore:

        crc(A followed by B) = M^n * crc(A) xor crc(B)

    Repeated squaring computes M^n in O(log n) products. Source: M. Adler, zlib, crc32_combine.

    Example, in hexadecimal: the CRC32 of b"a" is e8b7be43, and that of b"b" is 71beeff9. Combined, each with
    length 1, they give 9e83486d, the CRC32 of b"ab".
    """
    if algorithm not in _CRCS:
        return None
    width, polynomial = _CRCS[algorithm]
    whole = 0
    for value, length in pieces:
        crc = int.from_bytes(base64.b64decode(value), "big")
        whole = _append_zeros(whole, length, width, polynomial) ^ crc
    return encode(whole.to_bytes(width // 8, "big"))


def multipart_etag(md5s_hex: list[str]) -> str:
    """Return the ETag of a multipart object: the MD5 of its parts' MD5s, ``-`` and the number of parts.

    Example: one empty part, d41d8cd98f00b204e9800998ecf8427e, gives
    59adb24ef3cdbe0297f05b395827453f-1.
    """
    joined = b"".join(bytes.fromhex(md5) for md5 in md5s_hex)
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(md5s_hex)}"


def _start(algorithm: str) -> Digest:
    if algorithm == "CRC32":
        return Crc32()
    return hashlib.new(algorithm.lower(), usedforsecurity=False)


def _append_zeros(crc: int, num_bytes: int, width: int, polynomial: int) -> int:
    """Return the CRC register `crc` after `num_bytes` zero bytes are appended."""
    operator = [polynomial, *(1 << bit for bit in range(width - 1))]  # Appends one zero bit.
    for _ in range(3):
        operator = _square(operator)
    while num_bytes:
        if num_bytes & 1:
            crc = _times(operator, crc)
        operator = _square(operator)
        num_bytes >>= 1
    return crc


def _times(matrix: list[int], vector: int) -> int:
    product = 0
    for column in matrix:
        if vector & 1:
            product ^= column
        vector >>= 1
    return product


def _square(matrix: list[int]) -> list[int]:
    return [_times(matrix, column) for column in matrix]
