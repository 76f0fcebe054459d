"""Files of the images folder: definitions of engine images, and the map of a team's own images to known ones.

`images/<name>/requirements.txt` defines an engine image by its header and pinned packages. `own_images.toml` maps own
images:

```toml
[images]
"123456789012.dkr.ecr.us-east-1.amazonaws.com/team/train" = "pytorch"
"*/team/transformers-*" = "huggingface"
```

A key is an image URI, with `*` and `?` as in a shell; without a tag it matches every tag. A value is one of AWS's
repositories that the engine emulates, or the name of an engine image.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sagemaker_engine import IMAGES_FOLDER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

FILE_NAME = "requirements.txt"
KEYS = (
    "repositories",
    "tags",
    "training-module",
    "layer",
    "unless",
    "launchers",
    "programs",
    "build",
    "build-environment",
    "source",
    "imports",
)
MARK = "#:"
FOLDER = "{folder}"
BUILD_FILE = re.compile(re.escape(FOLDER) + r"/([\w.+-]+)")
KEY_CHARS = 12
OWN_IMAGES = "own_images.toml"
OWN_TABLE = "images"


class ImageFileError(ValueError):
    """A file in `images/` is malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """One engine image, as described by its file.

    - `text`: the file's content. pip installs exactly these requirements, without dependencies.
    - `repositories`: last components of the repositories that the image emulates.
    - `unless`: package that makes the image unnecessary. If Trainyard's own environment has it, that
      environment emulates the repositories instead.
    - `tags`: first parts of the tags that the image emulates (`1.2-1` for `1.2-1-cpu-py3`); empty for all tags.
    - `training_module`: AWS's framework entry point.
    - `is_layered`: whether the packages of Trainyard's own environment (torch) are visible, too. The image's
      own packages have priority.
    - `launchers`: launcher flags of AWS's toolkit that the image supports.
    - `programs`: programs that this machine must have to build the image.
    - `build_environment`: environment variables of the build, in which `{folder}` is replaced by the image's
      folder.
    - `build_files`: SHA-256 of each file in the image's folder that `build_environment` names.
    - `build_requirements`: packages that are installed first, for use by the build.
    - `source`: a subfolder of the image's folder. Jobs that run in the image have it on their import path.
    - `imports`: modules that must be importable, or the build fails.
    """

    name: str
    text: str
    repositories: tuple[str, ...]
    tags: tuple[str, ...] = ()
    training_module: str | None = None
    is_layered: bool = False
    unless: str | None = None
    launchers: frozenset[str] = frozenset()
    programs: tuple[str, ...] = ()
    build_environment: Mapping[str, str] = field(default_factory=dict)
    build_files: Mapping[str, str] = field(default_factory=dict)
    build_requirements: tuple[str, ...] = ()
    source: Path | None = None
    imports: tuple[str, ...] = ()

    @property
    def pins(self) -> tuple[str, ...]:
        """Return the lines for pip, without comments."""
        lines = (line.partition("#")[0].strip() for line in self.text.splitlines())
        return tuple(line for line in lines if line)

    def has_tag(self, tag: str | None) -> bool:
        """Return whether the engine image emulates this tag of its repositories; None means no tag."""
        return not self.tags or f"{tag}-".startswith(tuple(f"{each}-" for each in self.tags))

    def key(self, *, python: str, environment: str) -> str:
        """Return a hash of everything that affects the build. It distinguishes builds with the same name.

        `python` is the interpreter's version and path. `environment` identifies the environment below a layered image.
        """
        settings = [f"{name}={value}" for name, value in sorted(self.build_environment.items())]
        files = [f"{name} is {content}" for name, content in sorted(self.build_files.items())]
        build = [f"build {each}" for each in self.build_requirements]
        below = environment if self.is_layered else ""
        parts = [*self.pins, *build, *settings, *files, python, below]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:KEY_CHARS]


def read_image_files(folder: Path = IMAGES_FOLDER) -> list[ImageFile]:
    """Return the engine images that the files of a folder describe, sorted by name.

    Raises:
        ImageFileError: A file is malformed, or two images emulate the same tag of a repository.
    """
    for path in folder.glob("*.txt"):
        raise ImageFileError(
            f"{path.name} is not in the folder of an engine image; move it to {path.stem}/{FILE_NAME}"
        )
    found = [read_image_file(path) for path in sorted(folder.glob(f"*/{FILE_NAME}"))]
    owners: dict[str, list[ImageFile]] = {}
    for image in found:
        for repository in image.repositories:
            for other in owners.setdefault(repository, []):
                _check_apart(image, other, repository)
            owners[repository].append(image)
    return found


def _check_apart(image: ImageFile, other: ImageFile, repository: str) -> None:
    """Check that the two images emulate no common tag of a repository.

    Raises:
        ImageFileError: Both images emulate the same tag.
    """
    if not (image.tags and other.tags) or set(image.tags) & set(other.tags):
        raise ImageFileError(
            f"{_place(image.name)}: repository {repository!r} is also in {_place(other.name)}; name it in only "
            f"one of the files, or give each file its own `{MARK} tags = ...`"
        )


def read_image_file(path: Path) -> ImageFile:
    """Return the engine image that a file describes: `#: key = value` lines, then pinned requirements.

    Raises:
        ImageFileError: A line of the header is malformed, or a requirement is not pinned.
    """
    text = path.read_text(encoding="utf-8")
    header: dict[str, str] = {}
    place = _place(path.parent.name)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(MARK):
            key, value = _setting(line, f"{place}, line {number}")
            header[key] = value
        elif not _is_pinned(line.partition("#")[0].strip()):
            raise ImageFileError(
                f"{place}, line {number}: {line!r} has no exact version; write package==version"
            )
    return _image_file(path.parent, text, header)


def _place(name: str) -> str:
    return f"images/{name}/{FILE_NAME}"


def _image_file(folder: Path, text: str, header: Mapping[str, str]) -> ImageFile:
    place = _place(folder.name)
    layer = header.get("layer", "python")
    if layer not in {"python", "environment"}:
        raise ImageFileError(
            f"{place}: layer is {layer!r}; allowed: python (only the packages in this file), environment "
            "(also the packages of Trainyard's own environment)"
        )
    named = BUILD_FILE.findall(header.get("build-environment", ""))
    if lacking := [each for each in named if not (folder / each).is_file()]:
        raise ImageFileError(
            f"{place}: build-environment names '{FOLDER}/{lacking[0]}', but {folder} "
            f"has no file {lacking[0]!r}; add the file"
        )
    if not header.get("repositories"):
        raise ImageFileError(
            f"{place}: the setting 'repositories' is missing; write `{MARK} repositories = <repository name> ...`"
        )
    return ImageFile(
        name=folder.name,
        text=text,
        repositories=tuple(header["repositories"].split()),
        tags=tuple(header.get("tags", "").split()),
        training_module=header.get("training-module"),
        is_layered=layer == "environment",
        unless=header.get("unless"),
        launchers=frozenset(header.get("launchers", "").split()),
        programs=tuple(header.get("programs", "").split()),
        build_environment=_environment(header.get("build-environment", ""), folder),
        build_files={each: _content(folder / each) for each in named},
        build_requirements=tuple(header.get("build", "").split()),
        source=folder / header["source"] if "source" in header else None,
        imports=tuple(header.get("imports", "").split()),
    )


def _environment(text: str, folder: Path) -> dict[str, str]:
    pairs = (each.split("=", 1) for each in shlex.split(text))
    return {name: value.replace(FOLDER, str(folder)) for name, value in pairs}


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_pinned(requirement: str) -> bool:
    """Return whether a line, without its comment, is empty, a pip option, or a package with a version."""
    return not requirement or requirement.startswith("-") or "==" in requirement


def _setting(line: str, where: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in line.removeprefix(MARK).partition("="))
    if key not in KEYS or not equals:
        problem = "has no value" if key in KEYS else "has an unknown key"
        raise ImageFileError(
            f"{where}: {line!r} {problem}; write `{MARK} key = value`; allowed keys: {', '.join(KEYS)}"
        )
    return key, value


def read_own_images(folder: Path, *, allowed: Collection[str]) -> Mapping[str, str]:
    """Return the patterns of `own_images.toml` and their targets; empty if the file does not exist.

    Raises:
        ImageFileError: The file is malformed, or a target is not in `allowed`.
    """
    path = folder / OWN_IMAGES
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ImageFileError(f"{path} is not valid TOML: {error}") from error
    if unknown := sorted(set(data) - {OWN_TABLE}):
        raise ImageFileError(f"{path}: unknown table {unknown[0]!r}; allowed: [{OWN_TABLE}]")
    images = data.get(OWN_TABLE, {})
    for pattern, target in images.items():
        if target not in allowed:
            raise ImageFileError(
                f"{path}: {pattern!r} cannot be mapped to {target!r}; allowed: {', '.join(sorted(allowed))}"
            )
    return dict(images)


def stand_in(uri: str, own: Mapping[str, str]) -> str | None:
    """Return the target to which `own` maps an image URI, or None.

    `own` maps patterns to targets. The first pattern that matches is used.
    """
    matches = (
        target
        for pattern, target in own.items()
        if fnmatchcase(uri, pattern) or fnmatchcase(_repository(uri), pattern)
    )
    return next(matches, None)


def is_mapped(repository: str, own: Mapping[str, str]) -> bool:
    """Return whether a pattern in `own` matches some tag of `repository`.

    `own` maps patterns to targets. `repository` is an image URI without a tag.
    """
    return any(fnmatchcase(repository, _repository(pattern)) for pattern in own)


def _repository(uri: str) -> str:
    """Return an image URI or a pattern without its tag and digest."""
    head, slash, last = uri.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
