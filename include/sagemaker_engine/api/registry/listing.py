"""Pagination of the registry's lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.tables import SqlCondition
from sagemaker_engine.wire.paging import DEFAULT_PAGE, make_token, read_token

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sagemaker_engine.api.registry.tables import RegistryTables

_COLUMNS = {"Name": "name", "CreationTime": "created_at"}


def list_page(
    tables: RegistryTables, table: str, request: dict[str, Any], extra: Iterable[SqlCondition] = ()
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the documents of the page that a List request selects, and the next page's token or None."""
    start = read_token(request) or 0
    limit = request.get("MaxResults", DEFAULT_PAGE)
    documents = tables.list(
        table,
        [*_common(request), *extra],
        order=_COLUMNS[request.get("SortBy", "CreationTime")],
        descending=request.get("SortOrder", "Ascending") == "Descending",
        offset=start,
        limit=limit + 1,
    )
    more = len(documents) > limit
    return documents[:limit], make_token(request, start + limit) if more else None


def _common(request: dict[str, Any]) -> list[SqlCondition]:
    conditions = []
    if "NameContains" in request:
        sql = "instr(lower(name), lower(?)) > 0"
        conditions.append(SqlCondition(sql=sql, values=(request["NameContains"],)))
    if "CreationTimeAfter" in request:
        conditions.append(
            SqlCondition(sql="created_at > ?", values=(request["CreationTimeAfter"],))
        )
    if "CreationTimeBefore" in request:
        conditions.append(
            SqlCondition(sql="created_at < ?", values=(request["CreationTimeBefore"],))
        )
    return conditions
