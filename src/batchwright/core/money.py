"""Money is an integer of 1e-12 USD ("picousd"): exact sums, no rounding drift, null where nothing is known."""

from __future__ import annotations

from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from batchwright.core.durations import shown

PICO = 10**12
MAX_PICOUSD = 2**63 - 1
"""What the store can hold: some nine million USD."""
MAX_DIGITS = 40
"""Before or after the point; what has more is no amount of money."""


def picousd_from_usd(text: str | float | Decimal) -> int:
    """USD, as a decimal text or number, to 1e-12 USD, half-even. Raises ValueError for what is no finite number."""
    try:
        amount = Decimal(str(text))
    except InvalidOperation as error:
        raise ValueError(f"not an amount: {text!r}") from error
    # Before anything is made of it: ten characters can stand for a number with a million digits.
    if not amount.is_finite() or "_" in str(text)[:40] or (amount and abs(amount.adjusted()) > MAX_DIGITS):
        raise ValueError(f"not an amount: {str(text)[:40]!r}")
    return int((amount * PICO).to_integral_value(ROUND_HALF_EVEN))


def read_amount(value: object) -> int:
    """What a person sets as an amount of USD, as 1e-12 USD. Raises ValueError: "expected ..., found ..."."""
    amount = -1
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        with suppress(ValueError):
            amount = picousd_from_usd(value)
    if not 0 <= amount <= MAX_PICOUSD:
        most = f"{MAX_PICOUSD // PICO:,}"
        raise ValueError(f"expected an amount of US dollars from 0 to {most}, such as 5.00, found {shown(value)}")
    return amount


def usd_text(picousd: int) -> str:
    """A JSON number: at most 12 decimals, no exponent, no trailing zeros ("0.0001364", "2", "0")."""
    if 0 < picousd < PICO:
        # What nearly every row costs: a result line writes one, and this takes a third of the time.
        return ("0." + str(picousd).zfill(12)).rstrip("0")
    sign = "-" if picousd < 0 else ""
    whole, fraction = divmod(abs(picousd), PICO)
    if not fraction:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{fraction:012d}".rstrip("0")
