"""Combination of CRCs: the CRC of joined data from the CRCs and lengths of its pieces.

The data is not read again. Appending n zero bytes to a message multiplies its CRC register by a fixed
matrix over GF(2), and squaring that matrix doubles n. So crc(A || B) = M^len(B) * crc(A) xor crc(B), in
O(log n) matrix products. Source: M. Adler, zlib, crc32_combine. Example: the CRC32 of b"ab" follows from
the CRC32 of b"a" and that of b"b".
"""

from __future__ import annotations

import base64

_REFLECTED_POLYNOMIALS = {
    "CRC32": (32, 0xEDB88320),
    "CRC32C": (32, 0x82F63B78),
    "CRC64NVME": (64, 0x9A6C9329AC4BC9B5),
}


def combine(algorithm: str, pieces: list[tuple[str, int]]) -> str | None:
    """Return the base64 CRC of the joined pieces, or None if `algorithm` is not a CRC.

    `pieces` are (base64 CRC, length in bytes) in order.
    """
    if algorithm not in _REFLECTED_POLYNOMIALS:
        return None
    width, polynomial = _REFLECTED_POLYNOMIALS[algorithm]
    whole = 0
    for value, length in pieces:
        crc = int.from_bytes(base64.b64decode(value), "big")
        whole = _append_zeros(whole, length, width, polynomial) ^ crc
    return base64.b64encode(whole.to_bytes(width // 8, "big")).decode("ascii")


def _append_zeros(crc: int, num_bytes: int, width: int, polynomial: int) -> int:
    """Return the CRC register `crc` after `num_bytes` zero bytes are appended."""
    one_bit = [polynomial, *(1 << bit for bit in range(width - 1))]
    operator = one_bit
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
