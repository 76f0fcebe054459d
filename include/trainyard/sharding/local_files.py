"""Local files that a run may read: below allowed folders, never in private ones, after symbolic links are resolved."""

from __future__ import annotations

import os
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError
from trainyard.sharding.objects import S3_SCHEME
from trainyard.sharding.source_glob import glob_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PYTHON_STDLIB = "python-stdlib"
"""Source that stands for the running interpreter's standard library. It needs no `source_roots`."""
ROOTS_KEY, PRIVATE_KEY = "source_roots", "private_folders"
"""Keys of two lists of folders in the `trainyard` part of the connection's extra."""
SYSTEM_FOLDERS = tuple(
    Path(each)
    for each in (
        *("/boot", "/dev", "/etc", "/proc", "/run", "/sys"),
        *("/var/log", "/var/mail", "/var/run", "/var/spool"),
    )
)
CREDENTIAL_NAMES = frozenset(
    {
        *(".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh", ".config", ".password-store"),
        *(".boto", ".env", ".git-credentials", ".netrc", ".pgpass", ".pypirc", ".npmrc"),
    }
)
"""Names of files and folders that are private anywhere in a path."""
CREDENTIAL_VARIABLES = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
)
_MOST_CHARACTERS = 1024
_PATH = f"up to {_MOST_CHARACTERS} characters, none of them a control character"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFiles:
    """Local files that a run may read. Without `roots`, these are only the files in the standard library's folder.

    Attributes:
        roots: folders below which files may be read, in addition to the folder of Python's standard library.
        private: folders and files that are never read, also below a root.
    """

    roots: tuple[Path, ...] = ()
    private: tuple[Path, ...] = ()

    def findings(self, uri: str, *, where: str) -> Iterator[Finding]:
        """Yield the reasons why a source, a tokenizer or a glob may not be read; nothing for S3 addresses.

        This checks only the path itself; `check` checks the files below it.
        """
        if uri.startswith(S3_SCHEME) or uri == PYTHON_STDLIB:
            return
        fixed = glob_start(uri)
        is_glob = fixed != uri and not _exists(uri)
        is_walked = not is_glob or "**" in uri
        path = _resolved(os.path.dirname(fixed) or "." if is_glob else uri)  # noqa: PTH120  # keeps the text as it is
        bounds = self._bounds()
        if path is None:
            yield Finding(where=where, what="is not a path", got=repr(uri[:200]), allowed=_PATH)
        elif bounds.is_private(path) or (is_walked and bounds.holds_private(path)):
            yield _private(where, uri)
        elif not bounds.is_below_root(path):
            yield self._outside(where, uri)

    def check(self, paths: Iterable[Path], *, where: str) -> None:
        """Check the files that are about to be read.

        Raises:
            SpecError: a file is outside of the roots or in a private folder.
        """
        bounds = self._bounds()
        for path in paths:
            resolved = _real(path)
            if bounds.is_private(resolved):
                raise SpecError(_private(where, str(path)))
            if not bounds.is_below_root(resolved):
                raise SpecError(self._outside(where, str(path)))

    def _bounds(self) -> _Bounds:
        forbidden = {each for p in (*SYSTEM_FOLDERS, *self.private) for each in (p, _real(p))}
        roots = {_real(each) for each in (*self.roots, Path(sysconfig.get_path("stdlib")))}
        return _Bounds(roots=frozenset(roots), forbidden=frozenset(forbidden))

    def _outside(self, where: str, uri: str) -> Finding:
        roots = ", ".join(map(str, self.roots)) or "none is set"
        return Finding(
            where=where,
            what="is not below a folder that a run may read",
            got=uri,
            allowed=f"{PYTHON_STDLIB}, s3://..., or a path below a source root ({roots})",
            next_step=f"copy the data to S3, or add its folder to trainyard.{ROOTS_KEY} in the connection's extra",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """Roots and private folders, with symbolic links resolved."""

    roots: frozenset[Path]
    forbidden: frozenset[Path]

    def is_below_root(self, path: Path) -> bool:
        return any(path.is_relative_to(each) for each in self.roots)

    def is_private(self, path: Path) -> bool:
        is_forbidden = any(path.is_relative_to(each) for each in self.forbidden)
        return is_forbidden or not CREDENTIAL_NAMES.isdisjoint(path.parts)

    def holds_private(self, path: Path) -> bool:
        """Return whether a recursive listing of the folder `path` would reach a private file or folder.

        Hidden private paths, and those in hidden folders, do not count.
        """
        below = (each.relative_to(path) for each in self.forbidden if each.is_relative_to(path))
        return any(not any(part.startswith(".") for part in each.parts) for each in below)


def local_files(*, roots: object, private: object) -> LocalFiles:
    """Return the files that a run may read, from two lists in the extra of an Airflow connection.

    Args:
        roots: a list of absolute folders; `~` is the worker's home.
        private: a list of absolute folders. Credential files that the environment names are private, too.

    Raises a SpecError if a value is not a list or a folder is not absolute.
    """
    named = [os.environ[each] for each in CREDENTIAL_VARIABLES if os.environ.get(each)]
    credentials = [Path(each).absolute() for name in named for each in name.split(os.pathsep)]
    return LocalFiles(
        roots=_folders(roots, ROOTS_KEY), private=(*_folders(private, PRIVATE_KEY), *credentials)
    )


def _folders(value: object, key: str) -> tuple[Path, ...]:
    listed = value if isinstance(value, list | tuple) else [None]
    texts = [each for each in listed if isinstance(each, str)]
    paths = tuple(Path(each).expanduser() for each in texts)
    if len(paths) < len(listed) or not all(each.is_absolute() for each in paths):
        raise SpecError(
            Finding(
                where=f"the connection's extra, trainyard.{key}",
                what="is malformed",
                got=repr(value),
                allowed='a list of absolute folders, such as ["/mnt/data"]',
                next_step="correct the connection's extra",
            )
        )
    return paths


def _private(where: str, uri: str) -> Finding:
    return Finding(
        where=where,
        what="leads to files that no run may read (files of the system, files of Airflow, or credentials)",
        got=uri,
        allowed=f"a folder with data only, s3://..., or {PYTHON_STDLIB}",
        next_step="copy the data to a separate folder, or to S3",
    )


def _resolved(uri: str) -> Path | None:
    """Return the resolved path of an address, or None if it cannot be a path."""
    if re.search(r"[\x00-\x1f\x7f]", uri) or len(uri) > _MOST_CHARACTERS:
        return None
    try:
        return _real(Path(uri).expanduser())
    except (OSError, RuntimeError):  # no such user's home
        return None


def _exists(uri: str) -> bool:
    try:
        return Path(uri).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
