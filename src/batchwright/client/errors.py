"""What a service refuses with, and what becomes of a call that it does not answer, as a tree.

    ServiceError                   code, http_status, hint, param, retryable, retry_after_s, request_id
    ├── BadRequest                 a field or parameter is not as expected; no such route           (400, 405, 415)
    ├── KeyRefused                 no key, an unknown or expired one, or one that may not do this   (401, 403)
    ├── CreditSpent                the key's budget, or the account's credit, is spent              (402)
    ├── NoSuchBatchThere           the account has no such batch                                    (404)
    ├── StateConflict              the batch's state does not allow the call                        (409)
    ├── IdempotencyConflict        the idempotency key was used for another request                 (409)
    ├── BusyThere                  another call is at it now                                        (409)
    ├── BatchRejected              above a ceiling; nothing of it was kept                          (413)
    ├── RateLimited                too many requests; `retry_after_s` says when                     (429)
    ├── ServiceUnavailable         it cannot work now, or a fault of its own                        (408, 5xx)
    ├── NoAnswer                   no answer came; `may_have_arrived` says whether it may have been read
    └── BadReply                   what came is no reply of such a service

Each is also what `core.errors` calls it, so that who knows batches of this machine needs no second set of names. A
failed row is a value, never an exception.
"""

from __future__ import annotations

from batchwright.core.errors import (
    BatchwrightError,
    CallerError,
    InUse,
    KeyReused,
    NoSuchBatch,
    NotNow,
    UsageError,
    WrongState,
)


class ServiceError(BatchwrightError):
    """Base of all that a call to a service raises. Its text is the service's message, bounded, with what to do."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        http_status: int = 0,
        hint: str = "",
        param: str = "",
        retryable: bool = False,
        retry_after_s: float = 0.0,
        request_id: str = "",
    ) -> None:
        super().__init__(f"{message} {hint}".strip() if hint and hint not in message else message)
        self.message = message
        """Without what to do."""
        self.code = code
        """As the service calls it; empty where it named none."""
        self.http_status = http_status
        """0: no answer came."""
        self.hint = hint
        self.param = param
        """The field or parameter that is meant; empty: none."""
        self.retryable = retryable
        """Whether the same call, unchanged, may succeed later."""
        self.retry_after_s = retry_after_s
        """So long it asks to be left alone; 0: it does not say."""
        self.request_id = request_id
        self.unheard = False
        """An earlier sending of the same call got no answer and may have done what it asks."""


class BadRequest(ServiceError, UsageError):
    pass


class KeyRefused(ServiceError, UsageError):
    pass


class CreditSpent(ServiceError, NotNow):
    pass


class NoSuchBatchThere(ServiceError, NoSuchBatch):
    pass


class StateConflict(ServiceError, WrongState):
    pass


class IdempotencyConflict(ServiceError, KeyReused):
    pass


class BusyThere(ServiceError, InUse):
    pass


class BatchRejected(ServiceError, CallerError):
    pass


class RateLimited(ServiceError, NotNow):
    pass


class ServiceUnavailable(ServiceError, NotNow):
    pass


class NoAnswer(ServiceError, NotNow):
    def __init__(self, message: str, *, may_have_arrived: bool) -> None:
        super().__init__(message, retryable=True)
        self.may_have_arrived = may_have_arrived
        """Whether the service may have read the call and done what it asks."""


class BadReply(ServiceError):
    too_large = False
    """It is above what one reply may hold; a smaller page may fit."""


BY_CODE: dict[str, type[ServiceError]] = {
    "INVALID_JSON": BadRequest,
    "INVALID_REQUEST": BadRequest,
    "METHOD_NOT_ALLOWED": BadRequest,
    "HEAD_TOO_LARGE": BadRequest,
    "UNSUPPORTED_MEDIA_TYPE": BadRequest,
    "UNAUTHORIZED": KeyRefused,
    "FORBIDDEN": KeyRefused,
    "INSUFFICIENT_CREDIT": CreditSpent,
    "NOT_FOUND": NoSuchBatchThere,
    "RANGE_NOT_SATISFIABLE": BadRequest,
    "WRONG_STATE": StateConflict,
    "IDEMPOTENCY_CONFLICT": IdempotencyConflict,
    "IN_USE": BusyThere,
    "BATCH_REJECTED": BatchRejected,
    "BODY_TOO_LARGE": BatchRejected,
    "RATE_LIMITED": RateLimited,
    "REQUEST_TIMEOUT": ServiceUnavailable,
    "INTERNAL": ServiceUnavailable,
    "UNAVAILABLE": ServiceUnavailable,
}
"""For every code of `wire.error_codes.CALL_CODES`; a test compares the two."""

BY_STATUS: dict[int, type[ServiceError]] = {
    401: KeyRefused,
    402: CreditSpent,
    403: KeyRefused,
    404: NoSuchBatchThere,
    408: ServiceUnavailable,
    409: StateConflict,
    413: BatchRejected,
    425: ServiceUnavailable,
    429: RateLimited,
}
"""For a code that nobody has told us of: the status says what sort of refusal it is."""


def error_class(code: str, http_status: int) -> type[ServiceError]:
    found = BY_CODE.get(code) or BY_STATUS.get(http_status)
    if found is not None:
        return found
    return ServiceUnavailable if http_status >= 500 else BadRequest
