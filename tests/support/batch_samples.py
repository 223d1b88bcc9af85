"""Statuses, rows and records of invented batches, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.batch_state import BatchFacts, Pause, count, derive
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import InputRow, Record, Tally
from batchwright.core.rows import RowView
from batchwright.core.tenants import LOCAL
from batchwright.ports.batches import BatchStatus

VENDOR = Destination(vendor="acme", base_url="https://acme.example/v1", key_env="ACME_KEY")


def spec_of(**changes: object) -> BatchSpec:
    values: dict[str, object] = {"name": "tickets.jsonl", "destinations": (VENDOR,), "identity": "i1"}
    return BatchSpec(**values | changes)  # type: ignore[arg-type]


def status_of(
    ends: dict[int, int],
    *,
    total: int | None = None,
    tally: Tally | None = None,
    spec: BatchSpec | None = None,
    pauses: Sequence[Pause] = (),
    accepting: bool = False,
    live: bool = False,
    batch_round: int = 0,
) -> BatchStatus:
    """A batch whose rows ended with these bytes; open rows up to `total`."""
    sums = tally or Tally()
    sums.counts = dict(ends)
    ended = sum(ends.values())
    rows = ended if total is None else total
    settled = rows == ended and not accepting
    facts = BatchFacts(total=rows, accepting=accepting, paused=bool(pauses), settled=settled)
    state = derive(facts, sums)
    return BatchStatus(
        batch_id="batch_0123456789abcdef01234567",
        tenant=LOCAL,
        state=state,
        terminal=state.terminal,
        spec=spec or spec_of(),
        round=batch_round,
        total=rows,
        counts=count(rows, sums),
        by_byte=dict(ends),
        tally=sums,
        created_at_ms=1_000,
        settled_at_ms=9_000 if settled else 0,
        deadline_ms=0,
        pauses=tuple(pauses),
        budget_taken_picousd=0,
        live=live,
    )


def ok(flag: Flag = Flag.PLAIN) -> int:
    return row_map.FLAG_BYTES[flag]


def failed(kind: FailureKind) -> int:
    return row_map.KIND_BYTES[kind]


def view_of(index: int, byte: int, **record: object) -> RowView:
    """A row with a record of one attempt; `record=None` fields are given by name."""
    values: dict[str, object] = {"row": index, "byte": byte, "attempts": 1, "used": 1}
    return RowView(
        request_index=index,
        byte=byte,
        record=Record(**values | record),  # type: ignore[arg-type]
        input=InputRow(body=b'{"model":"m"}', custom_id=f"r{index}", model="m", line=index + 1),
    )
