"""Why a batch is paused whose cap, or whose key's budget, leaves too little: the sentence is made when it is read.

Rows that were out when it paused end later, and a budget may be raised meanwhile: a sentence of that moment would not
stay true. So the pause itself keeps what the next row may cost and nothing else.
"""

from __future__ import annotations

import re

from batchwright.core.money import picousd_from_usd, usd_text

_AMOUNT = re.compile(r"[0-9]+(\.[0-9]{1,12})?")


def reason_kept(next_picousd: int) -> str:
    """The reason as it is stored. 0: what the next row may cost does not matter, all is spent."""
    return usd_text(next_picousd) if next_picousd else ""


def key_reason(kept: str, key_id: str, *, budget_picousd: int, spent_picousd: int) -> str:
    """Of a key whose budget is now that (-1: none). Other words than an amount stand as they are."""
    next_picousd = _next(kept)
    if next_picousd is None:
        return kept
    if budget_picousd < 0:
        return f"{key_id} has no budget any more: resume goes on"
    more = f"`batchwright keys budget {key_id} USD` gives it more, then resume"
    of = f"${usd_text(spent_picousd)} of ${usd_text(budget_picousd)}"
    left_picousd = budget_picousd - spent_picousd
    if left_picousd <= 0:
        return f"the budget of {key_id} is spent ({of}); {more}"
    left = f"the budget of {key_id} leaves ${usd_text(left_picousd)} ({of} is spent)"
    if left_picousd < next_picousd:
        return f"{left}, less than the next row may cost (${usd_text(next_picousd)}); {more}"
    return f"{left} by now: resume goes on"


ASIDE_TOLD_PICOUSD = 1_000_000
"""A millionth of a dollar. A row of which no cost is known sets a millionth of that aside: no amount to tell of."""


def cap_reason(kept: str, *, cap_picousd: int, spent_picousd: int, aside_picousd: int, held_picousd: int) -> str:
    """`aside_picousd`: possible cost; `held_picousd`: drawn for rows that are out. Other words than an amount stay."""
    next_picousd = _next(kept)
    if next_picousd is None:
        return kept
    counted = f"${usd_text(spent_picousd)} is spent"
    if aside_picousd >= ASIDE_TOLD_PICOUSD:
        counted += f" and {aside_text('$' + usd_text(aside_picousd))}"
    if held_picousd > 0:
        counted += f" and ${usd_text(held_picousd)} held for rows that are out"
    left_picousd = cap_picousd - spent_picousd - aside_picousd - held_picousd
    left = f"the cap of ${usd_text(cap_picousd)} leaves ${usd_text(max(0, left_picousd))}"
    next_row = f"less than the next row may cost (${usd_text(next_picousd)})"
    return f"{left}, {next_row}: {counted}; a higher --max-cost goes on"


def aside_text(usd: str) -> str:
    """What of a cap is taken and is no known cost. `usd`: with its sign."""
    return f"{usd} set aside for what may have been paid beside that (possible double payments, costs not known)"


def _next(kept: str) -> int | None:
    if not kept:
        return 0
    return picousd_from_usd(kept) if _AMOUNT.fullmatch(kept) else None
