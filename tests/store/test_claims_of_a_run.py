"""What a claim from one batch alone does not pay for: the order of accounts is for workers of all batches."""

from __future__ import annotations

from pathlib import Path

from batchwright.ports.store import ClaimRequest
from batchwright.store.open import open_store
from batchwright.store.sql_store import SqlStore
from support.store_drive import Worker, new_segment, submit


def statements(store: SqlStore, seen: list[str]) -> None:
    """Writes down each statement of the writing connection from now on."""

    def listen(connection: object) -> None:
        connection.connection.dbapi_connection.set_trace_callback(seen.append)  # type: ignore[attr-defined]

    store._connections.transact(listen)


def test_no_statement_of_a_run_is_for_the_order_of_accounts(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state.db")
    assert isinstance(store, SqlStore)
    submit(store, "batch_a", [new_segment(number) for number in range(4)])
    worker = Worker(store)
    seen: list[str] = []
    statements(store, seen)
    first, second = worker.claim(2, batch_id="batch_a")
    worker.checkpoint(first.reserve(0, 1, 2, 3).change(), second.reserve(0, 1, 2, 3).change())
    worker.checkpoint(first.answer(0, 1, 2, 3, tokens=5).change())
    last = second.answer(0, 1, 2, 3, tokens=5).change()
    result = worker.checkpoint(last, claim=ClaimRequest(limit=2, batch_id="batch_a"))
    assert len(result.claimed) == 2
    text = " ".join(seen)
    assert "segment" in text
    assert [one for one in seen if " queue" in one or " share" in one] == []
    assert store.backlog().fairness.spread_tokens == 0

    seen.clear()
    submit(store, "batch_b", [new_segment(0)])
    worker.one()
    assert [one for one in seen if " queue" in one] != []
    store.close()
