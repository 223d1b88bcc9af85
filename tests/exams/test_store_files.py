"""The store's exam, files: uploads piece by piece, batches made from them, and the views of what those answered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from batchwright.core.errors import KeyReused, NoSuchBatch, NoSuchFile, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.records import Pieces
from batchwright.core.tenants import Tenant
from batchwright.core.webhooks import EVERY_EVENT, EventType
from batchwright.ports.files import FileBatchRow, FilePage, LineError, StoredFile
from batchwright.ports.store import Idempotency, NewBatch, SegmentView, Store
from batchwright.ports.webhooks import Webhook
from support.store_drive import FAILED, INTAKE, Worker, file_piece, new_segment, spec

DAY_MS = 86_400_000
BODIES = [b'{"row":%d}' % row for row in range(4)]
"""Of `new_segment`, and of `file_piece`."""
ERROR = LineError(code="invalid_json_line", line=2, message="The line is no JSON.", param=None)


def upload(store: Store, file_id: str, *, pieces: int = 2, expires_at_ms: int = 0, account: str = "acme") -> StoredFile:
    store.begin_file(file_id, account, owner="a lock", now_ms=1_000)
    store.add_pieces(file_id, [file_piece()] * (pieces - 1))
    store.add_pieces(file_id, [file_piece()])
    file = StoredFile(
        file_id=file_id,
        account=account,
        purpose="batch",
        filename="rows.jsonl",
        size=pieces * 40,
        pieces=pieces,
        created_at_ms=1_000,
        expires_at_ms=expires_at_ms,
    )
    store.finish_file(file)
    return file


def make(
    store: Store, batch_id: str = "batch_a", file_id: str = "file-a", key: str = "", output_expires_s: int = 0
) -> None:
    batch = NewBatch(
        batch_id=batch_id,
        tenant=Tenant("acme", "key_1"),
        spec=spec(),
        created_at_ms=2_000,
        owner=INTAKE,
        idempotency=Idempotency(key, "digest") if key else None,
    )
    row = FileBatchRow(
        batch_id=batch_id,
        file_id=file_id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        output_expires_s=output_expires_s,
    )
    store.create_file_batch(batch, row)


def names(store: Store, now_ms: int = 3_000, account: str = "acme", **page: object) -> list[str]:
    return [file.file_id for file in store.list_files(account, FilePage(**page), now_ms)]  # type: ignore[arg-type]


def test_a_file_is_there_once_it_has_arrived(store: Store) -> None:
    store.begin_file("file-a", "acme", owner="a lock", now_ms=1_000)
    store.add_pieces("file-a", [b"piece 0"])
    assert store.arriving_files() == [("file-a", "a lock", 1_000)]
    with pytest.raises(NoSuchFile):
        store.find_file("acme", "file-a", 1_000)
    assert names(store) == []
    store.hide_file("file-a")
    assert store.arriving_files() == []
    file = upload(store, "file-b")
    assert store.find_file("acme", "file-b", 1_000) == file
    with pytest.raises(NoSuchFile):
        store.add_pieces("file-b", [b""])
    with pytest.raises(NoSuchFile):
        store.finish_file(file)


def test_pieces_are_numbered_as_they_came(store: Store) -> None:
    store.begin_file("file-a", "acme", owner="a lock", now_ms=1_000)
    for packed in ([b"0", b"1"], [], [b"2"], [b"3", b"4"]):
        store.add_pieces("file-a", packed)
    assert [store.read_piece("file-a", number) for number in range(store.count_pieces("file-a"))] == [
        b"%d" % number for number in range(5)
    ]


def test_a_file_is_its_accounts(store: Store) -> None:
    upload(store, "file-a")
    with pytest.raises(NoSuchFile):
        store.find_file("other", "file-a", 1_000)
    assert names(store, account="other") == []
    with pytest.raises(NoSuchFile):
        names(store, account="other", after="file-a")


def test_files_are_listed_in_pages(store: Store) -> None:
    made = [upload(store, f"file-{number}").file_id for number in range(4)]
    assert names(store) == made[::-1]
    assert names(store, ascending=True, limit=2) == made[:2]
    assert names(store, ascending=True, after=made[1]) == made[2:]
    assert names(store, after=made[1]) == made[:1]
    assert names(store, purpose="batch_output") == []
    store.hide_file(made[1])
    assert names(store, after=made[1]) == made[:1], "a page goes on from a file that was deleted meanwhile"


def sweep(store: Store, now_ms: int = 4_000) -> list[int]:
    """What each step did, to the end."""
    steps: list[int] = []
    while done := store.sweep_files(now_ms):
        steps.append(done)
    return steps


def take_in(store: Store, batch_id: str, file_id: str, *, segments: int = 2) -> None:
    """A batch, claimable, whose rows lie in the file's first pieces."""
    make(store, batch_id, file_id)
    store.add_segments(batch_id, [new_segment(number, within=Pieces(file_id, number, 1)) for number in range(segments)])
    store.close_file_intake(batch_id, 2_500, model="m")


def is_there(store: Store, file_id: str) -> bool:
    try:
        store.read_piece(file_id, 0)
    except NoSuchFile:
        return False
    return True


def inputs_of(store: Store, batch_id: str = "batch_a") -> list[SegmentView]:
    return list(store.read_segments(batch_id, with_input=True))


@pytest.mark.parametrize("ended", ["deleted", "expired"])
def test_the_bytes_of_a_file_go_with_the_last_batch_of_it(store: Store, ended: str) -> None:
    upload(store, "file-a", pieces=100, expires_at_ms=5_000)
    upload(store, "file-b")
    make(store, "batch_a")
    if ended == "deleted":
        store.hide_file("file-a")
    now_ms = 4_999 if ended == "deleted" else 5_000
    with pytest.raises(NoSuchFile):
        store.find_file("acme", "file-a", now_ms)
    assert sweep(store, now_ms) == [1], "kept for the batch that is to take its rows in, and not looked at again"
    store.add_segments("batch_a", [new_segment(number, within=Pieces("file-a", number, 1)) for number in range(100)])
    store.close_file_intake("batch_a", 4_000, model="m")
    worker = Worker(store)
    (held,) = worker.claim()
    assert [row.body for row in held.claimed.input.rows] == BODIES
    worker.finish(held)
    assert worker.run() == 99
    assert sweep(store, now_ms) == []
    assert [[row.body for row in (view.input and view.input.rows) or ()] for view in inputs_of(store)] == [BODIES] * 100
    store.drop_batch("batch_a")
    assert sweep(store, now_ms) == [64, 36]
    assert not is_there(store, "file-a")
    assert names(store, now_ms) == ["file-b"]


def test_batches_of_one_file_share_its_bytes(store: Store) -> None:
    upload(store, "file-a")
    for batch_id in ("batch_a", "batch_b", "batch_c"):
        take_in(store, batch_id, "file-a")
    store.hide_file("file-a")
    assert sweep(store) == [1]
    worker = Worker(store)
    worker.run()
    store.drop_batch("batch_b")
    assert sweep(store) == [1], "it is looked at once more, and kept"
    store.drop_batch("batch_a")
    sweep(store)
    assert [len(view.row_map) for view in inputs_of(store, "batch_c")] == [4, 4]
    store.drop_batch("batch_c")
    assert sweep(store) == [2]
    assert not is_there(store, "file-a")


def test_a_refused_batch_needs_no_file(store: Store) -> None:
    upload(store, "file-a")
    for batch_id in ("batch_a", "batch_b"):
        make(store, batch_id)
        store.add_segments(batch_id, [new_segment(0, within=Pieces("file-a", 0, 1))])
    store.hide_file("file-a")
    assert sweep(store) == [1]
    store.refuse_file_batch("batch_a", [ERROR], 3_000)
    assert sweep(store) == [1]
    store.refuse_file_batch("batch_b", [ERROR], 3_000)
    assert sweep(store) == [2]


def test_a_file_is_not_found_again_once_some_of_it_is_removed(store: Store) -> None:
    """With a clock that is set back."""
    upload(store, "file-a", pieces=100, expires_at_ms=5_000)
    assert store.sweep_files(5_000) == 64
    with pytest.raises(NoSuchFile):
        store.find_file("acme", "file-a", 4_000)
    assert sweep(store, 4_000) == [36]


def test_a_file_that_is_there_outlives_its_batches(store: Store) -> None:
    upload(store, "file-a")
    take_in(store, "batch_a", "file-a")
    Worker(store).run()
    store.drop_batch("batch_a")
    assert sweep(store) == []
    take_in(store, "batch_b", "file-a")
    assert Worker(store, name="next").run() == 2


def test_a_claim_counts_the_bytes_that_it_reads(store: Store) -> None:
    upload(store, "file-a")
    take_in(store, "batch_a", "file-a", segments=1)
    (held,) = Worker(store).claim()
    segment = new_segment(0, within=Pieces("file-a", 0, 1))
    assert held.claimed.input_bytes == len(segment.input) + len(file_piece())


def test_a_round_of_a_batch_reads_the_file_again(store: Store) -> None:
    upload(store, "file-a")
    take_in(store, "batch_a", "file-a")
    store.hide_file("file-a")
    sweep(store)
    worker = Worker(store)
    worker.run(byte=FAILED)
    assert store.reopen("batch_a", frozenset({FAILED})).rows == 8
    sweep(store)
    assert [row.body for row in worker.one().claimed.input.rows] == BODIES


def test_a_batch_needs_a_file_that_is_there(store: Store) -> None:
    upload(store, "file-a", expires_at_ms=1_500)
    upload(store, "file-b", account="other")
    for file_id in ("file-a", "file-b", "file-c"):
        with pytest.raises(NoSuchFile):
            make(store, file_id=file_id)
    assert store.find_batches() == []


def test_an_idempotency_key_makes_one_batch(store: Store) -> None:
    upload(store, "file-a")
    make(store, key="k")
    with pytest.raises(KeyReused):
        make(store, "batch_b", key="k")
    with pytest.raises(NoSuchBatch):
        store.get_file_batch("batch_b")


def test_an_intake_begins_again(store: Store) -> None:
    upload(store, "file-a")
    make(store)
    store.add_segments("batch_a", [new_segment(0, refused=[1]), new_segment(1)])
    assert store.accepting_file_batches() == ["batch_a"]
    assert store.find_batches(accepting=True) == [], "it is not to be swept: whoever looks next goes on with it"
    store.begin_intake_again("batch_a")
    row = store.get_batch("batch_a")
    assert (row.facts.accepting, row.facts.total, row.segments, row.segments_open) == (True, 0, 0, 0)
    assert row.tally.counts == {}
    store.add_segments("batch_a", [new_segment(0)])
    store.close_file_intake("batch_a", 2_500, model="m")
    assert store.accepting_file_batches() == []
    with pytest.raises(WrongState):
        store.begin_intake_again("batch_a")
    found = store.get_file_batch("batch_a")
    assert (found.in_progress_at_ms, found.model, found.output_file_id) == (2_500, "m", "")
    Worker(store).run()
    assert store.get_batch("batch_a").facts.settled


def test_a_refused_batch_has_no_rows_and_stands(store: Store) -> None:
    upload(store, "file-a")
    make(store, key="k")
    store.add_segments("batch_a", [new_segment(0, ids=["a", "b", "c", "d"])])
    store.refuse_file_batch("batch_a", [ERROR], 3_000)
    row = store.get_batch("batch_a")
    assert (row.facts.refused, row.facts.total, row.settled_at_ms) == (True, 0, 3_000)
    assert store.get_file_batch("batch_a").errors == (ERROR,)
    assert list(store.id_hashes("batch_a")) == []
    assert store.find_idempotent("acme", "k", 3_000) is not None
    assert Worker(store).claim() == []
    for refused in (
        lambda: store.request_close("batch_a", FailureKind.CANCELLED, 3_500),
        lambda: store.reopen("batch_a", frozenset({46})),
        lambda: store.close_intake("batch_a", 3_500),
    ):
        with pytest.raises(WrongState):
            refused()
    assert store.check("batch_a") == []
    store.drop_batch("batch_a")
    with pytest.raises(NoSuchBatch):
        store.get_file_batch("batch_a")


def test_a_refusal_is_told_as_a_failure(store: Store) -> None:
    webhook = Webhook(
        webhook_id="wh_a",
        account="acme",
        url="https://a.example/",
        events=EVERY_EVENT,
        secret="correct horse",
        headers={},
        created_at_ms=1_000,
    )
    store.add_webhook(webhook, None)
    upload(store, "file-a")
    make(store)
    for _ in range(2):  # the second finds it ended
        with suppress(WrongState):
            store.refuse_file_batch("batch_a", [ERROR], 3_000)
    (told,) = store.list_deliveries("wh_a", before=0, limit=10)
    assert (told.batch_id, told.type, told.created_at_ms) == ("batch_a", EventType.FAILED, 3_000)


def test_files_of_a_batch_come_with_its_end_and_go_with_its_round(store: Store) -> None:
    upload(store, "file-a")
    make(store, output_expires_s=60)
    store.add_segments("batch_a", [new_segment(0, refused=[1])])
    store.close_file_intake("batch_a", 2_500, model="")
    assert names(store) == ["file-a"]
    Worker(store).run()
    ended_ms = store.get_batch("batch_a").settled_at_ms
    row = store.get_file_batch("batch_a")
    assert (row.output_file_id, row.error_file_id) == ("file-a0000o", "file-a0000e")
    output = store.find_file("acme", row.output_file_id, ended_ms)
    assert (output.purpose, output.batch_id, output.round, output.size) == ("batch_output", "batch_a", 0, -1)
    assert (output.created_at_ms, output.expires_at_ms) == (ended_ms, ended_ms + 60_000)
    store.set_file_size(output.file_id, 12)
    assert store.find_file("acme", output.file_id, ended_ms) == replace(output, size=12)
    assert names(store, ended_ms, purpose="batch_output") == ["file-a0000e", "file-a0000o"]
    assert names(store, ended_ms + 60_000) == ["file-a"]

    store.hide_file(row.error_file_id)
    assert names(store, ended_ms) == ["file-a0000o", "file-a"]
    assert store.get_file_batch("batch_a").error_file_id == row.error_file_id
    assert store.sweep_files(ended_ms + DAY_MS) == 0, "they have no bytes of their own"

    store.reopen("batch_a", frozenset({16}))
    assert store.get_file_batch("batch_a").output_file_id == ""
    assert names(store, ended_ms) == ["file-a"]
    Worker(store, name="next").run()
    row = store.get_file_batch("batch_a")
    assert (row.output_file_id, row.error_file_id) == ("file-a0001o", "file-a0001e")
    assert names(store, ended_ms, purpose="batch_output") == ["file-a0001e", "file-a0001o"]
    store.drop_batch("batch_a")
    assert names(store, ended_ms) == ["file-a"]


def test_batches_of_files_are_listed_by_account(store: Store) -> None:
    upload(store, "file-a")
    for number in range(3):
        make(store, f"batch_{number}")
    store.create_batch(NewBatch(batch_id="batch_plain", spec=spec(), created_at_ms=1, owner=INTAKE))

    def listed(account: str = "acme", after: str = "", limit: int = 10) -> list[str]:
        return [row.batch_id for row in store.list_file_batches(account, after=after, limit=limit)]

    assert listed() == ["batch_2", "batch_1", "batch_0"]
    assert listed(after="batch_2", limit=1) == ["batch_1"]
    assert listed("other") == []
    for account, after in (("acme", "batch_9"), ("other", "batch_1")):
        with pytest.raises(NoSuchBatch):
            listed(account, after)


def test_a_cancel_is_noted_when_it_is_asked_for(store: Store) -> None:
    upload(store, "file-a")
    make(store)
    store.add_segments("batch_a", [new_segment(0)])
    assert store.request_close("batch_a", FailureKind.CANCELLED, 2_200)
    assert not store.request_close("batch_a", FailureKind.CANCELLED, 2_300)
    store.close_file_intake("batch_a", 2_500, model="")
    assert Worker(store).claim() == []
    while store.close_step("batch_a", 2_600):
        pass
    row = store.get_file_batch("batch_a")
    assert (row.cancelling_at_ms, row.output_file_id, row.error_file_id) == (2_200, "", "file-a0000e")
