"""What a key may still spend is asked before anything new is taken on under it: a batch, a round, a call."""

from __future__ import annotations

from batchwright.core.errors import CreditSpent
from batchwright.core.money import usd_text
from batchwright.ports.keys import KeyCredit, Keys


def check_credit(keys: Keys, key_id: str) -> KeyCredit | None:
    """Raises CreditSpent. Reads the store. None: there is no such key (or `key_id` is empty), and no budget."""
    credit = keys.key_credit(key_id) if key_id else None
    if credit is not None and credit.is_spent:
        raise CreditSpent(
            f"The budget of the key {credit.shown}... is spent: ${usd_text(credit.spent_picousd)} of "
            f"${usd_text(credit.budget_picousd)}. `batchwright keys budget {key_id} USD` gives it more."
        )
    return credit
