"""Dated table: hardware and versions that AWS's strategies support, and invalid combinations of settings.

A combination applies if all conditions in its `when` are true. A condition has one of these forms:

- `word`: a flag from `FLAGS` is set.
- `name=a|b`: one of `NAMES` has one of these values.
- `torch>=2.1` or `tensorflow<2.6`: the image's version is in this range; false if the version is unknown.

A leading `!` negates a condition of the first two forms.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TABLE_FILE = Path(__file__).with_name("strategy_support.json")

FLAGS = frozenset(
    {
        "before_turing",
        "built_in",
        "checkpoints",
        "debugger",
        "debugger_actions",
        "efa",
        "entry_point",
        "framework_profiling",
        "heterogeneous",
        "local_storage",
        "long_wait",
        "network_isolation",
        "other_group_has_accelerators",
        "several_accelerators",
        "several_hosts",
        "several_instances",
        "several_ranks",
        "spot",
        "traffic_encryption",
        "training_compiler",
        "volume_key",
        "vpc",
        "warm_pool",
    }
)
NAMES = frozenset({"strategy", "framework", "device"})
LIBRARIES = frozenset({"torch", "tensorflow"})
_CONDITION = re.compile(r"(?P<no>!?)(?P<name>\w+)(?:(?P<sign>=|>=|<)(?P<value>[^=<>]+))?")

Version = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportCondition:
    """One condition in the `when` of a `Combination` of settings.

    `sign` is `=`, `>=` or `<`; empty for a flag. With `=`, `values` has the accepted values of `name`. With
    `>=` or `<`, it has one version. For a flag, it has one empty text.
    """

    name: str
    sign: str
    values: tuple[str, ...]
    is_negated: bool

    @classmethod
    def read(cls, text: str) -> SupportCondition:
        """Return the condition in the text.

        Raises:
            ContractError: the text is not a condition, or its name is not in `FLAGS`, `NAMES` or `LIBRARIES`.
        """
        found = _CONDITION.fullmatch(text)
        name, sign = (found["name"], found["sign"] or "") if found else ("", "")
        known = {"": FLAGS, "=": NAMES, ">=": LIBRARIES, "<": LIBRARIES}[sign]
        if found is None or name not in known:
            raise ContractError(
                "the support table has an unknown condition",
                where=str(TABLE_FILE),
                got=text,
                allowed=", ".join(sorted(known)) + (f" (before {sign!r})" if sign else ""),
                next_step="correct the condition, or add its name to strategy_support.py",
            )
        values = tuple((found["value"] or "").split("|"))
        return cls(name=name, sign=sign, values=values, is_negated=bool(found["no"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A combination of settings that AWS rejects, ignores or mishandles, with the message about it."""

    id: str
    when: tuple[SupportCondition, ...]
    severity: Severity
    where: str
    what: str
    why: str
    source: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySupport:
    """Hardware and frameworks that one strategy runs on.

    Attributes:
        devices: cpu, gpu, trainium.
        instance_types: supported instance types; None if AWS lists none.
        legacy_instance_types: instance types that still work, with AWS's statement about them.
        images: repository names of images with the strategy's library; empty if all framework images have it.
        versions: first and last (minor) version by library; the last is None if there is no limit.
    """

    devices: tuple[str, ...]
    instance_types: tuple[str, ...] | None
    legacy_instance_types: Mapping[str, str]
    images: tuple[str, ...]
    versions: Mapping[str, tuple[Version, Version | None]]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportTable:
    """The whole table. The keys of `strategies` are the names in `trainyard.specs.strategies`."""

    date: str
    source: str
    strategies: Mapping[str, StrategySupport]
    combinations: tuple[Combination, ...]


@cache
def support_table(path: Path = TABLE_FILE) -> SupportTable:
    """Return the table from the data file, which is read once.

    Raises:
        ContractError: the file lacks a date, a source, strategies or combinations, or has an unknown condition.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    missing = [
        name for name in ("date", "source", "strategies", "combinations") if not data.get(name)
    ]
    if missing:
        raise ContractError(
            f"the support table has no {', '.join(missing)}",
            where=str(path),
            next_step="add the missing members to the file",
        )
    return SupportTable(
        date=data["date"],
        source=data["source"],
        strategies={name: _support(each) for name, each in data["strategies"].items()},
        combinations=tuple(_combinations(data["combinations"])),
    )


def read_version(text: str) -> Version:
    """Return the major and the minor number of a version such as `2.1` or `2.1.0`.

    Raises:
        ValueError: the text is not such a version.
    """
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _support(each: Mapping[str, Any]) -> StrategySupport:
    types = each.get("instance_types")
    return StrategySupport(
        devices=tuple(each["devices"]),
        instance_types=None if types is None else tuple(types),
        legacy_instance_types=each.get("legacy_instance_types", {}),
        images=tuple(each.get("images", ())),
        versions={
            library: (read_version(first), read_version(last) if last else None)
            for library, (first, last) in each.get("versions", {}).items()
        },
        source=each["source"],
    )


def _combinations(rows: list[dict[str, Any]]) -> Iterator[Combination]:
    for row in rows:
        read = {
            "when": tuple(SupportCondition.read(text) for text in row["when"]),
            "severity": Severity(row["severity"]),
        }
        yield Combination(**{**row, **read})
