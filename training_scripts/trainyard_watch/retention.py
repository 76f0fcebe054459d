"""Retention of checkpoints: if S3 can be queried, an old one is deleted only after a newer one is complete there.

The platform copies the checkpoint folder to S3 file by file, in no guaranteed order and with an unlimited delay. It
also deletes a file in S3 that is deleted here ("If a checkpoint is deleted in the SageMaker container, it will also be
deleted in the S3 folder", SageMaker developer guide, read November 2026). The retention therefore queries S3, on a
separate thread: a checkpoint has arrived if S3 has all of its files with their sizes.

At a restart the platform copies all checkpoints in S3 to every host, before it starts the script. To keep this short,
S3 has by default only one complete checkpoint if it is large (`LARGE_BYTES`), besides those that are being uploaded.

If S3 cannot be queried at all, checkpoints are deleted by age, and the log has one warning. A checkpoint is deleted if
at least four newer ones are complete on this host, and enough time has passed to upload one of these. The newest
checkpoint that was found at the start is kept, because it is certainly in S3. After any response of S3, even an error
such as 503, only S3's listing is used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING

from trainyard_watch.environment import JOB_VARIABLE, num_restarts
from trainyard_watch.s3_prefix import S3Prefix, S3UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from trainyard_watch.environment import ContainerPaths

log = logging.getLogger(__name__)

CHECKPOINT_VARIABLE = "TRAINYARD_CHECKPOINT_S3_URI"
ASKED_EVERY_S = 15.0
HURRIED_EVERY_S = 1.0
"""Seconds between two queries while a stop waits for the newest checkpoint's arrival."""
MOST_UNDERWAY = 4
"""Maximum number of checkpoints that are being uploaded to S3: a further one would only delay the older ones."""
KEPT = 2
LARGE_BYTES = 16e9
"""Size, over all hosts, from which only one checkpoint is kept by default once it is complete in S3."""
KEPT_BY_AGE = 4
"""Minimum of complete checkpoints to keep if S3 cannot be queried."""
ASSUMED_BYTES_PER_S, SHORTEST_ASSUMED_S = 25e6, 1800.0
"""Assumed upload speed if S3 cannot be queried (100 GB of a host take 67 minutes), and minimum time of an upload."""
CANNOT_ASK = (
    "OLD CHECKPOINTS ARE DELETED BY AGE: S3 cannot be queried for newer ones (%s). A checkpoint is deleted after "
    f"at least {KEPT_BY_AGE} newer ones are complete on this host and one of these had time to be uploaded at "
    f"{ASSUMED_BYTES_PER_S / 1e6:.0f} MB/s, at least {SHORTEST_ASSUMED_S / 60:.0f} minutes. Set a volume_size that "
    "holds these checkpoints. To delete after the arrival in S3 instead, give the job's role s3:ListBucket and "
    "s3:GetObject on its checkpoint prefix, "
    f"the variable {CHECKPOINT_VARIABLE} in its Environment if it has no input/config/checkpointconfig.json, and "
    "access to S3: boto3 in the image, no network isolation"
)
NO_ANSWER = "S3 does not answer (%s): no old checkpoint is deleted until it does"


class Retention:
    """Retention policy of one checkpoint folder.

    Args:
        layout: layout of the checkpoints in the folder.
        keep: number of newest checkpoints that are never deleted. 0 keeps two, or only one if the
            newest checkpoint in S3 has at least `LARGE_BYTES`.
        s3: prefix to which the platform copies the folder; None if it is not known.
        is_synced: whether the platform copies the folder. If not, checkpoints older than the newest durable ones are
            deleted at once.
        is_restored: whether the platform filled the folder at this start.
        asked_every_s: seconds between two queries of S3.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        keep: int,
        s3: S3Prefix | None = None,
        is_synced: bool = False,
        is_restored: bool = True,
        asked_every_s: float = ASKED_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout, self._keep, self._s3 = layout, keep, s3
        self._is_synced, self.is_restored = is_synced, is_restored
        self._asked_every_s, self._clock = asked_every_s, clock
        self._durable: set[int] = set()
        self._in_s3: set[int] = set()
        self._is_large = False  # the newest one in S3
        self._unsure: set[int] = set()  # S3 may have an older checkpoint of the same name
        self._lock, self._wake = threading.RLock(), threading.Event()
        self._looked, self._num_looks = threading.Condition(self._lock), 0
        self._thread: threading.Thread | None = None
        self._assumed_at: dict[
            int, float
        ] = {}  # step -> time at which its upload is assumed complete
        self._uploads_until = -1.0  # assumed end of all uploads, one after the other
        self._newest_found = -1  # step
        self._warned: set[str] = set()
        self._can_ask, self._has_answered = False, False

    @classmethod
    def of_job(
        cls,
        layout: Layout,
        *,
        keep: int,
        paths: ContainerPaths,
        environ: Mapping[str, str] = os.environ,
        below: str = "",
    ) -> Retention:
        """Return the retention of a container's checkpoint folder; must be called before the folder is created.

        Args:
            layout: layout of the checkpoints in the folder.
            keep: number of newest checkpoints that are never deleted; 0 chooses the number.
            paths: folders of the container.
            environ: the container's variables.
            below: name of the checkpoint folder within the folder that the platform copies to S3; empty if the
                platform copies the checkpoint folder itself.
        """
        config = paths.read_config("checkpointconfig")
        uri = (config or {}).get("S3Uri") or environ.get(CHECKPOINT_VARIABLE)
        if uri and below:
            uri = f"{uri.rstrip('/')}/{below}"
        mount = layout.folder.parent if below else layout.folder
        is_mounted = JOB_VARIABLE in environ and mount.is_dir()
        return cls(
            layout,
            keep=keep,
            s3=S3Prefix(uri) if uri else None,
            is_synced=bool(uri) or config is not None or is_mounted,
            is_restored=num_restarts(environ) == 0,
        )

    @property
    def is_congested(self) -> bool:
        """Return whether 4 or more checkpoints are not yet in S3, so no further one should be written now.

        Return False if S3 cannot be queried.
        """
        with self._lock:
            newest = max(self._in_s3, default=-1)
            return self._can_ask and sum(step > newest for step in self._durable) >= MOST_UNDERWAY

    def note_found(self, step: int) -> None:
        """Record a complete checkpoint that was in the folder at the start."""
        self._note(step)
        with self._lock:
            self._newest_found = max(self._newest_found, step)
            if self._s3 is None and self.is_restored:
                self._in_s3.add(step)  # the platform restored it from S3

    def distrust(self, step: int) -> None:
        """Record that files of this step were removed.

        S3 may still have them, with the same sizes as the files of a new checkpoint of the step. Arrival in S3 is
        therefore never assumed for this step.
        """
        with self._lock:
            self._unsure.add(step)
            self._in_s3.discard(step)
            self._durable.discard(step)
            self._assumed_at.pop(step, None)

    def note_durable(self, step: int) -> None:
        """Record that a checkpoint is complete on this disk.

        Older ones are deleted now if the folder is not synced, otherwise by the thread that queries S3.
        """
        self._note(step)
        if not self._is_synced:
            self._delete(before=max(self._durable) + 1, keep=self._keep or KEPT)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
            self._thread.start()
        self._wake.set()

    def await_arrival(self, within_s: float) -> bool:
        """Wait until this start's newest checkpoint is in S3, at most `within_s` seconds; return whether it is there.

        Return True at once if the folder is not synced, its S3 address is unknown, or this start has written no
        checkpoint. Return True, too, if S3 has never answered, as under network isolation, because the arrival cannot
        be determined.
        """
        if self._s3 is None or self._thread is None:
            return True
        deadline = self._clock() + within_s
        with self._looked:
            newest, num_looks = max(self._durable - self._unsure, default=-1), self._num_looks
            self._asked_every_s = min(self._asked_every_s, HURRIED_EVERY_S)
            self._wake.set()
            while max(self._in_s3, default=-1) < newest:
                if self._num_looks > num_looks and not self._has_answered:
                    return True
                left_s = deadline - self._clock()
                if left_s <= 0:
                    return False
                self._looked.wait(left_s)
        return True

    def look(self) -> None:
        """Query S3 once, and delete checkpoints that newer ones in S3 replace. If S3 has never answered, delete by age.

        The newest checkpoint that was found at the start is never deleted by age: it may be the only one in S3.
        """
        if self._s3 is None:
            self._warn_once(CANNOT_ASK, "the S3 address of the job's checkpoints is unknown")
        else:
            self._ask(self._s3)
        if self._in_s3:
            keep = self._keep or (1 if self._is_large else KEPT)
            self._delete(before=max(self._in_s3), keep=keep)
        if not self._has_answered:
            keep = max(self._keep, KEPT_BY_AGE)
            self._delete(before=self._newest_assumed(), keep=keep, spare=self._newest_found)

    def _note(self, step: int) -> None:
        """Record that a step's checkpoint is complete on this disk, and when its upload is assumed to end.

        The upload is assumed to begin after the uploads of all earlier checkpoints.
        """
        num_bytes = sum(
            file.stat().st_size for file in files_of(self._layout.steps().get(step, ()))
        )
        now = self._clock()
        with self._lock:
            self._durable.add(step)
            self._uploads_until = max(now, self._uploads_until) + num_bytes / ASSUMED_BYTES_PER_S
            self._assumed_at[step] = max(self._uploads_until, now + SHORTEST_ASSUMED_S)

    def _newest_assumed(self) -> int:
        """Return the newest step whose checkpoint is assumed to be uploaded by now; -1 for none."""
        now = self._clock()
        with self._lock:
            return max(
                (
                    step
                    for step, at in self._assumed_at.items()
                    if at <= now and step in self._durable - self._unsure
                ),
                default=-1,
            )

    def _run(self) -> None:
        while True:
            with self._lock:
                waits = max(self._durable) > max(self._in_s3, default=-1)
            self._wake.wait(self._asked_every_s if waits else None)
            self._wake.clear()
            try:
                self.look()
            except Exception:  # the thread's boundary: at worst the disk fills, training continues
                log.exception("old checkpoints are not deleted; the query is repeated")
            with self._looked:
                self._num_looks += 1
                self._looked.notify_all()

    def _ask(self, s3: S3Prefix) -> None:
        """Update the set of checkpoints that are complete in S3."""
        with self._lock:
            newest = max(self._in_s3, default=-1)
            wanted = {step for step in self._durable - self._unsure if step > newest}
        try:
            there = s3.sizes()
            found = {step: self._arrived_bytes(step, s3, there) for step in wanted}
        except S3UnavailableError as error:
            self._can_ask = False
            self._has_answered |= error.is_outage
            self._warn_once(NO_ANSWER if self._has_answered else CANNOT_ASK, error.findings[0])
            return
        with self._lock:
            self._can_ask = self._has_answered = True
            if arrived := {step for step, num_bytes in found.items() if num_bytes}:
                self._in_s3 |= arrived
                self._is_large = found[max(arrived)] >= LARGE_BYTES

    def _arrived_bytes(self, step: int, s3: S3Prefix, there: Mapping[str, int]) -> int:
        """Return the size in bytes of a checkpoint that is complete in S3, otherwise 0."""
        contents = self._layout.contents(step, s3, there) or {}
        is_whole = all(there.get(name) == size for name, size in contents.items())
        return sum(contents.values()) if is_whole else 0

    def _delete(self, *, before: int, keep: int, spare: int = -1) -> None:
        """Delete checkpoints older than the step `before`, but neither the newest `keep` ones nor the step `spare`."""
        with self._lock:
            newest = set(sorted(self._durable)[-keep:])
        for step, paths in self._layout.steps().items():
            if step < before and step not in newest and step != spare:
                remove(paths)
                with self._lock:
                    self._durable.discard(step)
                    self._assumed_at.pop(step, None)

    def _warn_once(self, message: str, why: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning(message, why)


class ManifestLayout:
    """Layout with folders such as `step-00000080`; their manifest.json, written last, lists all hosts' files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> dict[int, tuple[Path, ...]]:
        """Return each step's folder, complete or not."""
        return {step: (path,) for step, path in step_folders(self.folder, "step-")}

    def contents(self, step: int, s3: S3Prefix, there: Mapping[str, int]) -> dict[str, int] | None:
        """Return the expected size in bytes of each file of a step, by name below the prefix; None if not known yet.

        The files are those that the manifest in S3 lists; only one host has the manifest on its disk.

        Args:
            step: step of the checkpoint.
            s3: the checkpoints' prefix.
            there: sizes in bytes of the objects below the prefix, by name.

        Raises:
            S3UnavailableError: a request to S3 failed.
        """
        name = f"step-{step:08d}"
        manifest = f"{name}/manifest.json"
        if manifest not in there:
            return None
        try:
            files = json.loads(s3.read(manifest))["files"]
            return {f"{name}/{file}": int(entry["bytes"]) for file, entry in files.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # the manifest is not complete in S3 yet


class LocalLayout:
    """Layout of checkpoints that one host writes alone.

    A checkpoint is complete in S3 if S3 has all files that the checkpoint has on this host's disk.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> dict[int, tuple[Path, ...]]:
        """Return the paths of each checkpoint by step: a folder such as `checkpoint-80`, or files `step-00000080.*`."""
        found: dict[int, tuple[Path, ...]] = {
            step: (path,) for step, path in step_folders(self.folder, "checkpoint-")
        }
        for path in sorted(self.folder.glob("step-*.*")):
            digits = path.name.removeprefix("step-").partition(".")[0]
            if digits.isdigit():
                found[int(digits)] = (*found.get(int(digits), ()), path)
        return found

    def contents(self, step: int, s3: S3Prefix, there: Mapping[str, int]) -> dict[str, int] | None:  # noqa: ARG002
        """Return the size in bytes of each file of a step's checkpoint on this disk.

        The keys are paths relative to the folder of all checkpoints. Return None if this disk has no files of the
        step. `s3` and `there` are not used.
        """
        return {
            file.relative_to(self.folder).as_posix(): file.stat().st_size
            for file in files_of(self.steps().get(step, ()))
        } or None


Layout = ManifestLayout | LocalLayout
"""Layout of a script's checkpoints in one folder."""


def step_folders(folder: Path, begins: str) -> list[tuple[int, Path]]:
    """Return the folders `<begins><digits>`, the newest step first."""
    named = [(path.name.removeprefix(begins), path) for path in folder.glob(f"{begins}*")]
    return sorted(
        ((int(digits), path) for digits, path in named if digits.isdigit() and path.is_dir()),
        reverse=True,
    )


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are files, and all files below those that are folders."""
    found = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))]
    return [file for file in found if file.is_file()]


def remove(paths: Iterable[Path]) -> None:
    """Remove files and folders; errors are ignored."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
