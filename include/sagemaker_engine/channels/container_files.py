"""Files of an instance, named by the paths under which its programs know them.

What a job leaves is hostile until it is opened: a link may lead to this machine's files, a named pipe waits for a
writer for ever. So paths are resolved as the instance resolves them, one step at a time and by descriptors, which
nobody can swap; what leads out of the instance's own folders is not followed, and only regular files are opened.
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
"""Links in one path before it counts as a circle, as in the kernel."""
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class OddFileError(Exception):
    """An entry that is neither a regular file nor a folder of the instance; the message states so: `is a socket`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion:
    """Identity of one content of a file, known without reading it; `size` is in bytes."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """Return the version that a stat shows."""
        return cls(inode=status.st_ino, size=status.st_size, modified_ns=status.st_mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Content of a folder by relative path: regular files, and of every other entry why it is none."""

    files: dict[str, FileVersion] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFiles:
    """The folders of one instance that lie on this machine's disk: path inside -> path here."""

    folders: Mapping[str, Path]

    @classmethod
    def of_folder(cls, folder: Path) -> ContainerFiles:
        """Return a view of a single folder that bears the same path inside."""
        return cls(folders={str(folder): folder})

    def scan(self, path: str) -> Scan:
        """Return all files below a folder of the instance, also through links to its own files and folders.

        Entries that vanish meanwhile are left out; so is a folder that does not exist.
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
            OddFileError: It is something else, or its path leads out of the instance.
            OSError: It does not exist, or may not be read.
        """
        with self._opened(path) as (descriptor, _):
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise OddFileError(f"is {_kind(mode)}")
            with Path(f"/proc/self/fd/{descriptor}").open("rb", buffering=0) as file:
                yield file

    @contextmanager
    def folder(self, path: str) -> Iterator[Path | None]:
        """Open a folder; yield where this machine sees it until the end of the block, None if there is no folder."""
        walk = _Walk(self.folders)
        seen_at = None
        try:
            walk.follow(path)
            descriptor = walk.descriptors[-1]
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                seen_at = Path(f"/proc/self/fd/{descriptor}")
        except (OddFileError, FileNotFoundError, NotADirectoryError):
            pass  # There is no such folder.
        try:
            yield seen_at
        finally:
            walk.leave(len(walk.descriptors))

    def exists(self, path: str) -> bool:
        """Return whether an entry is there, whatever it is."""
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
                found.odd[name] = "is a link that leads to nothing"
        except OSError as error:
            found.odd[name] = f"cannot be read: {error.strerror}"

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, str]]:
        """Open what a path leads to inside, without reading it (O_PATH); yield that and its path without links.

        Raises:
            OddFileError: It leads out of the instance's folders, or in a circle.
            OSError: It does not exist, or may not be entered.
        """
        walk = _Walk(self.folders)
        try:
            walk.follow(path)
            yield walk.descriptors[-1], "/" + "/".join(walk.names)
        finally:
            walk.leave(len(walk.descriptors))


class _Walk:
    """A way from the instance's root to one of its files: a descriptor for every step."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self.names: list[str] = []
        self.descriptors: list[int] = []
        """As many as `names`; -1 for what lies above the folders, where only folders are."""

    def follow(self, path: str) -> None:
        """Go to where a path leads.

        Raises:
            OddFileError: It leads out of the instance's folders, or in a circle.
            OSError: It does not exist, or may not be entered.
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
                raise OddFileError("is a link in a circle")
            if target.startswith("/"):
                self.leave(len(self.names))
            ahead.extendleft(reversed(_parts(target)))
        if not self.descriptors or self.descriptors[-1] < 0:
            raise OddFileError(_leads_out(self._path()))

    def leave(self, num_steps: int) -> None:
        """Go back so many steps, or to the root."""
        for _ in range(min(num_steps, len(self.names))):
            self.names.pop()
            descriptor = self.descriptors.pop()
            if descriptor >= 0:
                os.close(descriptor)

    def _enter(self, part: str, ahead: Iterable[str]) -> str | None:
        """Go one step down; at a link stay and return its target.

        Raises:
            OddFileError: The step leads out of the instance's folders.
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
    return f"leads to {printable(path)}, which is not of this instance alone"


def printable(path: str) -> str:
    """Return a path as text that any log takes: bytes that are not UTF-8 become escapes."""
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
