"""The row map: one byte a row, the only durable truth about a row's state, and every legal move of it.

A row begins as PENDING. It must be RESERVED, durably, before a byte of it goes to a vendor; the checkpoint that
records how the attempt ended moves it on: back to PENDING (it will be tried again), or to an end. Ends are left only
by a retry (a new round), which moves them back to PENDING and keeps the earlier byte in the segment's `previous_map`.

    from \\ to    pending  reserved  end
    pending       -        reserve   invalid_row at intake is written at once; closing is read, not written
    reserved      clear    -         finish
    end           reopen   -         restore (a round that failed gives an earlier answer back)

A row that repeats an earlier one (`InputRow.shares`) is never sent: `share` takes it from pending to that row's end.

Bytes 0..9 are pending and reserved, 16..31 successes by flag, 32..127 failures by kind. The numbers are stored: never
reuse or renumber one.
"""

from __future__ import annotations

from collections.abc import Iterable

from batchwright.core.failures import FailureKind, Flag

PENDING = 0
RESERVED = 1

FLAG_BYTES: dict[Flag, int] = {
    Flag.PLAIN: 16,
    Flag.TRUNCATED: 17,
    Flag.REFUSED: 18,
    Flag.FILTERED: 19,
    Flag.EMPTY: 20,
    Flag.SCHEMA_MISMATCH: 21,
}
KIND_BYTES: dict[FailureKind, int] = {
    FailureKind.RATE_LIMITED: 32,
    FailureKind.OVERLOADED: 33,
    FailureKind.TIMEOUT: 34,
    FailureKind.NETWORK: 35,
    FailureKind.UNREACHABLE: 36,
    FailureKind.ANSWER_TOO_LARGE: 37,
    FailureKind.BAD_RESPONSE: 38,
    FailureKind.QUOTA_EXHAUSTED: 39,
    FailureKind.AUTH: 40,
    FailureKind.INVALID_REQUEST: 41,
    FailureKind.MODEL_NOT_FOUND: 42,
    FailureKind.CONTEXT_TOO_LONG: 43,
    FailureKind.TOO_LARGE: 44,
    FailureKind.CONTENT_FILTERED: 45,
    FailureKind.INVALID_ROW: 46,
    FailureKind.UNROUTABLE: 47,
    FailureKind.IN_DOUBT: 48,
    FailureKind.WORKER_LOST: 49,
    FailureKind.MISSING_FROM_UPSTREAM: 50,
    FailureKind.INTERNAL: 51,
    FailureKind.CANCELLED: 52,
    FailureKind.EXPIRED: 53,
    FailureKind.STOPPED: 54,
    FailureKind.SCHEMA_FAILED: 55,
}
BYTE_FLAGS: dict[int, Flag] = {byte: flag for flag, byte in FLAG_BYTES.items()}
BYTE_KINDS: dict[int, FailureKind] = {byte: kind for kind, byte in KIND_BYTES.items()}

PLAIN_SUCCESS = FLAG_BYTES[Flag.PLAIN]
SUCCESS_BYTES = frozenset(BYTE_FLAGS)
FAILURE_BYTES = frozenset(BYTE_KINDS)
END_BYTES = SUCCESS_BYTES | FAILURE_BYTES
NOT_SUCCESS_BYTES = FAILURE_BYTES | {PENDING, RESERVED}
NEVER_SENDABLE = frozenset({KIND_BYTES[FailureKind.INVALID_ROW], KIND_BYTES[FailureKind.UNROUTABLE]})
"""Refused at intake: what is stored of such a row is the line as it came, which is no request. No round reopens it."""
RETRIED_BYTES = FAILURE_BYTES - NEVER_SENDABLE
"""What a retry without a selector reopens: every row without success that can be sent."""
CLOSING_KINDS = frozenset({FailureKind.CANCELLED, FailureKind.EXPIRED, FailureKind.STOPPED})
CLOSING_BYTES = frozenset(KIND_BYTES[kind] for kind in CLOSING_KINDS)
"""Ended from outside: what the row's record says is how an attempt ended before that, if there was one."""


class IllegalMove(Exception):
    """A row map was asked for a move that its table does not have: a fault of ours, never of a row."""


def is_success(byte: int) -> bool:
    return byte in SUCCESS_BYTES


def is_end(byte: int) -> bool:
    return byte >= 16


def name_of(byte: int) -> str:
    """`pending`, `reserved`, a flag's name (`plain`, `truncated` ...) or a failure kind's."""
    if byte == PENDING:
        return "pending"
    if byte == RESERVED:
        return "reserved"
    if byte in BYTE_FLAGS:
        return BYTE_FLAGS[byte].value
    return BYTE_KINDS[byte].value


def reserve(row_map: bytearray, row: int) -> None:
    """PENDING -> RESERVED. Raises IllegalMove from any other byte."""
    if row_map[row] != PENDING:
        raise IllegalMove(f"row {row}: reserve from {name_of(row_map[row])}")
    row_map[row] = RESERVED


def clear(row_map: bytearray, row: int) -> None:
    """RESERVED -> PENDING: the row is not at a vendor any more and has not ended. Raises IllegalMove otherwise."""
    if row_map[row] != RESERVED:
        raise IllegalMove(f"row {row}: clear from {name_of(row_map[row])}")
    row_map[row] = PENDING


def finish(row_map: bytearray, row: int, byte: int) -> None:
    """RESERVED -> an end. Raises IllegalMove from another byte, or to a byte that is no end."""
    if row_map[row] != RESERVED or byte not in END_BYTES:
        raise IllegalMove(f"row {row}: finish from {name_of(row_map[row])} to byte {byte}")
    row_map[row] = byte


def restore(row_map: bytearray, row: int, previous: int) -> None:
    """RESERVED -> the success it had before this round: an answer is never replaced by a failure.

    Raises IllegalMove from another byte, or if `previous` is no success.
    """
    if row_map[row] != RESERVED or previous not in SUCCESS_BYTES:
        raise IllegalMove(f"row {row}: restore from {name_of(row_map[row])} to byte {previous}")
    row_map[row] = previous


def share(row_map: bytearray, row: int, byte: int) -> None:
    """PENDING -> the end of the row whose request this one repeats; it is never at a vendor. Raises IllegalMove from
    another byte, or to a byte that is no end."""
    if row_map[row] != PENDING or byte not in END_BYTES:
        raise IllegalMove(f"row {row}: share from {name_of(row_map[row])} to byte {byte}")
    row_map[row] = byte


def reopen(row_map: bytes, chosen: frozenset[int]) -> tuple[bytes, bytes, int]:
    """A new round for every row whose byte is in `chosen` (ends only).

    Returns (new row map, previous map, rows reopened). The previous map holds 0 for a row that was left alone and the
    earlier byte for one that was reopened. Every round has its own: what stands in `row_map` is what the last round
    ended with. Raises IllegalMove if `chosen` names a byte that is no end, or one that was never sendable.
    """
    if not chosen <= END_BYTES - NEVER_SENDABLE:
        raise IllegalMove(f"reopen from {sorted(name_of(byte) for byte in chosen - (END_BYTES - NEVER_SENDABLE))}")
    out = bytearray(row_map)
    previous = bytearray(len(row_map))
    count = 0
    for row, byte in enumerate(row_map):
        if byte in chosen:
            previous[row] = byte
            out[row] = PENDING
            count += 1
    return bytes(out), bytes(previous), count


def read_closed(row_map: bytes, closed_as: FailureKind | None, previous_map: bytes | None) -> bytes:
    """What each byte counts as for a reader.

    In a segment that has `closed_as`, an open byte reads as the row's previous byte if it has one, else as the kind
    it was closed as. In any other segment a map is what it is.
    """
    if closed_as is None or (PENDING not in row_map and RESERVED not in row_map):
        return row_map
    closed = KIND_BYTES[closed_as]
    if previous_map is None:
        return row_map.translate(bytes([closed, closed, *range(2, 256)]))
    return bytes(
        byte if byte > RESERVED else (previous or closed) for byte, previous in zip(row_map, previous_map, strict=True)
    )


def count_open(row_map: bytes | bytearray) -> int:
    return row_map.count(PENDING) + row_map.count(RESERVED)


def counts(row_map: bytes) -> dict[int, int]:
    """How many rows have each byte; only bytes that occur."""
    return {byte: row_map.count(byte) for byte in set(row_map)}


def select_bytes(kinds: Iterable[FailureKind], flags: Iterable[Flag]) -> frozenset[int]:
    """The bytes that a selector of kinds and flags means."""
    return frozenset({KIND_BYTES[kind] for kind in kinds} | {FLAG_BYTES[flag] for flag in flags})
