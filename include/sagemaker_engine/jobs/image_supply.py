"""Runtime that emulates the container image of a job.

If the engine image that the runtime needs is missing, it is built before the job gets instances.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from sagemaker_engine.images.environment import BuildError, BuildStoppedError
from sagemaker_engine.images.image_store import ImageStore
from sagemaker_engine.jobs.images import UnknownImageError, resolve_image
from sagemaker_engine.jobs.job import JobError
from sagemaker_engine.jobs.logs import LogFile, next_epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.job import Job
    from sagemaker_engine.jobs.supervision import Ending

log = logging.getLogger(__name__)

FIRST_HOST = "algo-1"
MESSAGE = "Downloading the training image"


def find_runtime(job: Job, uri: str) -> ImageRuntime:
    """Return the runtime that emulates an image.

    Raises:
        JobError: No runtime emulates the image.
    """
    places = {
        "images_folder": job.settings.images_folder,
        "image_files": job.settings.image_files,
    }
    try:
        return resolve_image(uri, **places)
    except UnknownImageError as error:
        raise JobError(f"ClientError: {error}") from error


def supply(job: Job, runtime: ImageRuntime, order: Callable[[], Ending | None]) -> None:
    """Build the runtime's engine image if it is missing; a log stream of the first instance shows the progress.

    `order` returns the reason to end the job, or None.

    Raises:
        JobError: The image cannot be built, this engine does not build images, or the job was ended meanwhile.
    """
    image, store = runtime.image, ImageStore(folder=job.settings.images_folder)
    if image is None or store.is_built(image):
        return
    by_hand = f"Build it by hand: python -m sagemaker_engine.images {image.name}"
    if not job.settings.builds_images:
        raise JobError(
            f"ClientError: engine image {image.name!r} is not built, and this engine does not build images "
            f"(--build-images never). {by_hand}"
        )
    began = job.created_at
    folder = job.folder / "logs"
    stream = LogFile(folder, FIRST_HOST, epoch=next_epoch(folder, began), on_line=lambda *_: None)
    job.set_status_message(MESSAGE)
    with closing(stream):

        def log_progress(line: str) -> None:
            log.info("engine image %s: %s", image.name, line)
            stream.add_line(line)

        try:
            store.build(image, on_progress=log_progress, is_unwanted=lambda: order() is not None)
        except BuildStoppedError as error:
            raise JobError(
                f"ClientError: the job was stopped while its engine image {image.name!r} was built"
            ) from error
        except BuildError as error:
            raise JobError(
                f"ClientError: engine image {image.name!r} cannot be built here: {error}. {by_hand}"
            ) from error
