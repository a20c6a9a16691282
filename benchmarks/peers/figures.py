"""Percentiles, medians and ratios, and the part of a page that has them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    if not ascending:
        raise ValueError("no values")
    at = -(-round(share * 10_000) * len(ascending) // 10_000) - 1
    return ascending[max(at, 0)]


def latencies(seconds: Iterable[float]) -> tuple[float, float, float]:
    """Return p50, p99 and the worst, in milliseconds."""
    ascending = sorted(seconds)
    return (
        1e3 * percentile(ascending, 0.5),
        1e3 * percentile(ascending, 0.99),
        1e3 * ascending[-1],
    )


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of what is known, or None."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def short(value: float | None) -> str:
    """Return a figure with three digits that count: 1,234,567 as 1,230,000."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def replaced(page: str, name: str, generated: str) -> str:
    """Return a page with another part between its two lines of a name, which it must have."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, has_begin, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"the page has no lines {begin} and {end}")
    return f"{before}{begin}\n\n{generated}\n{end}{after}"
