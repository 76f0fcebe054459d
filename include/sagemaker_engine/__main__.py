"""Command `python -m sagemaker_engine`: runs one engine until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sqlite3
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine import IMAGES_FOLDER
from sagemaker_engine.engine import (
    STOP_MARGIN_S,
    Engine,
    RootInUseError,
    WarmWhen,
    hold_root,
)
from sagemaker_engine.jobs.failures import ENGINE_ABSENCE_S
from sagemaker_engine.jobs.supervision import STOP_GRACE_S
from sagemaker_engine.state.full_disk import is_disk_full
from sagemaker_engine.state.settings import EngineSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

CANNOT_START = 2
BUILD_VARIABLE = "TRAINYARD_BUILD_IMAGES"
HOW_IT_ENDS = (
    "SIGTERM or SIGINT stops all running jobs as StopTrainingJob does: SIGTERM to their processes, "
    f"SIGKILL after a grace period of {STOP_GRACE_S:.0f} s times the time scale, then the upload of "
    f"their artifacts. The engine waits for them for the grace period plus {STOP_MARGIN_S:.0f} s at "
    "most, then exits with 0 within seconds. A second signal ends the engine at once; its jobs still stop. "
    "After SIGKILL of the engine the jobs continue: an engine that starts with the same root "
    f"within {ENGINE_ABSENCE_S:.0f} s adopts them; otherwise they stop."
)


class BuildImages(StrEnum):
    """Policy for engine images that a job needs and that are not built yet."""

    ON_DEMAND = "on-demand"
    NEVER = "never"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an engine and return its exit status: 0 after SIGTERM or SIGINT, 2 if it cannot start."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = EngineSettings(
            root=Path(options.root).resolve(),
            endpoint_url="",
            region=options.region,
            account=options.account,
            time_scale=options.time_scale,
            spot_discount=options.spot_discount,
            image_files=_image_files(options.image_files),
            builds_images=_builds_images(options.build_images),
        )
        with hold_root(settings.lock_path):
            engine = Engine(
                settings,
                warm=WarmWhen(options.warm),
                allowed_hosts=tuple(options.allowed_host),
            )
            _run(engine, options.host, options.port)
    except (OSError, sqlite3.Error, RootInUseError, ValueError) as error:
        why = str(error)
        if is_disk_full(error):
            root = Path(options.root).resolve()
            why = f"the disk that holds {root} is full; free some space, or give another --root"
        sys.stderr.write(f"the engine cannot start: {why}\n")
        return CANNOT_START
    return 0


def _run(engine: Engine, host: str, port: int) -> None:
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    engine.start(host, port)
    settings = engine.settings
    sys.stdout.write(f"engine ready {settings.endpoint_url} root={settings.root}\n")
    sys.stdout.flush()
    stopped.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # A second signal ends the process at once.
    engine.stop()


def _image_files(word: str) -> Path:
    """Return the folder with the files that describe engine images.

    Raises:
        ValueError: The folder does not exist.
    """
    folder = Path(word).absolute()
    if not folder.is_dir():
        raise ValueError(
            f"--image-files is {word!r}, which is not a folder; leave the option out to use the engine's own files"
        )
    return folder


def _builds_images(word: str) -> bool:
    """Return whether the engine builds missing images, from the value of the option `--build-images`.

    The default of the option can come from the environment. argparse does not check a default, so it is checked
    here.

    Raises:
        ValueError: The value is not one of `BuildImages`.
    """
    if word not in list(BuildImages):
        allowed = ", ".join(BuildImages)
        raise ValueError(f"--build-images (or ${BUILD_VARIABLE}) is {word!r}; allowed: {allowed}")
    return word == BuildImages.ON_DEMAND


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sagemaker-engine",
        description="A SageMaker endpoint that executes jobs, with S3, CloudWatch Logs and moto behind one port.",
        epilog=HOW_IT_ENDS,
    )
    parser.add_argument("--port", type=int, default=4566, help="TCP port; 0 for a free one (4566)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="further host name that requests may use, including names below it; repeatable (localhost, "
        "loopback addresses, amazonaws.com and the address of --host are always accepted)",
    )
    parser.add_argument("--root", required=True, help="folder of all state; created if missing")
    parser.add_argument("--region", default="us-east-1", help="region of requests that name none")
    parser.add_argument("--account", default="123456789012", help="account id in all ARNs")
    parser.add_argument(
        "--time-scale",
        type=float,
        default=1.0,
        help="factor on waits that do no work, such as the grace period of a stop (1.0)",
    )
    parser.add_argument(
        "--spot-discount",
        type=float,
        default=0.7,
        help="share of the price that spot saves: 1 - billable / training seconds of a spot job (0.7)",
    )
    parser.add_argument(
        "--warm",
        choices=list(WarmWhen),
        default=WarmWhen.START,
        help="when torch is preloaded for jobs: start (with the engine), use (with the first job) or never (start)",
    )
    parser.add_argument(
        "--build-images",
        choices=list(BuildImages),
        default=os.environ.get(BUILD_VARIABLE, BuildImages.ON_DEMAND),
        help="if a job needs an engine image that is not built: build it, or fail the job and name the build command "
        f"(on-demand, or the value of ${BUILD_VARIABLE})",
    )
    parser.add_argument(
        "--image-files",
        default=str(IMAGES_FOLDER),
        help="folder of the files that describe engine images (those that come with the engine)",
    )
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"]
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
