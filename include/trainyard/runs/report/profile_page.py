"""profile.html: a profile as one self-contained page in the style of the run's report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.rules.table import verdict_rows
from trainyard.runs.profile.document import profile_summary
from trainyard.runs.profile.step_times import PART_NAMES, Part
from trainyard.runs.report.page_template import assets, page_template
from trainyard.runs.report.profile_charts import (
    local_chart,
    shares_chart,
    step_time,
    steps_chart,
    usage_charts,
)
from trainyard.runs.report.views import Tile
from trainyard.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.profile import Profile
    from trainyard.runs.report.figures import Figure

_FOLDER = Path(__file__).parent
MOST_OUTLIERS = 20
_COMPUTING = (Part.FORWARD, Part.BACKWARD, Part.OPTIMIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSection:
    """Profile section of the run's report: the bottleneck, the main figure and the link."""

    tone: str
    title: str
    sentence: str
    advice: str
    figure: Figure
    page: str
    again: str


def render_profile_html(profile: Profile, *, run_id: str) -> str:
    """Return the profile as one HTML document. Every text is escaped.

    If data is missing, the page has the reason in place of the data.
    """
    verdicts = verdict_rows([each.to_dict() for each in profile.verdicts])
    return page_template(_FOLDER / "profile.html.jinja", ms=step_time, percent=_percent).render(
        run_id=run_id,
        subtitle=_subtitle(profile),
        profile=profile,
        diagnosis=profile.diagnosis,
        tone=_tone(profile.diagnosis.bottleneck is not None, bool(profile.shares)),
        tiles=_tiles(profile),
        steps=steps_chart(profile),
        shares=shares_chart(profile_summary(profile)),
        local=local_chart(profile),
        outliers=profile.outliers.found[:MOST_OUTLIERS],
        part_names=PART_NAMES,
        usage=usage_charts(profile),
        judged=[row for row in verdicts if row.tone],
        not_judged=[row for row in verdicts if not row.tone],
        again=f"make profile RUN={run_id}",
        css=assets(_FOLDER / "page.css", _FOLDER / "profile.css"),
        script=assets(_FOLDER / "page.js"),
    )


def profile_section(summary: Mapping[str, Any] | None, *, run_id: str) -> ProfileSection | None:
    """Return the report's section for the profile summary of report.json; None without a summary."""
    if summary is None:
        return None
    found = summary["bottleneck"]
    return ProfileSection(
        tone=_tone(found["rule"] is not None, bool(summary["step_time"]["shares"])),
        title=found["title"],
        sentence=found["sentence"],
        advice=found["advice"],
        figure=shares_chart(summary),
        page=summary["page"],
        again=f"make profile RUN={run_id}",
    )


def _tone(has_bottleneck: bool, is_known: bool) -> str:  # two facts, one word
    if has_bottleneck:
        return "warn"
    return "good" if is_known else "none"


def _subtitle(profile: Profile) -> str:
    hosts = sorted({own.host for each in profile.usages for own in each.series})
    starts = len(profile.attempts)
    parts = [
        f"{profile.num_steps:,} steps" if profile.num_steps else "",
        f"{profile.num_ranks} rank{'s' if profile.num_ranks > 1 else ''}"
        if profile.num_ranks
        else "",
        ", ".join(hosts) if len(hosts) <= 4 else f"{len(hosts)} hosts",
        f"{starts} starts" if starts > 1 else "",
    ]
    return " · ".join(each for each in parts if each)


def _tiles(profile: Profile) -> list[Tile]:
    if not profile.ranks:
        return []
    outliers, shares = profile.outliers, profile.shares
    slowest = max(profile.ranks, key=lambda each: each.median_seconds)
    value, unit = step_time(slowest.median_seconds).split(" ")
    found = [
        Tile(
            name="Step time",
            value=value,
            unit=unit,
            note=f"median of the slowest rank; 95th percentile {step_time(slowest.p95_seconds)}",
        )
    ]
    if shares:
        computing = sum(shares[part] for part in _COMPUTING)
        waiting = shares[Part.DATA_WAIT]
        others = shares[Part.COMMUNICATION]
        found += [
            Tile(name="Computing", value=_percent(computing), note="forward, backward, optimizer"),
            Tile(name="Waiting for data", value=_percent(waiting), note="of all step time"),
            Tile(name="Waiting for other ranks", value=_percent(others), note="of all step time"),
        ]
    limit = outliers.limit_seconds
    note = (
        "too few steps" if limit is None else f"of {outliers.num_steps:,}, above {step_time(limit)}"
    )
    found.append(Tile(name="Outlier steps", value=str(len(outliers.found)), note=note))
    peaks = [each.peak for each in profile.memory if "gpu" not in each.place]
    if peaks:
        size, unit = format_bytes(max(peaks)).split(" ")
        found.append(Tile(name="Peak memory", value=size, unit=unit, note="of a host's training"))
    return found


def _percent(share: float) -> str:
    """Return a share from 0 to 1 in percent: `48 %`, `0.4 %`."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"
