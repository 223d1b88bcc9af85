"""The body of Infrai's batch submit: bytes -> what was asked, and the rows, each as the bytes it came as."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from batchwright.core.doubt import OnUncertain
from batchwright.core.durations import read_duration, shown
from batchwright.core.gate import OnGate
from batchwright.core.money import read_amount
from batchwright.core.webhooks import check_secret
from batchwright.wire.bad_body import BadBody
from batchwright.wire.json_text import BOM, kind_of, mend_surrogates
from batchwright.wire.row_array import cut_apart

MAX_KEY_CHARS = 255
MAX_METADATA = 50
MAX_METADATA_NAME = 64
MAX_METADATA_CHARS = 512
MAX_TIMEOUT_S = 30 * 86_400.0


class _Unreadable(BadBody):
    """No reader gets through it; its rows may be good apart from one."""


class BatchOptions(msgspec.Struct, kw_only=True, frozen=True):
    """What was asked of the batch as a whole, checked."""

    timeout_s: float = 0.0
    """0: not said."""
    metadata: dict[str, str] = {}
    idempotency_key: str = ""
    max_cost_picousd: int = -1
    on_uncertain: OnUncertain = OnUncertain.RETRY
    on_gate: OnGate = OnGate.STOP
    max_attempts: int = 0
    """0: not said."""
    webhook: str = ""
    """A URL that is told of this batch; empty: none."""
    webhook_secret: str = ""
    """Empty: one is to be made."""


class InfraiSubmit(msgspec.Struct, kw_only=True, frozen=True):
    rows: list[Raw]
    options: BatchOptions


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    requests: Raw | msgspec.UnsetType = msgspec.UNSET
    batch_timeout: str | int | float | None = None
    metadata: dict[str, str | int | float | bool | None] | None = None
    store: bool | None = None
    """Accepted because Infrai's users send it; every batch is stored, so it has no effect."""
    idempotency_key: str | None = None
    max_cost_usd: str | int | float | None = None
    on_uncertain: str | None = None
    on_gate: str | None = None
    max_attempts: int | float | None = None
    webhook: str | None = None
    webhook_secret: str | None = None


_body = msgspec.json.Decoder(_Body)
_requests = msgspec.json.Decoder(list[Raw])
MAX_OPTIONS_BYTES = 1024 * 1024
"""Of all that stands beside `requests`; what is allowed there has a fraction of it."""


def read_submit(body: bytes, most_rows: int) -> InfraiSubmit:
    """Raises BadBody. The rows are not looked into: each may be any JSON value, and where one is none at all, its
    bytes are passed on as they are. `most_rows`: so many are looked for in such a body."""
    body = body.removeprefix(BOM)
    try:
        found = _decode(body)
    except _Unreadable:
        apart = cut_apart(body, most_rows)
        if apart is None:
            raise
        found = _decode(mend_surrogates(apart.rest), "what stands beside requests")
        rows, beside = [Raw(row) for row in apart.rows], apart.rest
    else:
        rows, beside = _rows_of(found, body)
    _check_once(beside)
    if not rows:
        raise BadBody("requests is empty; expected at least one request body", "requests")
    return InfraiSubmit(rows=rows, options=_options(found))


def _rows_of(found: _Body, body: bytes) -> tuple[list[Raw], bytes]:
    """The rows, and the body without them."""
    if isinstance(found.requests, msgspec.UnsetType):
        raise BadBody("requests is missing; expected an array of request bodies", "requests")
    requests = bytes(found.requests)
    try:
        rows = _requests.decode(requests)
    except msgspec.ValidationError:
        raise BadBody(f"requests: expected an array, got {kind_of(requests[:1])}", "requests") from None
    return rows, body.replace(requests, b"0", 1)


def read_options(values: dict[str, str]) -> BatchOptions:
    """The options of a submit whose body is lines alone, from its query (`metadata` is a JSON object). Raises
    BadBody."""
    fields: dict[str, object] = dict(values)
    if "metadata" in values:
        try:
            fields["metadata"] = msgspec.json.decode(values["metadata"].encode())
        except msgspec.DecodeError as error:
            raise BadBody(f"metadata: expected a JSON object ({error})", "metadata") from None
    try:
        return _options(msgspec.convert(fields, _Body, strict=False))
    except msgspec.ValidationError as error:
        raise BadBody(f"a parameter is not as expected: {error}", param_of(error)) from None


def _check_once(options: bytes) -> None:
    """A field that is given twice is refused: of two readers each might take another one. Rows are not looked into."""
    if len(options) > MAX_OPTIONS_BYTES:
        raise BadBody(f"the body has {len(options):,} bytes beside requests; at most {MAX_OPTIONS_BYTES:,} are allowed")
    json.loads(options, object_pairs_hook=_fields_once, parse_int=float)  # as an int it may have too many digits


def _fields_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadBody(f"the field {twice[:40]!r} is given more than once", twice[:40])
    return fields


def _decode(body: bytes, what: str = "the body") -> _Body:
    try:
        return _body.decode(body)
    except msgspec.ValidationError as error:
        raise BadBody(sentence_of(error, _Body.__struct_encode_fields__), param_of(error)) from None
    except RecursionError:
        raise _Unreadable(f"{what} is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise _Unreadable(f"{what} is not JSON: {error}", json=False) from None


def _options(body: _Body) -> BatchOptions:
    key = body.idempotency_key or ""
    if len(key) > MAX_KEY_CHARS:
        raise BadBody(f"idempotency_key has {len(key)} characters; at most {MAX_KEY_CHARS}", "idempotency_key")
    return BatchOptions(
        timeout_s=read_timeout(body.batch_timeout),
        metadata=_metadata(body.metadata or {}),
        idempotency_key=key,
        max_cost_picousd=read_max_cost(body.max_cost_usd),
        on_uncertain=OnUncertain(
            read_choice("on_uncertain", body.on_uncertain or OnUncertain.RETRY, tuple(OnUncertain))
        ),
        on_gate=OnGate(read_choice("on_gate", body.on_gate or OnGate.STOP, tuple(OnGate))),
        max_attempts=_attempts(body.max_attempts),
        webhook=body.webhook or "",
        webhook_secret=_webhook_secret(body),
    )


def read_timeout(value: str | float | None) -> float:
    """Seconds; 0: not said. Raises BadBody, as those below."""
    if value is None:
        return 0.0
    try:
        return read_duration(value, MAX_TIMEOUT_S)
    except ValueError as error:
        raise BadBody(f"batch_timeout: {error}", "batch_timeout") from None


def _metadata(given: dict[str, str | int | float | bool | None]) -> dict[str, str]:
    if len(given) > MAX_METADATA:
        raise BadBody(f"metadata has {len(given)} entries; at most {MAX_METADATA}", "metadata")
    metadata = {}
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(name) > MAX_METADATA_NAME or len(text) > MAX_METADATA_CHARS:
            raise BadBody(
                f"metadata {name[:80]!r}: a name has at most {MAX_METADATA_NAME} characters and a value at most "
                f"{MAX_METADATA_CHARS}",
                "metadata",
            )
        metadata[name] = text
    return metadata


def read_max_cost(value: str | float | None) -> int:
    """`max_cost_usd` in 1e-12 USD; -1: not said."""
    if value is None:
        return -1
    try:
        return read_amount(value)
    except ValueError as error:
        raise BadBody(f"max_cost_usd: {error}", "max_cost_usd") from None


def _attempts(value: float | None) -> int:
    if value is None:
        return 0
    if not 1 <= value <= 100 or value != int(value):
        raise BadBody(f"max_attempts: expected a whole number from 1 to 100, found {shown(value)}", "max_attempts")
    return int(value)


def _webhook_secret(body: _Body) -> str:
    if body.webhook_secret is None:
        return ""
    if not body.webhook:
        raise BadBody("webhook_secret signs what a webhook is sent, and no webhook was named", "webhook_secret")
    try:
        return check_secret(body.webhook_secret)
    except ValueError as error:
        raise BadBody(f"webhook_secret: {error}", "webhook_secret") from None


def read_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise BadBody(f"{name}: expected {' or '.join(choices)}, found {value[:40]!r}", name)
    return value


def param_of(error: msgspec.ValidationError) -> str:
    """The top field that msgspec means; empty: the body as a whole."""
    text = str(error)
    if "unknown field `" in text:
        return text.split("unknown field `", 1)[1].split("`", 1)[0]
    _, found, path = text.rpartition("`$.")
    return path.rstrip("`").split(".")[0].split("[")[0] if found else ""


def sentence_of(error: msgspec.ValidationError, known: Iterable[str]) -> str:
    """Without msgspec's path, which names the field in its own way."""
    param = param_of(error)
    if "unknown field" in str(error):
        return f"there is no field {param!r}; known are: {', '.join(sorted(known)) or 'none'}"
    text = str(error).split(" - at")[0]
    return f"{param or 'the body'}: {text[:1].lower()}{text[1:]}"
