"""Header of a NumPy file of token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from numpy.lib import format as npy

from trainyard.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_WHOLE_NUMBERS = "iu"
_MOST_AXES = 2


def read_npy_header(name: str, stream: BinaryIO) -> tuple[np.dtype[Any], int | None]:
    """Return the type of the ids and the length of a row, and advance the stream to the ids.

    The length is None for an array of one axis.

    Raises:
        ValueError: the stream is not a NumPy file.
        DataError: the array is not one of integers with one or two axes in row order.
    """
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    is_wide = len(shape) == _MOST_AXES
    if (
        dtype.kind not in _WHOLE_NUMBERS
        or not 1 <= len(shape) <= _MOST_AXES
        or (is_wide and is_fortran)
    ):
        raise DataError(
            "a NumPy file holds no token ids",
            job_name="sharding",
            where=name,
            got=f"{dtype} of shape {shape}{', in column order' if is_fortran else ''}",
            allowed="whole numbers of shape (tokens,) or (rows, tokens), in row order",
            next_step="write it with numpy.save(path, numpy.ascontiguousarray(ids))",
        )
    return dtype, int(shape[1]) if is_wide else None
