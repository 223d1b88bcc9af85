"""The store's exam, groups: rows that are at a vendor's batch API are in no doubt, whoever dies."""

from __future__ import annotations

import msgspec

from batchwright.core import row_map
from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.ports.groups import Group, RowAttempt
from batchwright.ports.store import Store
from support.store_drive import Worker, new_segment, spec, submit

LIVE_LANE, BATCH_LANE = "openai|KEY|m", "openai-batch|KEY|m"
LIVE = Destination(vendor="openai", base_url="https://example.test/v1", key_env="KEY")


def api(*, live_too: bool) -> Destination:
    return msgspec.structs.replace(
        LIVE, vendor="openai-batch", protocol=VendorProtocol.BATCH, batch_of="openai", live_too=live_too
    )


def group(tag: str, *rows: int, batch_id: str = "batch_a", ids: tuple[str, ...] = ()) -> Group:
    attempts = tuple(RowAttempt(row, 0) for row in rows)
    return Group(tag=tag, batch_id=batch_id, vendor="openai-batch", rows=attempts, ids=ids, keeper="p", kept_at_ms=7)


def test_a_group_is_kept_named_and_dropped(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    first, second = group("t1", 0, 2, ids=("a", "b")), group("t2", 1)
    store.keep_group(second)
    store.keep_group(first)
    store.keep_group(msgspec.structs.replace(first, rows=()))
    assert list(store.groups_of("batch_a")) == [first, second], "one of the same tag stays as it is"
    store.name_group("t1", "vb_1")
    assert store.groups_of("batch_a")[0] == msgspec.structs.replace(first, vendor_batch_id="vb_1")
    store.drop_group("t2")
    store.drop_group("t3")
    assert [each.tag for each in store.groups_of("batch_a")] == ["t1"]
    assert store.groups_of("batch_b") == []


def test_groups_go_with_their_batch(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    store.keep_group(group("t1", 0))
    store.keep_group(group("t2", 0, batch_id="batch_b"))
    Worker(store).run()
    store.drop_batch("batch_a")
    assert store.groups_of("batch_a") == []
    assert len(store.groups_of("batch_b")) == 1


def taken_over(store: Store, *, live_too: bool) -> tuple[bytes, int]:
    """A worker with rows 0 and 1 reserved dies; the map that the next one finds, and how many doubts were counted."""
    of = msgspec.structs.replace(spec(), destinations=(LIVE, api(live_too=live_too)))
    lanes = f"{LIVE_LANE}\n{BATCH_LANE}" if live_too else BATCH_LANE
    submit(store, "batch_a", [new_segment(0, lanes=lanes)], of)
    worker = Worker(store)
    worker.checkpoint(worker.one().reserve(0, 1).change())
    if live_too:
        store.keep_group(group("t1", 0))
    assert store.mark_dead([worker.id]) == 1
    found = Worker(store, "w2").one()
    assert store.check("batch_a") == []
    return bytes(found.claimed.row_map), store.get_batch("batch_a").tally.doubts


def test_rows_that_go_to_a_batch_api_alone_are_in_no_doubt(store: Store) -> None:
    found, doubts = taken_over(store, live_too=False)
    assert found == bytes([row_map.PENDING] * 4)
    assert doubts == 0


def test_of_rows_that_may_have_gone_live_those_in_a_group_are_in_no_doubt(store: Store) -> None:
    found, doubts = taken_over(store, live_too=True)
    assert found == bytes([row_map.PENDING] * 4)
    assert doubts == 1, "the other one's attempt is in no group"
