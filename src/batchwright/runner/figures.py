"""Numbers as a person reads them: counts, times, money, sizes. Pure text."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from batchwright.core.money import PICO

MAX_SHOWN_TEXT = 200
"""Of a vendor's or a row's text in a line for a person."""


def count_text(number: int) -> str:
    return f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    """ "1 row", "4,988 rows"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration_text(seconds: float) -> str:
    """ "0.4 s", "12 s", "2 min 3 s", "1 h 4 min", "2 d 3 h"."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if whole < 86_400:
        hours, rest = divmod(whole // 60, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, rest = divmod(whole // 3600, 24)
    return f"{days} d {rest} h" if rest else f"{days} d"


def money_text(picousd: int) -> str:
    """ "$1.37"; two significant digits below a cent ("$0.00041"), so that no real cost reads as nothing."""
    amount = Decimal(abs(picousd)) / PICO
    sign = "-" if picousd < 0 else ""
    if picousd == 0:
        return "$0"
    if amount >= Decimal("0.01"):
        return f"{sign}${amount.quantize(Decimal('0.01'), ROUND_HALF_UP):,}"
    digits = 1 - amount.adjusted()
    return f"{sign}${amount.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):f}"


def rate_text(rows_per_s: float) -> str:
    """ "8,120 rows/s", "12.5 rows/s", "0.4 rows/s"."""
    return f"{rows_per_s:,.0f} rows/s" if rows_per_s >= 100 else f"{rows_per_s:.1f} rows/s"


def shown_text(text: str, limit: int = MAX_SHOWN_TEXT) -> str:
    """A stranger's text on one line of a terminal: bounded, no control characters, no line breaks."""
    cut = text[: limit + 1]
    plain = " ".join("".join(char if char.isprintable() else " " for char in cut).split())
    return plain if len(text) <= limit else plain[:limit].rstrip() + "..."
