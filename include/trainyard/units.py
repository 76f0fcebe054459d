"""Units, formatting of amounts, and days. Standard library only."""

from __future__ import annotations

from datetime import UTC, datetime

BYTES_PER_GIB = 1024**3
SECONDS_PER_HOUR = 3600


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units: `42 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest_s = divmod(whole, 60)
    hours, rest_min = divmod(minutes, 60)
    days, rest_h = divmod(hours, 24)
    if days:
        return f"{days} d {rest_h} h"
    if hours:
        return f"{hours} h {rest_min:02d} min"
    return f"{minutes} min {rest_s:02d} s" if minutes else f"{rest_s} s"


def format_bytes(count: float) -> str:
    """Return a size in binary units with three significant digits: `512 B`, `1.46 MiB`."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} B" if unit == "B" else f"{_three_digits(size)} {unit}"


def format_usd(amount: float | None) -> str:
    """Return an amount in US dollars as text; `unknown` for None, up to four decimals below $1.

    Examples: `$12.30`, `$0.23`, `$0.0123`.
    """
    if amount is None:
        return "unknown"
    if abs(amount) >= 1 or amount == 0:
        return f"${amount:,.2f}"
    digits = f"{amount:.4f}".rstrip("0")
    return f"${digits}" if len(digits) >= len("0.00") else f"${amount:.2f}"


def format_utc(moment: float) -> str:
    """Return a time in epoch seconds as UTC, to the minute. Worked: 0 is 1970-01-01 00:00."""
    return datetime.fromtimestamp(moment, tz=UTC).strftime("%Y-%m-%d %H:%M")


def utc_day(moment: float) -> datetime:
    """Return the beginning of the day (UTC) of a time in epoch seconds."""
    return datetime.fromtimestamp(moment, UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def format_count(number: float) -> str:
    """Return a count with a metric suffix: `950`, `12.3k`, `4.56M`."""
    size, suffix = float(number), ""
    for larger in ("k", "M", "G", "T"):
        if abs(size) < 999.5:
            break
        size, suffix = size / 1000, larger
    return f"{_three_digits(size)}{suffix}"


def at_step(step: int | None) -> str:
    """Return ` at step N`; empty for None."""
    return "" if step is None else f" at step {step}"


def _three_digits(number: float) -> str:
    """Return a number with three significant digits, or all digits of its whole part if it has more."""
    return f"{number:.0f}" if abs(number) >= 999.5 else f"{number:.3g}"
