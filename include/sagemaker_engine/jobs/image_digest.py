"""Manifests of emulated images.

The digest of a manifest changes if the packages of the image change, or if the programs that the image runs
for a job change.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING

from sagemaker_engine import IMAGES_FOLDER
from sagemaker_engine.images.aws_images import read_name
from sagemaker_engine.jobs.images import UnknownImageError, resolve_image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sagemaker_engine.jobs.images import ImageRuntime

MEDIA_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"


def manifest_of(uri: str, *, image_files: Path = IMAGES_FOLDER) -> str:
    """Return the manifest of a tagged image. The manifest lists no layers, because the engine stores none.

    Raises:
        UnknownImageError: `uri` is not an image URI.
    """
    name = read_name(uri)
    if name is None:
        raise UnknownImageError(f"{uri!r} is not an image URI; write registry/repository[:tag]")
    return manifest(name.repository, name.tag or "latest", content_of(uri, image_files=image_files))


def manifest(repository: str, tag: str, content: Sequence[str]) -> str:
    """Return a manifest whose config is the image's name and content."""
    config = json.dumps({"repository": repository, "tag": tag, "content": list(content)})
    described = {
        "mediaType": _CONFIG_TYPE,
        "size": len(config.encode()),
        "digest": digest_of(config),
    }
    return json.dumps(
        {"schemaVersion": 2, "mediaType": MEDIA_TYPE, "config": described, "layers": []}
    )


def digest_of(document: str) -> str:
    """Return the digest of a manifest or of a config: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(document.encode()).hexdigest()}"


def content_of(uri: str, *, image_files: Path = IMAGES_FOLDER) -> tuple[str, ...]:
    """Return the content of an emulated image: Python, packages and programs; empty if it is not emulated."""
    try:
        runtime = resolve_image(uri, image_files=image_files)
    except UnknownImageError:
        return ()
    return tuple(_parts(runtime))


def _parts(runtime: ImageRuntime) -> Iterator[str]:
    image = runtime.image
    yield f"python {sys.version_info.major}.{sys.version_info.minor}"
    if image is not None:
        yield image.text
        yield from (f"{name} {sha256}" for name, sha256 in sorted(image.build_files.items()))
    for prefix in (runtime.prefix,) if image is None else runtime.layers:
        yield from sorted(p.name for p in prefix.glob("lib/python3*/site-packages/*.dist-info"))
    if runtime.source_folder is not None:
        yield from _programs(runtime.source_folder)


def _programs(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        yield f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
