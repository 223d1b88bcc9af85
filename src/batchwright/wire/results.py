"""Rows on their way out: a `RowView` -> one line of the output file, as an Infrai results item.

Lines are spliced from bytes: the vendor's answer is checked by one typed decode that builds nothing but the few fields
needed, and goes into the line as it came. What is written is always one line of valid JSON in valid UTF-8, whatever a
vendor sent: an answer that is no JSON becomes a JSON string.

    ok              true, false, or null for a row that has not ended (then `state` says pending or reserved)
    cost_usd        null where nothing is known of its cost; else the known part, so that the lines of a file add up
                    to the batch's known cost
    result.content  the answer's text; of embeddings the vector, or a list of them where the row has several texts
    result.parsed   of a batch with a schema: the value that the answer's JSON is; null where it has none that matches,
                    and then `mismatch` beside it says why
    region          where the vendor is, in the words of who set it up; null: nobody said
    error.cause     what the vendor (or the check of the row) said: http_status, code, param; absent if nothing
    reused_from     of an answer that was taken over: the batch and the row there that got it, and that it cost
    shares_answer_of   the request_index of the row that was asked, for one that repeats it
    attempts_met    what each failed attempt met, the first one first: "groq: overloaded 503"; absent if none failed
    response        the vendor's whole last answer; absent if there was none
"""

from __future__ import annotations

from collections.abc import Mapping

from batchwright.core import row_map
from batchwright.core.failures import KINDS, FailureKind, Flag
from batchwright.core.met import met_entries
from batchwright.core.money import usd_text
from batchwright.core.records import Record, known_picousd
from batchwright.core.rows import RowView
from batchwright.wire.answer_values import mismatch_of, parsed_text
from batchwright.wire.json_text import string
from batchwright.wire.reply import NULL, Reply, read_reply

_FLAG_TEXT: dict[int, bytes] = {
    byte: b"[]" if flag is Flag.PLAIN else b'["%b"]' % flag.value.encode() for byte, flag in row_map.BYTE_FLAGS.items()
}
"""By every byte of a success, and no other."""
_CLOSED: dict[FailureKind, str] = {
    FailureKind.CANCELLED: "the batch was cancelled before this row was answered",
    FailureKind.EXPIRED: "the batch's deadline passed before this row was answered",
    FailureKind.STOPPED: "the batch was stopped before this row was answered",
}
_RETRYABLE = (b"false", b"true")

Regions = Mapping[str, str]
"""By vendor; one without a region is left out."""
NOWHERE: Regions = {}


def infrai_line(view: RowView, regions: Regions = NOWHERE, *, checked: bool = False) -> bytes:
    """One output line, with its newline. Never raises for anything that a vendor or a row's text may hold. `checked`:
    its batch has a schema."""
    record = view.record
    flags = _FLAG_TEXT.get(view.byte)
    if record is None or flags is None:
        return _other_line(view, _region(record, regions))
    reply = read_reply(record.body)
    # Joined, not formatted: a join takes the pieces of an answer as they are, without a copy of each.
    parsed = _parsed(view, reply) if checked else b""
    pieces = _success(view, record, reply, flags=flags, region=_region(record, regions), parsed=parsed)
    return b"".join((*pieces, b',"response":', reply.whole, b"}\n"))


def page_item(view: RowView, *, response: bool, regions: Regions, checked: bool = False) -> bytes:
    """One item of a page of results: the line without its newline; the vendor's whole answer only if asked for."""
    record = view.record
    flags = _FLAG_TEXT.get(view.byte)
    region = _region(record, regions)
    if record is None or flags is None:
        return _other_line(view, region, response=response)[:-1]
    reply = read_reply(record.body)
    parsed = _parsed(view, reply) if checked else b""
    pieces = _success(view, record, reply, flags=flags, region=region, parsed=parsed)
    return b"".join((*pieces, b',"response":', reply.whole, b"}")) if response else b"".join((*pieces, b"}"))


def _region(record: Record | None, regions: Regions) -> bytes:
    known = regions.get(record.vendor, "") if record is not None else ""
    return string(known) if known else NULL


def _parsed(view: RowView, reply: Reply) -> bytes:
    """What a result has beside its answer's text, under a schema."""
    why = mismatch_of(view)
    mismatch = b',"mismatch":' + string(why) if why else b""
    return b',"parsed":' + parsed_text(view, reply) + mismatch


def _success(
    view: RowView, record: Record, reply: Reply, *, flags: bytes, region: bytes, parsed: bytes
) -> tuple[bytes, ...]:
    """A success's line up to its response."""
    return (
        b'{"ok":true,"request_index":%d,' % view.request_index,
        _label(view),
        b'"cost_usd":',
        cost_text(record),
        b',"vendor":',
        string(record.vendor),
        b',"region":',
        region,
        b',"result":{"content":',
        reply.content,
        b',"finish_reason":',
        reply.finish_reason,
        b',"model":',
        reply.model,
        b',"usage":',
        reply.usage,
        parsed,
        b'},"flags":%b,"attempts":%d%b%b' % (flags, record.attempts, _reused(view, record), _met(record)),
    )


def kind_of_end(view: RowView) -> FailureKind:
    """Why a row that ended without success did; INTERNAL for a success whose record is missing (a fault of ours)."""
    return row_map.BYTE_KINDS.get(view.byte, FailureKind.INTERNAL)


def failure_message(view: RowView, kind: FailureKind) -> str:
    """A sentence for people, never empty."""
    record = view.record
    if kind in _CLOSED:
        return _CLOSED[kind]
    if record is None:
        return "the store has no record of how this row ended"
    return record.message or f"the row ended as {kind.value}"


def cost_text(record: Record | None) -> bytes:
    """`cost_usd` as JSON."""
    picousd = known_picousd(record)
    return NULL if picousd is None else usd_text(picousd).encode()


def _label(view: RowView) -> bytes:
    """What names the row beside its request_index."""
    row = view.input
    label = b"" if row.custom_id is None else b'"custom_id":%b,' % string(row.custom_id)
    return label if row.source_index < 0 else b'%b"source_index":%d,' % (label, row.source_index)


def _reused(view: RowView, record: Record) -> bytes:
    """Where an answer is from that was not asked for; nothing for the row's own."""
    if view.input.shares >= 0 and not record.attempts:
        return b',"shares_answer_of":%d' % view.input.shares
    if not record.reused:
        return b""
    place = (string(record.reused), record.reused_row)
    return b',"reused_from":{"batch_id":%b,"request_index":%d}' % place


def _met(record: Record) -> bytes:
    """What the failed attempts met; nothing for a row that was answered at once, as nearly all are."""
    if not record.met:
        return b""
    return b',"attempts_met":[%b]' % b",".join(map(string, met_entries(record.met)))


def _other_line(view: RowView, region: bytes, *, response: bool = True) -> bytes:
    record = view.record
    ended = row_map.is_end(view.byte)
    state = b"" if ended else b'"state":"%b",' % row_map.name_of(view.byte).encode()
    answer = b""
    if response and record is not None and record.body:
        answer = b',"response":%b' % read_reply(record.body).whole
    head = b'{"ok":%b,%b"request_index":%d,%b' % (b"false" if ended else NULL, state, view.request_index, _label(view))
    return head + b'"cost_usd":%b,"vendor":%b,"region":%b,"error":%b,"flags":[],"attempts":%d%b%b}\n' % (
        cost_text(record),
        string(record.vendor) if record is not None and record.vendor else NULL,
        region,
        _error(view) if ended else NULL,
        view.attempts,
        b"" if record is None else _met(record),
        answer,
    )


def _error(view: RowView) -> bytes:
    kind = kind_of_end(view)
    row = KINDS[kind]
    more = b""
    if kind in _CLOSED:
        more += b',"may_have_been_sent":%b' % _RETRYABLE[view.may_have_been_sent]
    if kind is FailureKind.INVALID_ROW and view.input.line:
        more += b',"line":%d' % view.input.line
    more += _cause(view.record)
    return b'{"code":"%b","kind":"%b","http_status":%d,"message":%b,"retryable":%b%b}' % (
        row.code.encode(),
        kind.value.encode(),
        row.http_status,
        string(failure_message(view, kind)),
        _RETRYABLE[row.retryable],
        more,
    )


def _cause(record: Record | None) -> bytes:
    if record is None:
        return b""
    said = []
    if record.http_status:
        said.append(b'"http_status":%d' % record.http_status)
    if record.code:
        said.append(b'"code":%b' % string(record.code))
    if record.param:
        said.append(b'"param":%b' % string(record.param))
    return b',"cause":{%b}' % b",".join(said) if said else b""
