"""A team's own images: the file `own_images.toml` in the folder of image files maps them to known images.

```toml
[images]
"123456789012.dkr.ecr.us-east-1.amazonaws.com/team/train" = "pytorch"
"*/team/transformers-*" = "huggingface"
```

A key is an image URI, with `*` and `?` as in a shell; without a tag it matches every tag. A value is one of AWS's
repositories that the engine emulates, or the name of an engine image.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sagemaker_engine.images.image_file import ImageFileError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

NAME = "own_images.toml"
TABLE = "images"


def read_own_images(folder: Path, *, allowed: Collection[str]) -> Mapping[str, str]:
    """Return the file's patterns and their targets; empty if the file does not exist.

    Raises:
        ImageFileError: The file is malformed, or a target is not in `allowed`.
    """
    path = folder / NAME
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ImageFileError(f"{path}: not TOML: {error}") from error
    if unknown := sorted(set(data) - {TABLE}):
        raise ImageFileError(f"{path}: unknown table {unknown[0]!r}; allowed: [{TABLE}]")
    images = data.get(TABLE, {})
    for pattern, target in images.items():
        if target not in allowed:
            raise ImageFileError(
                f"{path}: {pattern!r} is {target!r}; allowed: {', '.join(sorted(allowed))}"
            )
    return dict(images)


def stand_in(uri: str, own: Mapping[str, str]) -> str | None:
    """Return the target of the first pattern that matches an image URI, or None."""
    matches = (
        target
        for pattern, target in own.items()
        if fnmatchcase(uri, pattern) or fnmatchcase(_repository(uri), pattern)
    )
    return next(matches, None)


def is_mapped(repository: str, own: Mapping[str, str]) -> bool:
    """Return whether a pattern maps an image of a repository, given as an image URI without tag."""
    return any(fnmatchcase(repository, _repository(pattern)) for pattern in own)


def _repository(uri: str) -> str:
    """Return an image URI or a pattern without its tag and digest."""
    head, slash, last = uri.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
