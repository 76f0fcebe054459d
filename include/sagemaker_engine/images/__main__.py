"""Command `python -m sagemaker_engine.images [NAME ...]`: builds engine images ahead of their first use."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sagemaker_engine.images.environment import BuildError
from sagemaker_engine.images.image_file import ImageFile, ImageFileError, read_image_files
from sagemaker_engine.images.image_store import FOLDER_VARIABLE, ImageStore, default_folder

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the images; return 0 on success, 1 if an image cannot be built, 2 for an unknown name or malformed file."""
    options = _parser().parse_args(arguments)
    store = ImageStore(folder=default_folder())
    try:
        images = read_image_files()
    except ImageFileError as error:
        return _fail(str(error), status=2)
    unknown = sorted(set(options.names) - {each.name for each in images})
    if unknown:
        known = ", ".join(each.name for each in images)
        return _fail(f"unknown engine image {', '.join(unknown)}; known: {known}", status=2)
    if options.remove_old:
        for name in store.remove_old(images):
            _print(f"removed {name}")
    chosen = [each for each in images if not options.names or each.name in options.names]
    results = [_build(store, image, f"{n}/{len(chosen)}") for n, image in enumerate(chosen, 1)]
    return 0 if all(results) else 1


def _build(store: ImageStore, image: ImageFile, number: str) -> bool:
    if store.is_built(image):
        _print(f"[{number}] {image.name}: is already built in {store.place(image)}")
        return True
    try:
        store.build(image, on_progress=lambda line: _print(f"[{number}] {image.name}: {line}"))
    except BuildError as error:
        _fail(f"[{number}] {image.name}: cannot be built: {error}", status=1)
        return False
    return True


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fail(line: str, *, status: int) -> int:
    sys.stderr.write(f"{line}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sagemaker_engine.images",
        description="Build engine images: virtual environments that emulate container images.",
        epilog=f"The images are built in the folder ${FOLDER_VARIABLE}, by default {default_folder()}.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="images to build (all)")
    parser.add_argument(
        "--remove-old", action="store_true", help="remove earlier builds of the images"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
