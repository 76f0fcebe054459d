"""Reader and writer of safetensors: one file, or several files with an index.

A file consists of three parts:

- the length of the header (8 bytes, little-endian);
- the header (JSON: tensor -> dtype, shape, byte range);
- the tensors' bytes, row by row.

Source: https://github.com/huggingface/safetensors, "Format". The package `safetensors` is not used,
because images that have only torch lack it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch

from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from torch import Tensor

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_FILE_BYTES = 5 * 10**9
"""Largest file of a written model, unless one group of tensors is larger: the default of Hugging Face's libraries."""
_MAX_HEADER_BYTES = 100 * 10**6  # as in the package safetensors
_ALIGNMENT = 8
_SAMPLE_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Place of a tensor: its file, its dtype as safetensors names it, its shape, and its bytes in the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    def is_followed_by(self, other: StoredTensor) -> bool:
        """Return whether `other` begins right after this tensor in the same file, and the two can be joined as rows.

        For that, they must have the same dtype, and the same shape apart from the first dimension.
        """
        own, its = ((each.path, each.dtype, each.shape[1:]) for each in (self, other))
        return own == its and self.end == other.start


class SafetensorsFolder:
    """Tensors in a folder of safetensors files; their bytes are memory-mapped, and shared by the ranks of a host."""

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self.tensors = tensors
        self._mapped: dict[Path, Tensor] = {}

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the headers of all tensor files in a folder.

        If the folder has `model.safetensors`, only this file is read. Otherwise, the files that
        `model.safetensors.index.json` lists are read.

        Raises:
            DataError: a file is missing, cut off or not in this format, or the index does not match the files.
        """
        single, index = folder / SINGLE, folder / INDEX
        if single.is_file():
            return cls(read_header(single))
        if not index.is_file():
            found = ", ".join(sorted(each.name for each in folder.glob("*"))[:10]) or "no file"
            raise DataError(
                f"{folder} has neither {SINGLE} nor {INDEX}; found {found}; convert other weights with "
                "`save_pretrained(folder, safe_serialization=True)`"
            )
        listed = _read_index(index)
        tensors: dict[str, StoredTensor] = {}
        findings: list[str] = []
        for name in sorted(set(listed.values())):
            try:
                tensors |= read_header(folder / name)
            except DataError as error:
                findings += error.findings
        if findings:
            raise DataError(findings)
        wrong = [name for name, file in listed.items() if _file_of(tensors, name) != file]
        if wrong or tensors.keys() != listed.keys():
            differing = sorted({*wrong, *(tensors.keys() ^ listed.keys())})
            raise DataError(
                f"{index} does not match its files: {len(differing)} tensors are missing, in another file or not "
                f"listed, such as {differing[0]}; upload the index and all its files again"
            )
        return cls(tensors)

    def rows(self, names: Iterable[str]) -> Tensor:
        """Return the named tensors, which have the same number of columns, as one tensor with all their rows.

        Tensors that are adjacent in a file are not copied.
        """
        stored = [self.tensors[name] for name in names]
        if all(a.is_followed_by(b) for a, b in pairwise(stored)):
            num_rows = sum(each.shape[0] for each in stored)
            return self._view(stored[0], end=stored[-1].end, shape=(num_rows, *stored[0].shape[1:]))
        return torch.cat([self._view(each, end=each.end, shape=each.shape) for each in stored])

    def fingerprint(self) -> str:
        """Return a SHA-256 of the header data and of the last MiB of each file.

        The header data is each tensor's name, file name, dtype, shape and byte range.
        """
        digest = hashlib.sha256()
        for name, each in sorted(self.tensors.items()):
            place = [name, each.path.name, each.dtype, each.shape, each.start, each.end]
            digest.update(json.dumps(place).encode())
        for path in sorted({each.path for each in self.tensors.values()}):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _SAMPLE_BYTES))
                digest.update(file.read())
        return digest.hexdigest()

    def _view(self, stored: StoredTensor, *, end: int, shape: tuple[int, ...]) -> Tensor:
        path = stored.path
        if path not in self._mapped:
            size = path.stat().st_size
            self._mapped[path] = torch.from_file(str(path), size=size, dtype=torch.uint8)
        found = self._mapped[path][stored.start : end]
        dtype = DTYPES[stored.dtype]
        aligned = found if stored.start % dtype.itemsize == 0 else found.clone()
        return aligned.view(dtype).view(shape)


def _file_of(tensors: Mapping[str, StoredTensor], name: str) -> str | None:
    return tensors[name].path.name if name in tensors else None


def _read_index(path: Path) -> dict[str, str]:
    try:
        listed = json.loads(path.read_bytes())["weight_map"]
        if all(isinstance(each, str) and "/" not in each for each in listed.values()):
            return dict(listed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DataError(
        f"{path} is not an index of safetensors files: it needs weight_map, tensor -> file name; upload it again"
    )


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Return the place of each tensor in a file, by the tensor's name.

    Raises:
        DataError: the file is missing, cut off or not in this format, or has a dtype that the trainer does not
            read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = (
                json.loads(file.read(length)) if length <= min(size, _MAX_HEADER_BYTES) else None
            )
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as safetensors ({error}); upload it again"
        ) from error
    if not isinstance(header, dict):
        raise DataError(f"{path} is not a safetensors file: its header is damaged; upload it again")
    header.pop("__metadata__", None)
    try:
        tensors = {name: _stored(path, each, 8 + length) for name, each in header.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} has a damaged header ({error!r}); upload it again") from error
    wrong = [name for name, each in tensors.items() if each.dtype not in DTYPES]
    if wrong:
        raise DataError(
            f"{path}: {wrong[0]} has dtype {tensors[wrong[0]].dtype}; allowed are {', '.join(DTYPES)}; save the model "
            "without quantization"
        )
    short = [name for name, each in tensors.items() if _num_bytes(each) != each.end - each.start]
    last = max((each.end for each in tensors.values()), default=8 + length)
    if short or last != size:
        raise DataError(
            f"{path} is cut off or damaged: it has {size} bytes, its header describes {last}, and {len(short)} tensors "
            "have a length that does not match their shape; upload it again"
        )
    return tensors


def _stored(path: Path, entry: Mapping[str, Any], begin: int) -> StoredTensor:
    start, end = entry["data_offsets"]
    return StoredTensor(
        path=path,
        dtype=entry["dtype"],
        shape=tuple(map(int, entry["shape"])),
        start=begin + start,
        end=begin + end,
    )


def _num_bytes(stored: StoredTensor) -> int:
    return math.prod(stored.shape) * DTYPES[stored.dtype].itemsize


def write_files(
    folder: Path, groups: Iterable[Mapping[str, Tensor]], *, max_file_bytes: int = MAX_FILE_BYTES
) -> None:
    """Write tensors to `model.safetensors`, or to an index and several files of at most `max_file_bytes` bytes each.

    The tensors of a group are adjacent in one file, in the order of the group. Contiguous tensors in CPU
    memory are not copied before they are written. Tensors on a GPU are copied to the CPU one at a time.
    """
    files: list[dict[str, Tensor]] = [{}]
    num_bytes = 0
    for group in groups:
        size = sum(each.nbytes for each in group.values())
        if files[-1] and num_bytes + size > max_file_bytes:
            files.append({})
            num_bytes = 0
        files[-1] |= group
        num_bytes += size
    names = [f"model-{n:05d}-of-{len(files):05d}.safetensors" for n in range(1, len(files) + 1)]
    if len(files) == 1:
        _write_file(folder / SINGLE, files[0])
        return
    for name, tensors in zip(names, files, strict=True):
        _write_file(folder / name, tensors)
    listed = {each: name for name, group in zip(names, files, strict=True) for each in group}
    total = sum(each.nbytes for group in files for each in group.values())
    index = {"metadata": {"total_size": total}, "weight_map": listed}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _write_file(path: Path, tensors: Mapping[str, Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, each in tensors.items():
        start, end = end, end + each.nbytes
        header[name] = {
            "dtype": NAMES[each.dtype],
            "shape": list(each.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    path.unlink(missing_ok=True)  # a process may have mapped the file of an earlier start
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for each in tensors.values():
            file.write(bytes_of(each))


def bytes_of(tensor: Tensor) -> Any:
    """Return the bytes of a tensor, row by row, as a buffer that is valid as long as it is referenced."""
    values = tensor.detach().cpu().contiguous()
    buffer = (ctypes.c_char * values.nbytes).from_address(values.data_ptr())
    buffer.owner = values  # keeps the memory
    return buffer
