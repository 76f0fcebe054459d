"""Sources of a data mixture, with their weights and shares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.run_conf import RunConf

SOURCE_NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
MOST_SOURCES = 32
TOTAL_PARTS = 10_000
"""Shares are multiples of 1 / TOTAL_PARTS."""
NO_SOURCE = "python-stdlib"
"""The value of `source` beside a mixture: its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedSource:
    """One source of a mixture.

    Attributes:
        source: a local path or an `s3://` URI, as the param `source`.
        weight: relative share of the training's samples. The weights of a mixture are normalized, so they may
            have any sum.
        data_format, text_column, csv_options: those of this source; None = the run's.
    """

    source: str
    weight: float
    data_format: str | None = None
    text_column: str | None = None
    csv_options: Mapping[str, Any] | None = None


def parts_of(weights: Mapping[str, float]) -> dict[str, int]:
    """Return the shares of a mixture by source, as the smallest whole numbers with the same ratio.

    Each share is first rounded to hundredths of a percent, so that all add up to 10,000. Then the
    greatest common divisor is removed. Worked: weights 2, 1 and 1 give 2, 1 and 1; three equal
    weights give 3334, 3333 and 3333.
    """
    exact = {name: Fraction(weight) for name, weight in sorted(weights.items())}
    total = sum(exact.values())
    quotas = {name: weight * TOTAL_PARTS / total for name, weight in exact.items()}
    parts = {name: int(quota) for name, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda name: parts[name] - quotas[name])
    for name in by_remainder[: TOTAL_PARTS - sum(parts.values())]:
        parts[name] += 1
    divisor = gcd(*parts.values())
    return {name: part // divisor for name, part in parts.items()}


def sources_in(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses of a run's sources by path in its params: `source`, or `data_mixture.<name>.source`.

    The params may be invalid; a source without an address is left out.
    """
    mixture = params.get("data_mixture")
    if not mixture or not isinstance(mixture, Mapping):
        return {"source": str(params["source"])} if params.get("source") else {}
    return {
        f"data_mixture.{name}.source": str(each["source"])
        for name, each in mixture.items()
        if isinstance(each, Mapping) and each.get("source")
    }


def mixture_findings(conf: RunConf, *, data_formats: tuple[str, ...]) -> Iterator[Finding]:
    """Yield the faults of a run's data mixture, and of the name, weight and format of each of its sources.

    The other settings of a source are checked elsewhere, as for a run with a single source.
    """
    mixture = conf.data_mixture
    if not mixture:
        return
    if conf.source != NO_SOURCE:
        yield Finding(
            where="source",
            what="is set together with data_mixture, which has its own sources",
            got=conf.source,
            allowed=f"with data_mixture, only the default {NO_SOURCE}",
            next_step="remove source, or add it to data_mixture with a weight",
        )
    if conf.model != "gpt":
        yield Finding(
            where="data_mixture",
            what="needs token data, which the mlp model does not read",
            got=f"model {conf.model}",
            allowed="model gpt",
            next_step="for a table of several files, set source to their folder",
        )
    if not 1 < len(mixture) <= MOST_SOURCES:
        yield Finding(
            where="data_mixture",
            what="has the wrong number of sources",
            got=str(len(mixture)),
            allowed=f"2 to {MOST_SOURCES}",
            next_step="for a single source, set source instead",
        )
    yield from _entry_findings(mixture, data_formats)
    yield from _repeated(conf)
    yield from _too_small(mixture)


def _entry_findings(
    mixture: Mapping[str, MixedSource], data_formats: tuple[str, ...]
) -> Iterator[Finding]:
    for name, each in mixture.items():
        where = f"data_mixture.{name}"
        if not re.fullmatch(SOURCE_NAME, name):
            yield Finding(
                where="data_mixture",
                what="has a source with an invalid name",
                got=repr(name),
                allowed="up to 32 lower-case letters, digits, - and _, such as web",
            )
        if each.weight <= 0:
            yield Finding(
                where=f"{where}.weight",
                what="is not a weight",
                got=f"{each.weight:g}",
                allowed="a number above 0",
                next_step="to leave the source out, remove it from data_mixture",
            )
        if each.data_format is not None and each.data_format not in data_formats:
            yield Finding(
                where=f"{where}.data_format",
                what="is not an allowed value",
                got=repr(each.data_format),
                allowed=", ".join(data_formats),
            )


def _repeated(conf: RunConf) -> Iterator[Finding]:
    """Yield an error if several entries of the mixture have the same source and text column.

    The share of that data would be the sum of the entries' weights.
    """
    counts = Counter((each.source, each.text_column) for each in conf.data_mixture.values())
    for (source, _), count in counts.items():
        if count > 1:
            yield Finding(
                where="data_mixture",
                what="has a source several times",
                got=f"{source}, {count} times",
                next_step="keep one of these entries, with the sum of their weights",
            )


def _too_small(mixture: Mapping[str, MixedSource]) -> Iterator[Finding]:
    """Yield an error for each source whose share, as `parts_of` rounds it to hundredths of a percent, is zero."""
    weights = {name: each.weight for name, each in mixture.items()}
    if not weights or min(weights.values()) <= 0:
        return
    for name, parts in parts_of(weights).items():
        if not parts:
            yield Finding(
                where=f"data_mixture.{name}.weight",
                what="is too small a share",
                got=f"{weights[name] / sum(weights.values()):.3g} of the samples",
                allowed=f"at least {1 / TOTAL_PARTS:g}",
                next_step="raise the weight, or remove the source",
            )
