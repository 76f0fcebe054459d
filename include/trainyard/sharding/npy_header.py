"""Header of a NumPy file of token ids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from numpy.lib import format as npy

from trainyard.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_WHOLE_NUMBERS = "iu"
_MOST_AXES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NpyHeader:
    """Header of an array.

    Attributes:
        dtype: stored type of an id.
        row_tokens: length of each row; None for an array of one axis.
        num_tokens: number of ids in the array.
    """

    dtype: np.dtype[Any]
    row_tokens: int | None
    num_tokens: int


def read_npy_header(name: str, stream: BinaryIO) -> NpyHeader:
    """Return the header, and advance the stream to the ids.

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
            "a NumPy file is not an array of token ids",
            job_name="sharding",
            where=name,
            got=f"{dtype} of shape {shape}{', in column order' if is_fortran else ''}",
            allowed="integers of shape (tokens,) or (rows, tokens), in row-major order",
            next_step="write it with numpy.save(path, numpy.ascontiguousarray(ids))",
        )
    row_tokens = int(shape[1]) if is_wide else None
    return NpyHeader(dtype=dtype, row_tokens=row_tokens, num_tokens=math.prod(shape))
