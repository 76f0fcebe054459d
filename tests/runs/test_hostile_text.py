"""No text of a run, whatever it holds, becomes a tag of a page or ends its script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from tests.runs.comparison.samples import cell, comparison
from tests.runs.profile.timed_run import eventful_run
from tests.runs.sample_run import sample_record
from tests.runs.tabular.test_tabular_page import RECORD
from trainyard.rules.records import Facts
from trainyard.runs.comparison.findings import findings_of
from trainyard.runs.comparison.page import render_comparison_html
from trainyard.runs.profile import profile_of
from trainyard.runs.report.page import render_report_html
from trainyard.runs.report.profile_page import render_profile_html
from trainyard.runs.tabular.page import render_tabular_html

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTILE = "</script></style><i-am>\"'><!--"
TAG = "<i-am"
FIXED_NAMES = {("parts",), ("shares",)}
"""Mappings whose keys no run chooses: the parts of a step."""
PAGES: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "report": (sample_record(), render_report_html),
    "tabular": (RECORD, render_tabular_html),
    "comparison": (
        comparison(cell("ddp", 1, 100.0), cell("fsdp", 2, None)),
        lambda record: render_comparison_html(record, findings_of(record)),
    ),
    "profile": (
        profile_of(eventful_run(with_gpu=True), Facts()),
        lambda profile: render_profile_html(profile, run_id=HOSTILE),
    ),
}


def with_hostile(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Return copies of a value, each with the hostile text in one place, and where that is.

    The text ends one of the value's texts, or is the name of one more entry. Of a list only the first item changes.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return [(path, value + HOSTILE)]
    if is_dataclass(value) and not isinstance(value, type):
        return [
            (where, replace(value, **{each.name: changed}))
            for each in fields(value)
            if each.init
            for where, changed in with_hostile(getattr(value, each.name), (*path, each.name))
        ]
    if isinstance(value, Mapping):
        of_values = [
            (where, {**value, key: changed})
            for key, inner in value.items()
            for where, changed in with_hostile(inner, (*path, str(key)))
        ]
        of_keys = [
            ((*path, f"key {key}"), {**value, f"{key}{HOSTILE}": inner})
            for key, inner in list(value.items())[:1]
            if path[-1:] not in FIXED_NAMES
        ]
        return of_values + of_keys
    if isinstance(value, list | tuple):
        return [
            (where, type(value)([*value[:at], changed, *value[at + 1 :]]))
            for at, inner in enumerate(value[:1])
            for where, changed in with_hostile(inner, (*path, str(at)))
        ]
    return []


@pytest.mark.parametrize("page", PAGES)
def test_no_text_of_a_record_becomes_a_tag(page: str) -> None:
    record, render = PAGES[page]
    changed = with_hostile(record)
    assert len(changed) > 10
    assert [where for where, each in changed if TAG in render(each)] == []
