"""Times as people write them: "90s", "1h30m", or a number of seconds."""

from __future__ import annotations

import math
import re

DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_DURATION_S = 3650 * 86400.0
"""Ten years: beyond it a typing error is likelier than a wish, and moments in milliseconds stay well within bounds."""
SHOWN_CHARS = 60


def read_duration(value: object, most_s: float = MAX_DURATION_S) -> float:
    """Seconds from `"90s"`, `"2m"`, `"1h30m"`, `"500ms"`, `"2d"`, or a plain number of seconds: above 0 and at most
    `most_s`, which is whole days.

    Raises ValueError: "expected ..., found ...".
    """
    bounds = f"above 0 and at most {most_s / UNIT_S['d']:,.0f} days"
    expected = f'expected a time {bounds}, such as "90s", "2m", "1h30m" or a number of seconds'
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A whole number may have more digits than a float can hold.
        seconds = float(value) if abs(value) <= MAX_DURATION_S else math.inf
    elif isinstance(value, str):
        seconds = _duration_of(value.strip().lower())
    if not 0 < seconds <= most_s:
        raise ValueError(f"{expected}, found {shown(value)}")
    return seconds


def shown(value: object) -> str:
    """The value in a message: what was typed may be of any length."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _duration_of(text: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return math.nan
    return sum(float(number) * UNIT_S[unit] for number, unit in parts)
