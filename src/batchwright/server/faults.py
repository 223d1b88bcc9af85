"""What a route raises when it cannot answer as asked, and what each error of the layers below is on the wire."""

from __future__ import annotations

import math

from batchwright.core import errors
from batchwright.wire.bad_body import BadBody
from batchwright.wire.error_codes import CALL_CODES


class Fault(Exception):
    """An answer of another kind: its code is one of `wire.error_codes.CALL_CODES`."""

    def __init__(self, code: str, message: str, *, hint: str = "", param: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        """What was found and what was expected."""
        self.hint = hint
        """What to do; empty where the message says it."""
        self.param = param
        """The field or parameter that is meant; empty: none."""
        self.retry_after_s = retry_after_s

    @property
    def http_status(self) -> int:
        return CALL_CODES[self.code].http_status


def fault_of(error: Exception) -> Fault | None:
    """None: a fault of ours, to be reported and not shown."""
    match error:
        case Fault():
            return error
        case errors.NoSuchBatch():
            return Fault("NOT_FOUND", "There is no such batch in this account.", param="batch_id")
        case errors.NoSuchFile():
            return Fault("NOT_FOUND", "There is no such file in this account.", param="file_id")
        case errors.WrongState():
            return Fault("WRONG_STATE", str(error))
        case errors.CreditSpent():
            return Fault("INSUFFICIENT_CREDIT", str(error))
        case errors.KeyReused():
            return Fault("IDEMPOTENCY_CONFLICT", str(error), param="idempotency_key")
        case errors.InUse():
            return Fault("IN_USE", str(error), retry_after_s=1.0)
        case errors.InputRefused():
            return _unbounded(error)
        case errors.CallerError():
            return Fault("INVALID_REQUEST", str(error))
        case errors.BatchwrightError():
            return Fault("UNAVAILABLE", "The service's store does not take this now.", retry_after_s=5.0)
        case _:
            return None


def _unbounded(error: errors.InputRefused) -> Fault:
    """The one way in which a whole input is refused here: under a cap, some of its rows may cost anything."""
    first = error.findings[0]
    return Fault(
        "INVALID_REQUEST",
        f"max_cost_usd could not hold: {error.total:,} of its rows may cost anything, the first {first.place}: "
        f"{first.message}.",
        hint="Nothing was kept. Give every row max_tokens and its model a price, or leave max_cost_usd out.",
        param="max_cost_usd",
    )


def of_bad_body(error: BadBody) -> Fault:
    return Fault("INVALID_REQUEST" if error.json else "INVALID_JSON", str(error)[:500], param=error.param)


def retry_after(seconds: float) -> str:
    """The header's value: whole seconds, and never the same moment."""
    return str(max(1, math.ceil(seconds)))
