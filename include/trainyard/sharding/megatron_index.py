"""Index of a Megatron data set: the type of its token ids and the end of each document.

Layout as in Megatron-Core's `datasets/indexed_dataset.py` (2026-11), little-endian: magic, version 1, code of the type,
number of sequences, number of document bounds, int32 lengths, int64 byte offsets, int64 document bounds.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.errors import DataError
from trainyard.sharding.line_blocks import READ_ERRORS, opened
from trainyard.sharding.source_files import unreadable

if TYPE_CHECKING:
    import numpy.typing as npt

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.source_files import SourceFile

MAGIC = b"MMIDIDX\x00\x00"
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_HEADER = struct.Struct("<9sQBQQ")


def read_megatron_index(
    file: SourceFile, objects: Objects, *, num_bytes: int
) -> tuple[np.dtype[Any], npt.NDArray[np.int64]]:
    """Return the type of the token ids, and the number of tokens up to the end of each document.

    Args:
        file: file of the index.
        objects: store of a remote file.
        num_bytes: size in bytes of the array of token ids, the `.bin` file to which the index belongs.

    Raises:
        DataError: the file cannot be read, is not such an index, or does not match the array.
    """  # noqa: DOC501 - the named functions return a DataError
    try:
        with opened(file, objects) as (stream, _):
            content = stream.read()
        magic, version, code, num_sequences, num_bounds = _HEADER.unpack_from(content)
        if (magic, version) != (MAGIC, 1) or code not in TYPES:
            raise _wrong(file, f"magic {magic!r}, version {version}, type {code}")
        dtype = np.dtype(TYPES[code])
        at = _HEADER.size
        lengths = np.frombuffer(content, "<i4", num_sequences, at).astype(np.int64)
        at += 4 * num_sequences
        offsets = np.frombuffer(content, "<i8", num_sequences, at)
        bounds = np.frombuffer(content, "<i8", num_bounds, at + 8 * num_sequences)
    except (struct.error, *READ_ERRORS) as error:
        raise unreadable(file, error) from error
    ends = np.cumsum(lengths)
    is_in_order = np.array_equal(offsets, (ends - lengths) * dtype.itemsize)
    total = int(ends[-1]) * dtype.itemsize if num_sequences else 0
    if not is_in_order or total != num_bytes:
        sizes = f"sequences of {total} bytes in total, and an array of {num_bytes} bytes"
        raise _wrong(
            file, sizes if total != num_bytes else "offsets of sequences that are not consecutive"
        )
    if not _divides(bounds, num_sequences):
        shown = np.array2string(bounds, threshold=6, edgeitems=3, separator=", ")
        raise _wrong(file, f"document bounds {shown} of {num_sequences} sequences")
    return dtype, np.concatenate([[0], ends])[bounds[1:]]


def _divides(bounds: npt.NDArray[np.int64], num_sequences: int) -> bool:
    """Return whether document bounds ascend from 0 to the number of sequences."""
    if not len(bounds):
        return False
    is_whole = bounds[0] == 0 and bounds[-1] == num_sequences
    return bool(is_whole and (np.diff(bounds) >= 0).all())


def _wrong(file: SourceFile, got: str) -> DataError:
    return DataError(
        "a Megatron index does not match its array",
        job_name="sharding",
        where=file.name,
        got=got,
        allowed=(
            "version 1, integer ids, consecutive sequences with the total size of the .bin file, "
            "and document bounds that ascend from 0 to the number of sequences"
        ),
        next_step="copy the .idx and the .bin file of the same preprocess_data.py run",
    )
