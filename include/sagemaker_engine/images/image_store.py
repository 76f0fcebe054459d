"""Store of the engine images on this machine: it builds each image once, for all processes that need it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine.images.environment import BELOW, BuildError, BuildStoppedError, fill
from sagemaker_engine.state.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sagemaker_engine.images.image_file import ImageFile

FOLDER_VARIABLE = "TRAINYARD_IMAGES"
MARKER = "engine-image.json"
LOOK_S = 0.2


def default_folder() -> Path:
    """Return the folder of this user's built images: $TRAINYARD_IMAGES, or a folder in the user's cache."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "trainyard" / "images"


def environment_prefix() -> Path:
    """Return the folder of the virtual environment that this interpreter belongs to.

    `sys.prefix` does not name it in a runner, because runners start with -S. Links in the path are resolved.
    The environment's programs contain the environment's real path, so instances must see it at that path.
    """
    folder = Path(sys.executable).parent.parent
    return folder.resolve() if (folder / "pyvenv.cfg").exists() else Path(sys.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStore:
    """The built images in `folder`. A build is complete if it has a marker file; an incomplete build is repeated."""

    folder: Path

    def place(self, image: ImageFile) -> Path:
        """Return the folder of the image's build, whether it exists or not."""
        environment = environment_prefix()
        base = (environment / "bin" / "python").resolve()
        python = f"{sys.version_info.major}.{sys.version_info.minor} {base}"
        key = image.key(python=python, environment=_identity(environment))
        return self.folder / f"{image.name}-{key}"

    def is_built(self, image: ImageFile) -> bool:
        """Return whether the build is complete and its interpreter still exists."""
        place = self.place(image)
        return (place / MARKER).exists() and (place / "bin" / "python").is_file()

    def build(
        self,
        image: ImageFile,
        *,
        on_progress: Callable[[str], None],
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> Path:
        """Build the image if it is missing, or wait while another process builds it; return its folder.

        `on_progress` receives lines of progress. `is_unwanted` is polled; if it returns True, the build is stopped.

        Raises:
            BuildError: The image cannot be built here.
            BuildStoppedError: `is_unwanted` returned True.
        """
        place = self.place(image)
        if self.is_built(image):
            return place
        missing = [each for each in image.programs if shutil.which(each) is None]
        if missing:
            raise BuildError(
                f"the build requires programs that this machine does not have: {', '.join(missing)}; install them"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock(image, on_progress, is_unwanted) as lock:
                if not self.is_built(image):
                    self._fill(image, place, lock, on_progress, is_unwanted)
        except OSError as error:
            raise BuildError(f"{place}: {error}") from error
        return place

    def remove_old(self, images: list[ImageFile]) -> list[str]:
        """Remove the outdated builds of these images; return the names of the removed builds.

        An outdated build is kept in two cases:

        - It is in progress.
        - It is layered on a Python environment that still exists and is not this interpreter's. Such a build
          belongs to another checkout.
        """
        wanted = {self.place(each).name for each in images}
        known = tuple(f"{each.name}-" for each in images)
        old = [
            path
            for path in (sorted(self.folder.iterdir()) if self.folder.exists() else ())
            if path.is_dir() and path.name.startswith(known) and path.name not in wanted
        ]
        return [path.name for path in old if not _is_of_another(path) and self._remove(path)]

    def _remove(self, place: Path) -> bool:
        """Remove a build unless its lock is held; return whether it was removed."""
        with self._lock_path(place).open("w") as lock:
            if not _take(lock.fileno()):
                return False
            shutil.rmtree(place)
        return True

    def _lock_path(self, place: Path) -> Path:
        return self.folder / f"{place.name}.lock"

    @contextmanager
    def _lock(
        self, image: ImageFile, on_progress: Callable[[str], None], is_unwanted: Callable[[], bool]
    ) -> Iterator[int]:
        """Hold the image's lock. Processes of the build inherit it, so it is held until the last of them has ended.

        Raises:
            BuildStoppedError: `is_unwanted` returned True.
        """
        with self._lock_path(self.place(image)).open("w") as lock:
            if not _take(lock.fileno()):
                on_progress(
                    f"engine image {image.name} is being built by another job; waiting for it"
                )
                while not _take(lock.fileno()):
                    if is_unwanted():
                        raise BuildStoppedError(image.name)
                    threading.Event().wait(LOOK_S)
            yield lock.fileno()

    def _fill(
        self,
        image: ImageFile,
        place: Path,
        lock: int,
        on_progress: Callable[[str], None],
        is_unwanted: Callable[[], bool],
    ) -> None:
        began = time.monotonic()
        on_progress(f"building engine image {image.name} into {place}; later jobs find it there")
        if place.exists():
            shutil.rmtree(place)
        try:
            fill(
                place,
                image,
                environment_prefix(),
                lock=lock,
                on_progress=on_progress,
                is_unwanted=is_unwanted,
            )
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        seconds = round(time.monotonic() - began, 1)
        write_whole(place / MARKER, json.dumps({"name": image.name, "seconds": seconds}))
        on_progress(f"engine image {image.name} is ready after {seconds} s")


def _identity(environment: Path) -> str:
    """Return the identity of a layered image's base: its folder and the version of torch in it."""
    torch = (path.name for path in environment.glob("lib/python3*/site-packages/torch-*.dist-info"))
    return " ".join([str(environment), *sorted(torch)])


def _is_of_another(place: Path) -> bool:
    """Return whether a build is layered on an existing environment other than this interpreter's."""
    records = place.glob(f"lib/python3*/site-packages/{BELOW}")
    below = [Path(each.read_text(encoding="utf-8").strip()) for each in records]
    own = environment_prefix()
    return any(each.is_dir() and not each.is_relative_to(own) for each in below)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
