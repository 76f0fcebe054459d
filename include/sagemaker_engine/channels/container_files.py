"""Files of an instance, named by their paths inside the instance.

The files that a job leaves are untrusted: a link may point to this machine's files, and opening a named
pipe may block for ever. A path therefore leads to the same file as it does inside the instance. It is
resolved one component at a time, with descriptors that no program can replace. Paths that leave the
instance's own folders are rejected, and only regular files are opened.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_LINKS = 40
"""Number of links above which a path counts as a loop, as in the kernel."""
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class OddFileError(Exception):
    """An entry that is not a regular file or folder of the instance; the message is the reason (`is a socket`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion:
    """Identity of a file's content, taken from the file's metadata without reading it; `size` is in bytes."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """Return the version that a stat result describes."""
        return cls(inode=status.st_ino, size=status.st_size, modified_ns=status.st_mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Content of a folder by relative path: the regular files, and for each other entry the reason to skip it."""

    files: dict[str, FileVersion] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFiles:
    """The folders of one instance on this machine's disk.

    `folders` maps the path of each folder inside the instance to its path on this machine.
    """

    folders: Mapping[str, Path]

    @classmethod
    def of_folder(cls, folder: Path) -> ContainerFiles:
        """Return the files of an instance that has only this folder.

        The folder's path inside the instance is the same as its path on this machine.
        """
        return cls(folders={str(folder): folder})

    def scan(self, path: str) -> Scan:
        """Return the content of a folder of the instance, including files behind links to the instance's own folders.

        Entries that vanish during the scan are omitted. The result is empty if the folder does not exist.
        """
        found = Scan()
        try:
            with self._opened(path) as (descriptor, real):
                self._visit(descriptor, real, "", frozenset(), found)
        except (OddFileError, FileNotFoundError, NotADirectoryError):
            pass
        return found

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open a regular file.

        Raises:
            OddFileError: The entry has another type, or its path leaves the instance's folders.
            OSError: The file does not exist or cannot be read.
        """
        with self._opened(path) as (descriptor, _):
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise OddFileError(f"is {_kind(mode)}")
            with Path(f"/proc/self/fd/{descriptor}").open("rb", buffering=0) as file:
                yield file

    @contextmanager
    def folder(self, path: str) -> Iterator[Path | None]:
        """Open a folder; yield its path on this machine, valid until the end of the block, or None if missing."""
        walk = _Walk(self.folders)
        seen_at = None
        try:
            walk.follow(path)
            descriptor = walk.descriptors[-1]
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                seen_at = Path(f"/proc/self/fd/{descriptor}")
        except (OddFileError, FileNotFoundError, NotADirectoryError):
            pass  # The folder does not exist.
        try:
            yield seen_at
        finally:
            walk.leave(len(walk.descriptors))

    def exists(self, path: str) -> bool:
        """Return whether an entry of any type exists."""
        parent, _, name = path.rpartition("/")
        try:
            with self._opened(parent) as (descriptor, _):
                os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except (OddFileError, OSError):
            return False
        return True

    def _visit(
        self,
        descriptor: int,
        real: str,
        prefix: str,
        above: frozenset[tuple[int, int]],
        found: Scan,
    ) -> None:
        status = os.fstat(descriptor)
        above |= {(status.st_dev, status.st_ino)}
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
        try:
            with os.scandir(readable) as entries:
                names = [(each.name, each.is_file(follow_symlinks=False)) for each in entries]
            for name, is_file in names:
                try:
                    if is_file and _is_text(name):
                        seen = os.stat(name, dir_fd=readable, follow_symlinks=False)
                        if stat.S_ISREG(seen.st_mode):
                            found.files[prefix + name] = FileVersion.of(seen)
                            continue
                    self._visit_entry(f"{real}/{name}", prefix + name, above, found)
                except FileNotFoundError:
                    continue
        finally:
            os.close(readable)

    def _visit_entry(
        self, path: str, name: str, above: frozenset[tuple[int, int]], found: Scan
    ) -> None:
        if not _is_text(name):
            found.odd[name] = "has a name that is not UTF-8"
            return
        try:
            with self._opened(path) as (descriptor, real):
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode):
                    found.files[name] = FileVersion.of(status)
                elif not stat.S_ISDIR(status.st_mode):
                    found.odd[name] = f"is {_kind(status.st_mode)}"
                elif (status.st_dev, status.st_ino) in above:
                    found.odd[name] = "is a link to a folder that contains it"
                else:
                    self._visit(descriptor, real, f"{name}/", above, found)
        except OddFileError as error:
            found.odd[name] = str(error)
        except FileNotFoundError:
            if self.exists(path):
                found.odd[name] = "is a broken link"
        except OSError as error:
            found.odd[name] = f"cannot be read: {error.strerror}"

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the target of a path without reading it (O_PATH); yield (descriptor, path without links).

        Raises:
            OddFileError: The path leaves the instance's folders, or has a loop.
            OSError: The target does not exist, or a folder cannot be entered.
        """
        walk = _Walk(self.folders)
        try:
            walk.follow(path)
            yield walk.descriptors[-1], "/" + "/".join(walk.names)
        finally:
            walk.leave(len(walk.descriptors))


class _Walk:
    """Resolution of a path from the instance's root, with one descriptor per component."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self.names: list[str] = []
        self.descriptors: list[int] = []
        """One per entry of `names`; -1 for a component above the folders."""

    def follow(self, path: str) -> None:
        """Resolve a path from the current position.

        Raises:
            OddFileError: The path leaves the instance's folders, or has a loop.
            OSError: The target does not exist, or a folder cannot be entered.
        """
        ahead = deque(_parts(path))
        num_links = 0
        while ahead:
            part = ahead.popleft()
            if part == "..":
                self.leave(1)
                continue
            target = self._enter(part, ahead)
            if target is None:
                continue
            num_links += 1
            if num_links > MAX_LINKS:
                raise OddFileError("is part of a cycle of links")
            if target.startswith("/"):
                self.leave(len(self.names))
            ahead.extendleft(reversed(_parts(target)))
        if not self.descriptors or self.descriptors[-1] < 0:
            raise OddFileError(_leads_out(self._path()))

    def leave(self, num_steps: int) -> None:
        """Go up by `num_steps` folders, at most to the root."""
        for _ in range(min(num_steps, len(self.names))):
            self.names.pop()
            descriptor = self.descriptors.pop()
            if descriptor >= 0:
                os.close(descriptor)

    def _enter(self, part: str, ahead: Iterable[str]) -> str | None:
        """Enter one path component and return None; if it is a link, stay and return its target.

        `ahead` has the components after it, for the error message.

        Raises:
            OddFileError: The component leaves the instance's folders.
        """
        path = f"{self._path()}/{part}" if self.names else f"/{part}"
        folder = self._folders.get(path)
        flags = os.O_PATH | os.O_CLOEXEC
        if folder is not None:
            descriptor = os.open(folder, flags | os.O_DIRECTORY)
        elif self.descriptors and self.descriptors[-1] >= 0:
            descriptor = os.open(part, flags | os.O_NOFOLLOW, dir_fd=self.descriptors[-1])
        elif any(each.startswith(f"{path}/") for each in self._folders):
            descriptor = -1
        else:
            raise OddFileError(_leads_out("/".join((path, *ahead))))
        if descriptor >= 0 and stat.S_ISLNK(os.fstat(descriptor).st_mode):
            try:
                return os.readlink("", dir_fd=descriptor)
            finally:
                os.close(descriptor)
        self.names.append(part)
        self.descriptors.append(descriptor)
        return None

    def _path(self) -> str:
        return "/" + "/".join(self.names)


def _leads_out(path: str) -> str:
    return f"leads to {printable(path)}, which is outside the instance's own folders"


def printable(path: str) -> str:
    """Return a path as text that any log accepts: bytes that are not UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a folder")
