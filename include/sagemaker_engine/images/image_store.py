"""The engine images that are built on this machine, and how one more is built: once, whoever asks for it."""

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sagemaker_engine.images.image_file import ImageFile

FOLDER_VARIABLE = "TRAINYARD_IMAGES"
MARKER = "engine-image.json"
LOOK_S = 0.2


def default_folder() -> Path:
    """Return the folder that all engines of this user share: `TRAINYARD_IMAGES`, else one in the user's cache."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "trainyard" / "images"


def environment_prefix() -> Path:
    """Return the folder of the environment that this interpreter belongs to.

    `sys.prefix` does not say so in a runner: it starts with -S, and then it names the base. A link to the folder is
    followed: its programs name the real one, so that is what an instance must see a copy of.
    """
    folder = Path(sys.executable).parent.parent
    return folder.resolve() if (folder / "pyvenv.cfg").exists() else Path(sys.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStore:
    """The built images in `folder`. A build is complete when its marker is there; anything else is begun anew."""

    folder: Path

    def place(self, image: ImageFile) -> Path:
        """Return where the image is built, or would be."""
        environment = environment_prefix()
        base = (environment / "bin" / "python").resolve()
        python = f"{sys.version_info.major}.{sys.version_info.minor} {base}"
        key = image.key(python=python, environment=_identity(environment))
        return self.folder / f"{image.name}-{key}"

    def is_built(self, image: ImageFile) -> bool:
        """Return whether the image is complete, and its interpreter still there."""
        place = self.place(image)
        return (place / MARKER).exists() and (place / "bin" / "python").is_file()

    def build(
        self,
        image: ImageFile,
        *,
        say: Callable[[str], None],
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> Path:
        """Return where the image is; build it unless it is there, or wait for whoever builds it.

        `say` gets lines of progress; `is_unwanted` is asked all the while.

        Raises:
            BuildError: It cannot be built here.
            BuildStoppedError: Nobody wants it any more.
        """
        place = self.place(image)
        if self.is_built(image):
            return place
        missing = [each for each in image.programs if shutil.which(each) is None]
        if missing:
            raise BuildError(f"building it takes {', '.join(missing)}, which this machine lacks")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock(image, say, is_unwanted) as lock:
                if not self.is_built(image):
                    self._fill(image, place, lock, say, is_unwanted)
        except OSError as error:
            raise BuildError(f"{place}: {error}") from error
        return place

    def remove_old(self, images: list[ImageFile]) -> list[str]:
        """Remove what is none of these images, builds of other versions of Trainyard too; return the names.

        Kept are builds that are going on, and layered ones above another environment that is still there: they are a
        checkout's that has files of its own.
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
        """Remove a build unless its lock is held; return whether it is gone."""
        with self._lock_path(place).open("w") as lock:
            if not _take(lock.fileno()):
                return False
            shutil.rmtree(place)
        return True

    def _lock_path(self, place: Path) -> Path:
        return self.folder / f"{place.name}.lock"

    @contextmanager
    def _lock(
        self, image: ImageFile, say: Callable[[str], None], is_unwanted: Callable[[], bool]
    ) -> Iterator[int]:
        """Hold the image's lock. What a build starts inherits it, so that it is held until the last of that ended.

        Raises:
            BuildStoppedError: Nobody wants the image any more.
        """
        with self._lock_path(self.place(image)).open("w") as lock:
            if not _take(lock.fileno()):
                say(f"engine image {image.name} is being built by another job; waiting for it")
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
        say: Callable[[str], None],
        is_unwanted: Callable[[], bool],
    ) -> None:
        began = time.monotonic()
        say(f"building engine image {image.name} into {place}; later jobs find it there")
        if place.exists():
            shutil.rmtree(place)
        try:
            fill(place, image, environment_prefix(), lock=lock, say=say, is_unwanted=is_unwanted)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        seconds = round(time.monotonic() - began, 1)
        marker = place / f"{MARKER}.new"
        marker.write_text(json.dumps({"name": image.name, "seconds": seconds}), encoding="utf-8")
        marker.replace(place / MARKER)
        say(f"engine image {image.name} is ready after {seconds} s")


def _identity(environment: Path) -> str:
    """Return what a layered image is built on: a folder and the torch in it."""
    torch = (path.name for path in environment.glob("lib/python3*/site-packages/torch-*.dist-info"))
    return " ".join([str(environment), *sorted(torch)])


def _is_of_another(place: Path) -> bool:
    """Return whether a build lies above an environment that is there and is not this interpreter's."""
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
