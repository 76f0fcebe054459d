"""Template of a self-contained HTML page in which every text is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trainyard.runs.report import views
from trainyard.units import format_bytes, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Template

_FOLDER = Path(__file__).parent


@cache  # compiling takes longer than rendering
def page_template(path: Path, **filters: Callable[..., str]) -> Template:
    """Return the template at `path`. It can include files of the same folder, and use `shared.html.jinja`.

    The template has the filters `duration` (seconds), `size` (bytes), `usd` and `moment` (epoch seconds).
    The keyword arguments (`filters`) add more filters by name. An undefined name in the template is an error.
    """
    environment = Environment(
        loader=FileSystemLoader([path.parent, _FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=format_duration, size=format_bytes, usd=format_usd, moment=views.moment, **filters
    )
    return environment.get_template(path.name)


def assets(*paths: Path) -> Markup:
    """Return the concatenated text of Trainyard's own style sheets or scripts, which is not escaped."""
    return Markup("".join(each.read_text(encoding="utf-8") for each in paths))  # noqa: S704  # our own files
