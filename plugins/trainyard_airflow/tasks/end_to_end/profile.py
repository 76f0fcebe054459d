"""Profile of a run's training: profile.html and profile.json beside the report."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard.rules.conf_facts import facts_of
from trainyard.rules.records import Facts, HostSample, MarkRecord, Start, StepRecord
from trainyard.rules.statistics_file import read_statistics
from trainyard.rules.statistics_place import statistics_place
from trainyard.runs.profile import Profile, profile_document, profile_of, profile_summary
from trainyard.runs.profile.document import DATA_NAME, PAGE_NAME
from trainyard.runs.report.profile_page import render_profile_html
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.tasks.end_to_end.training_statistics import (
    Fetched,
    fetch_statistics,
    lines_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.records import Record

log = logging.getLogger(__name__)

_NEEDED = (Start, HostSample, MarkRecord)


def write_profile(
    client: Any,
    *,
    training: Mapping[str, Any],
    conf: Mapping[str, Any],
    run_id: str,
    to: str,
) -> dict[str, Any] | None:
    """Write profile.html, profile.json and the statistics below `to`; return the summary for report.json.

    - If no training ran, or if it stores no statistics in S3, nothing is written, and the result is None.
    - If the statistics cannot be read, the profile has the reason.
    - With Debugger's hook, each job writes to its own prefix. The profile is then that of the last job.

    Args:
        client: a boto3 client of S3.
        training: the training task's result, with the fields of its last job; empty if none ran.
        conf: the run's conf, for its rules and the settings of the training.
        run_id: the run's id, for the page.
        to: the report's prefix, `s3://bucket/...`.

    Raises:
        TrainingRunError: S3 rejected writing the profile.
    """
    place = statistics_place(
        job_name=str(training.get("name")),
        hook_s3_uri=training.get("hook_s3_uri"),
        checkpoint_s3_uri=training.get("checkpoint_s3_uri"),
    )
    streams = None if training.get("hook_s3_uri") else training.get("statistics_s3_uri")
    sources = [each for each in (streams, place) if each]
    if not sources:
        return None
    with TemporaryDirectory(prefix="trainyard-statistics-") as folder:
        profile = _profile(client, sources, conf, Path(folder), to)
    objects = S3Objects(client)
    objects.write_json(f"{to}/{DATA_NAME}", json.dumps(profile_document(profile), indent=1))
    page = render_profile_html(profile, run_id=run_id).encode()
    objects.write(f"{to}/{PAGE_NAME}", page, content_type="text/html; charset=utf-8")
    return profile_summary(profile)


def _profile(
    client: Any, sources: Sequence[str], conf: Mapping[str, Any], folder: Path, to: str
) -> Profile:
    fetched = Fetched()
    try:
        fetched = fetch_statistics(client, sources=sources, folder=folder, to=to)
        records = read_statistics(lines_of(fetched.files), keep=without_tensors)
        rules, why = conf.get("rules") or (), fetched.why_none
        profile = profile_of(records, facts_of(conf), rules=rules, traces=fetched.traces)
    except TrainingRunError as error:
        log.warning("The training's statistics cannot be read: %s", error)
        why = f"the training's statistics cannot be read: {error.what}"
        profile = profile_of((), Facts(), traces=fetched.traces)
    return replace(profile, why_no_steps=why) if why else profile


def without_tensors(record: Record) -> Record | None:
    """Return the record without tensors, to limit memory in long runs; None if a profile does not need the record."""
    if isinstance(record, StepRecord):
        return replace(record, tensors={})
    return record if isinstance(record, _NEEDED) else None
