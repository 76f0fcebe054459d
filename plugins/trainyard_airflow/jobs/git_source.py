"""Scripts of a git repository at one commit: `git+https://host/team/repo.git@<commit>#subdirectory=<folder>`."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Self

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCHEME = "git+https://"
REPOSITORIES_KEY = "source_repositories"
"""Key in the `trainyard` part of the connection's extra: a list of addresses below which runs may read repositories."""
LIMIT_S = 300.0
_UNREACHABLE = re.compile(
    r"Could not resolve host|Failed to connect|timed out|Connection reset|HTTP 5\d\d"
)
_FORM = re.compile(
    r"git\+(https://[A-Za-z0-9.-]+(?::\d+)?/[A-Za-z0-9._~/-]+)@([0-9a-f]{40})(?:#subdirectory=([A-Za-z0-9._/-]+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """A folder of a repository at a commit.

    Attributes:
        commit: the whole hash, which gives every attempt of a job the same code.
        subdirectory: folder relative to the repository's root; empty for the root.
    """

    url: str
    commit: str
    subdirectory: str = ""

    @classmethod
    def read(cls, source_dir: str) -> Self:
        """Return the source that a `source_dir` names.

        Raises:
            SpecError: the text is malformed.
        """
        found = _FORM.fullmatch(source_dir)
        folder = PurePosixPath((found and found[3]) or "")
        if found is None or ".." in folder.parts or folder.is_absolute():
            finding = Finding(
                where="source_dir",
                what="is not a git source of the allowed form",
                got=source_dir,
                allowed="git+https://host/team/repo.git@<commit, 40 hexadecimal digits>, optionally with "
                "#subdirectory=<folder, relative to the repository's root>",
            )
            raise SpecError(finding, subject="source_dir")
        return cls(url=found[1], commit=found[2], subdirectory=str(folder) if folder.parts else "")

    def check(self, repositories: object) -> None:
        """Check that the connection allows runs to read the repository.

        Args:
            repositories: the connection's list of addresses; a repository below one of them may be read.

        Raises:
            SpecError: the repository is not allowed, or the list is malformed.
        """
        listed = repositories or []
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            finding = Finding(
                where=f"the connection's extra, trainyard.{REPOSITORIES_KEY}",
                what="is malformed",
                got=repr(repositories),
                allowed='a list of addresses, such as ["https://github.com/my-team/"]',
            )
            raise SpecError(finding, subject="source_dir")
        below = (each if each.endswith("/") else f"{each}/" for each in listed)
        if ".." in self.url or not any(f"{self.url}/".startswith(each) for each in below):
            finding = Finding(
                where="source_dir",
                what="is not a repository that a run may read",
                got=self.url,
                allowed=f"a repository below an address in trainyard.{REPOSITORIES_KEY} of the connection's "
                f"extra ({', '.join(listed) or 'none is set'})",
                next_step="add the repository's address to that list, or use an allowed repository",
            )
            raise SpecError(finding, subject="source_dir")

    @contextmanager
    def fetched(self) -> Iterator[Path]:
        """Yield the folder at the commit; it is removed when the `with` block ends.

        Credentials come from the worker's git configuration and credential helper; git never prompts for them.

        Raises:
            SpecError: the repository, the commit or the folder is not available.
            ConnectionError: the host does not answer; the same call may succeed later.
        """
        with tempfile.TemporaryDirectory(prefix="trainyard-git-") as root:
            self._git(root, "init", "--quiet")
            self._git(root, "fetch", "--quiet", "--depth=1", "--no-tags", self.url, self.commit)
            self._git(root, "checkout", "--quiet", "--detach", self.commit)
            folder = Path(root, self.subdirectory)
            if not folder.is_dir() or not folder.resolve().is_relative_to(Path(root).resolve()):
                finding = Finding(
                    where="source_dir",
                    what="names a folder that the repository does not have at this commit",
                    got=f"{self.subdirectory!r} in {self.url}@{self.commit}",
                    next_step="correct the commit or #subdirectory=<folder>",
                )
                raise SpecError(finding, subject="source_dir")
            yield folder

    def _git(self, root: str, *arguments: str) -> None:
        command: Sequence[str] = ("git", "-c", "core.symlinks=false", "-C", root, *arguments)
        environment = {
            **os.environ,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": os.environ.get("GIT_ALLOW_PROTOCOL", "https"),
        }
        try:
            ended = subprocess.run(  # noqa: S603  # the address was checked, no shell is involved
                command,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
        except FileNotFoundError:
            finding = Finding(
                where="source_dir",
                what="cannot be fetched, because this worker has no git",
                got=self.url,
                next_step="install git on the workers",
            )
            raise SpecError(finding, subject="source_dir") from None
        except subprocess.TimeoutExpired:
            raise ConnectionError(f"{self.url} did not respond within {LIMIT_S:g} s") from None
        if ended.returncode:
            output = " ".join(ended.stderr.split())[-400:]
            if _UNREACHABLE.search(output):
                raise ConnectionError(f"{self.url} cannot be fetched: {output}")
            finding = Finding(
                where="source_dir",
                what=f"cannot be fetched; git reports `{output}`",
                got=f"{self.url}@{self.commit}",
                next_step="check the address, the commit and the git credentials of the worker",
            )
            raise SpecError(finding, subject="source_dir")
