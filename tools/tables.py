"""Writes the tables of the pages from the code that they describe:

    python tools/tables.py            rewrites what stands between the markers
    python tools/tables.py --check    changes nothing; ends with 1 and names the pages that are behind the code

A table stands between `<!-- table: NAME -->` and `<!-- /table -->`; the names are the keys of `TABLES`. Reasons of
bounds are the texts below them in the code: a bound without one is an error here.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "batchwright"
sys.path.insert(0, str(SOURCE.parent))

from batchwright.cli import exits  # noqa: E402
from batchwright.core import batch_state, row_map  # noqa: E402
from batchwright.core.batch_state import BatchState  # noqa: E402
from batchwright.core.doubt import OnUncertain  # noqa: E402
from batchwright.core.failures import KINDS, FailureKind, Flag, LaneSignal  # noqa: E402
from batchwright.core.records import InputRow, Record  # noqa: E402
from batchwright.core.retry import Decision, decide  # noqa: E402
from batchwright.core.rows import RowView  # noqa: E402
from batchwright.engine.worker_settings import WorkerSettings  # noqa: E402
from batchwright.settings.routes import ROUTE_SETTINGS  # noqa: E402
from batchwright.settings.table import SETTINGS, VENDOR_SETTINGS  # noqa: E402
from batchwright.wire.error_codes import CALL_CODES, ROW_CODES, ErrorCode  # noqa: E402
from batchwright.wire.openai_lines import openai_line  # noqa: E402

PAGES = ("README.md", "ARCHITECTURE.md", "docs/protocols/infrai.md")
BLOCK = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n).*?(<!-- /table -->)", re.DOTALL)
Rows = Iterable[Sequence[str]]


def markdown(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


# ------------------------------------------------------------------------------------------------------------ states


def states() -> str:
    """The docstring's table, held against the enum: a state that is missing or has another end is an error."""
    rows = re.findall(r"^ *(\d+) +(.+?)  +(\w+) +(yes|no)$", batch_state.__doc__ or "", re.MULTILINE)
    told = {state: terminal == "yes" for _, _, state, terminal in rows}
    known = {state.value: state.terminal for state in BatchState}
    if told != known:
        raise SystemExit(f"core/batch_state.py: its docstring says {told}, its enum {known}")
    return markdown(
        ("#", "if, asked in this order", "state", "terminal"),
        [(number, condition, f"`{state}`", terminal) for number, condition, state, terminal in rows],
    )


# ------------------------------------------------------------------------------------------------------------- kinds


def kinds() -> str:
    """What `core.retry.decide` really answers for each kind, and what the writers really write."""
    rows = []
    for kind, row in KINDS.items():
        calm, outage = _decision(kind), _decision(kind, in_outage=True)
        code, answer = _openai_forms(kind)
        rows.append(
            (
                f"`{kind.value}`",
                _again_text(kind, calm),
                _uses_text(calm, outage),
                LANE_TEXT[row.lane],
                "yes" if row.may_be_paid else "",
                f"`{row.code}` {row.http_status}",
                f"error `{code}`" + (", or the vendor's answer" if answer else ""),
                "yes" if row.retryable else "no",
            )
        )
    head = ("kind", "sent again?", "uses up an attempt", "its lane", "may be billed unseen")
    return markdown((*head, "code and status of a line", "line with `--format openai`", "`retryable`"), rows)


LANE_TEXT = {
    LaneSignal.NONE: "",
    LaneSignal.CONGESTED: "congested",
    LaneSignal.CONGESTED_OUTAGE: "congested, outage",
    LaneSignal.OUTAGE: "outage",
    LaneSignal.PAUSE: "pauses for good",
}


def _decision(kind: FailureKind, *, in_outage: bool = False, used: int = 0, rate_limits: int = 0) -> Decision:
    return decide(
        kind=kind,
        wait_s=0.0,
        used=used,
        rate_limits=rate_limits,
        max_attempts=5,
        on_uncertain=OnUncertain.RETRY,
        in_outage=in_outage,
        lane_had_success_since=True,
        scatter=True,
        chance=0.5,
    )


def _again_text(kind: FailureKind, first: Decision) -> str:
    if not first.again:
        return "no"
    if _decision(kind, used=4).again is False:
        return "while attempts are left"
    if KINDS[kind].lane is LaneSignal.PAUSE:
        return "waits until the lane works"
    many = next((count + 1 for count in range(1000) if not _decision(kind, rate_limits=count).again), 0)
    return f"yes, {many} times while others get through" if many else "yes"


def _uses_text(calm: Decision, outage: Decision) -> str:
    if calm.uses_attempt != outage.uses_attempt:
        return "yes, but not in an outage"
    return "yes" if calm.uses_attempt else "no"


def _openai_forms(kind: FailureKind) -> tuple[str, bool]:
    """(code of its error line, whether a line shows the vendor's HTTP error as the response where there was one)"""
    row = InputRow(body=b"{}")
    byte = row_map.KIND_BYTES[kind]

    def line(record: Record | None) -> bytes:
        view = RowView(request_index=0, byte=byte, record=record, input=row, may_have_been_sent=False)
        return openai_line(view, "batch_0")

    code = re.search(rb'"error":\{"code":"([^"]+)"', line(None))
    assert code is not None, kind
    answered = Record(row=0, byte=byte, attempts=1, used=1, http_status=418, body=b"{}")
    return code[1].decode(), b'"response":{' in line(answered)


# ----------------------------------------------------------------------------------------------------------- row map


def row_bytes() -> str:
    rows = [
        (str(row_map.PENDING), "`pending`", "to be sent"),
        (str(row_map.RESERVED), "`reserved`", "may be at a vendor now: durable before it is sent"),
        *((str(row_map.FLAG_BYTES[flag]), f"`{flag.value}`", "success") for flag in Flag),
        *((str(row_map.KIND_BYTES[kind]), f"`{kind.value}`", "failure") for kind in FailureKind),
    ]
    return markdown(("byte", "name", "what it is"), rows)


MOVES = (row_map.reserve, row_map.clear, row_map.finish, row_map.restore, row_map.reopen)


def moves() -> str:
    """Every legal move: the functions, and which bytes each really accepts."""
    rows = []
    for move in MOVES:
        accepted = [name for name, byte in GROUPS if _accepts(move, byte)]
        rows.append((f"`{move.__name__}`", ", ".join(accepted), _first_sentence(move)))
    return markdown(("move", "from", "what it does"), rows)


GROUPS = (
    ("pending", row_map.PENDING),
    ("reserved", row_map.RESERVED),
    ("a success", row_map.PLAIN_SUCCESS),
    ("a failure", row_map.KIND_BYTES[FailureKind.TIMEOUT]),
)


def _accepts(move: Callable[..., object], byte: int) -> bool:
    given = {
        "byte": row_map.KIND_BYTES[FailureKind.TIMEOUT],
        "previous": row_map.PLAIN_SUCCESS,
        "chosen": frozenset({byte}),
        "row": 0,
        "row_map": bytearray([byte]),
    }
    try:
        move(**{name: given[name] for name in inspect.signature(move).parameters})
    except row_map.IllegalMove:
        return False
    return True


def _first_sentence(move: Callable[..., object]) -> str:
    text = " ".join((inspect.getdoc(move) or "").split("\n\n")[0].split())
    text = re.sub(r" Raises IllegalMove.*$", "", text)
    return re.sub(r"\bPENDING\b", "pending", re.sub(r"\bRESERVED\b", "reserved", text)).rstrip(".")


# ------------------------------------------------------------------------------------------------------------ bounds

BOUNDS: tuple[tuple[str, str, str], ...] = (
    ("a row, as its line", "core/row_options.py", "MAX_ROW_BYTES"),
    ("a segment's bodies", "engine/intake.py", "SEGMENT_BYTES"),
    ("rows at the end of a batch, in smaller segments", "engine/tail.py", "TAIL_ROWS"),
    ("the smallest of them", "engine/tail.py", "TAIL_LEAST_ROWS"),
    ("a `custom_id`, characters", "wire/row_shapes.py", "MAX_CUSTOM_ID_CHARS"),
    ("columns of a table", "wire/table.py", "MAX_COLUMNS"),
    ("a template file", "runner/template_files.py", "MAX_TEMPLATE_BYTES"),
    ("steps of a template for one row", "wire/template_bounds.py", "STEPS_MAX"),
    ("a picture's file", "runner/row_files.py", "MAX_IMAGE_BYTES"),
    ("findings that are kept", "runner/validation.py", "MAX_FINDINGS"),
    ("an answer", "ports/http.py", "MAX_ANSWER_BYTES"),
    ("a vendor's message that is kept, characters", "vendors/error_bodies.py", "MAX_MESSAGE_CHARS"),
    ("blobs of one transaction", "store/blobs.py", "MAX_BYTES"),
    ("answers of one checkpoint", "engine/worker_settings.py", "CHECKPOINT_RECORD_BYTES"),
    ("rows reserved ahead, at least", "engine/worker_settings.py", "RESERVE_MIN"),
    ("rows reserved in a segment, at most", "engine/worker_settings.py", "RESERVE_MAX_PER_SEGMENT"),
    ("segments held by a worker", "engine/worker_settings.py", "OPEN_SEGMENTS_MAX"),
    ("segments claimed at once", "engine/worker_settings.py", "CLAIM_MAX"),
    ("checkpoints for rows to reserve, in an interval", "engine/landing.py", "HURRIED_AT_MOST"),
    ("tries of a commit", "engine/landing.py", "COMMIT_TRIES"),
    ("a wait for a database that is away", "core/errors.py", "AWAY_MAX_S"),
    ("segments opened again in one transaction", "store/rounds.py", "STEP"),
    ("what a sweep does at once, in steps", "engine/sweeper.py", "STEPS_MAX"),
    ("the first back-off", "core/retry.py", "BACKOFF_FIRST_S"),
    ("the longest back-off", "core/retry.py", "BACKOFF_MAX_S"),
    ("the longest wait read from a vendor's answer", "wire/waits.py", "MAX_WAIT_S"),
    ("429s of one row while others get through", "core/retry.py", "RATE_LIMITS_MAX"),
    ("deaths of a worker that one row may cause", "core/doubt.py", "POISON_DEATHS"),
    ("equal failures that shut the gate", "core/gate.py", "GATE_ROWS"),
    ("scatter of 429s that costs no speed, share of answers", "core/adaptive_limit.py", "SPARED_SHARE"),
    ("congestion that stops the whole lane, share of answers", "core/adaptive_limit.py", "CROWDED_SHARE"),
    ("connections being opened at once", "http/pool.py", "MAX_OPENING"),
    ("an idle connection's age", "http/connection.py", "MAX_IDLE_S"),
    ("slots of the local server", "vendors/local_model.py", "DEFAULT_SLOTS"),
    ("context of a slot, tokens", "vendors/local_model.py", "DEFAULT_CONTEXT_TOKENS"),
)
"""(what it bounds, file, name)"""


def bounds() -> str:
    rows = []
    for what, file, name in BOUNDS:
        value = getattr(import_module("batchwright." + file.removesuffix(".py").replace("/", ".")), name)
        reason = _notes(file).get(name, "")
        if not reason:
            raise SystemExit(f"{file}: {name} has no reason below it")
        rows.append((what, _quantity(name, value), f"`{name}` in {file}", reason))
    return markdown(("what", "bound", "where", "its note there"), rows)


WORKER_NOTES = {
    "lease_s": SETTINGS["lease"].meaning,
    "heartbeat_s": SETTINGS["heartbeat"].meaning,
    "deadline_grace_s": "the same after a deadline",
    "concurrency_start": "rows in flight a lane begins with",
}
"""Of fields that say nothing themselves."""


def worker_settings() -> str:
    notes = WORKER_NOTES | _notes("engine/worker_settings.py")
    rows = [
        (f"`{field.name}`", _quantity(field.name, field.default), notes[field.name])
        for field in dataclasses.fields(WorkerSettings)
        if isinstance(field.default, int | float)
    ]
    return markdown(("setting of a worker", "default", "meaning"), rows)


@cache
def _notes(file: str) -> dict[str, str]:
    """Name -> the text right below its assignment, in a module or a class of it."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for body in [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]:
        for node, below in pairwise(body):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if (
                isinstance(target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[target.id] = " ".join(below.value.value.split())
    return found


def _quantity(name: str, value: float) -> str:
    lower = name.lower()
    if "bytes" in lower:
        return f"{value / 2**20:g} MiB" if value >= 2**20 else f"{value / 2**10:g} KiB"
    if lower.endswith("_s"):
        return f"{value * 1000:g} ms" if value < 0.1 else f"{value:g} s"
    if lower.endswith("_share"):
        return f"{value:.0%}"
    return f"{value:,}"


# -------------------------------------------------------------------------------------------- for the README's readers


def exit_codes() -> str:
    rows = re.findall(r"^ *(\d+) +(.+)$", exits.__doc__ or "", re.MULTILINE)
    return markdown(("code", "meaning"), rows)


def settings() -> str:
    rows = [(f"`{name}`", setting.meaning) for name, setting in SETTINGS.items()]
    rows.append(("`[vendors.NAME]`", "a table with " + ", ".join(f"`{name}`" for name in VENDOR_SETTINGS)))
    rows.append(("`[routes.NAME]`", "a table with " + ", ".join(f"`{name}`" for name in ROUTE_SETTINGS)))
    return markdown(("setting", "meaning"), rows)


# ---------------------------------------------------------------------------------------------- for the service's users


def call_codes() -> str:
    return _codes(CALL_CODES)


def row_codes() -> str:
    kinds = {
        code: ", ".join(f"`{kind.value}`" for kind, row in KINDS.items() if row.code == code) for code in ROW_CODES
    }
    return _codes(ROW_CODES, ("kind", kinds))


def _codes(codes: Mapping[str, ErrorCode], more: tuple[str, Mapping[str, str]] | None = None) -> str:
    """By status, then in the code's own order. `more`: a column in the meaning's place."""
    name, texts = more or ("meaning", {code: row.meaning for code, row in codes.items()})
    rows = [
        (f"`{code}`", str(row.http_status), "yes" if row.retryable else "no", texts[code])
        for code, row in sorted(codes.items(), key=lambda item: item[1].http_status)
    ]
    return markdown(("code", "status", "retryable", name), rows)


TABLES: dict[str, Callable[[], str]] = {
    "states": states,
    "kinds": kinds,
    "row-bytes": row_bytes,
    "moves": moves,
    "bounds": bounds,
    "worker-settings": worker_settings,
    "exit-codes": exit_codes,
    "settings": settings,
    "call-codes": call_codes,
    "row-codes": row_codes,
}
"""By the name in the marker."""


def rewritten(page: str) -> str:
    """The page with every table as the code has it now. Raises SystemExit for a table that is not one of ours."""

    def table(match: re.Match[str]) -> str:
        if match["name"] not in TABLES:
            raise SystemExit(f"there is no table {match['name']!r}; there are: {', '.join(TABLES)}")
        return match[1] + TABLES[match["name"]]() + match[3]

    return BLOCK.sub(table, page)


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        raise SystemExit(__doc__)
    behind = []
    for name in PAGES:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = rewritten(old)
        if new != old:
            behind.append(name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if behind:
        print(f"{', '.join(behind)}: " + ("behind the code: python tools/tables.py" if check else "written anew"))
    return 1 if behind and check else 0


if __name__ == "__main__":
    sys.exit(main())
