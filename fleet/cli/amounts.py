"""Sizes, counts, money and durations as people read them."""

from __future__ import annotations


def size(count: int) -> str:
    """Bytes: ``512 B``, ``12.3 KB``, ``1.5 GB`` (powers of 1,000)."""
    if count < 1000:
        return f"{count} B"
    number = float(count)
    for unit in ("KB", "MB", "GB", "TB"):
        number /= 1000
        if number < 999.95 or unit == "TB":
            return f"{number:.1f} {unit}"
    raise AssertionError("TB takes everything")


def many(count: int, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def seconds(value: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def money(micros: int, unpriced_calls: int) -> str:
    """Millionths of a dollar; what is not known is said, never shown as zero."""
    known = f"${micros / 1_000_000:.4f}" if micros < 1_000_000 else f"${micros / 1_000_000:,.2f}"
    if not unpriced_calls:
        return known
    calls = many(unpriced_calls, "call")
    return f"unknown ({calls} without a price)" if not micros else f"at least {known} ({calls} without a price)"
