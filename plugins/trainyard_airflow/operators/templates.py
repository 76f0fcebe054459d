"""Parts of an operator's arguments that Airflow fills in at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.specs.reading import UNKNOWN

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

_STARTS = {
    "variable_start_string": "{{",
    "block_start_string": "{%",
    "comment_start_string": "{#",
}
"""Start of a template by the option of Jinja's environment that replaces it."""


def without_templates(value: Any, operator: BaseOperator) -> Any:
    """Return a copy of an argument with `UNKNOWN` in place of templates and of values that Airflow resolves (XComs)."""
    has_dag = operator.has_dag()  # type: ignore[no-untyped-call]  # Airflow's method has no annotations
    options = (operator.dag.jinja_environment_kwargs if has_dag else None) or {}
    starts = tuple(options.get(name, start) for name, start in _STARTS.items())
    return _known(value, starts, tuple(operator.template_ext))


def _known(value: Any, starts: tuple[str, ...], files: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        is_template = any(start in value for start in starts) or value.endswith(files)
        return UNKNOWN if is_template else value
    if isinstance(value, Mapping):
        return {key: _known(each, starts, files) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_known(each, starts, files) for each in value]
    # XComs, params, mapped arguments and literals have the interface of Airflow's ResolveMixin.
    return UNKNOWN if hasattr(value, "iter_references") else value
