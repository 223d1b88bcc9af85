"""Bodies outside the database: what is named is there, what nobody names goes, and the store is found again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import select

from batchwright.core.batch_state import PauseCause
from batchwright.core.errors import BodyLost, ObjectsAway, StoreError
from batchwright.ports.blobs import ListedObject, Objects
from batchwright.ports.store import ClaimRequest
from batchwright.store import blobs, bodies, checkpointing, objects_sweep, parts
from batchwright.store.folder_objects import FolderObjects
from batchwright.store.open import Outlying, open_store
from batchwright.store.schema import blob
from batchwright.store.sql_store import SqlStore
from support.store_drive import Worker, file_piece, new_segment, submit

DAY_MS = 24 * 3_600_000


class Counted:
    """Objects that count what is asked of them, and may be away."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.asked: list[str] = []
        self.away: set[str] = set()

    @property
    def url(self) -> str:
        return self._objects.url

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.away:
            raise ObjectsAway(f"{what} is away")

    def probe(self, name: str) -> None:
        self._ask("probe")
        self._objects.probe(name)

    def put(self, name: str, data: bytes) -> None:
        self._ask("put")
        self._objects.put(name, data)

    def get(self, name: str) -> bytes:
        self._ask("get")
        return self._objects.get(name)

    def get_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        self._ask("get_ranges")
        return self._objects.get_ranges(name, spans)

    def delete(self, names: Sequence[str]) -> None:
        self._ask("delete")
        self._objects.delete(names)

    def listed(self, under: str, after: str, limit: int) -> list[ListedObject]:
        self._ask("listed")
        return self._objects.listed(under, after, limit)


@pytest.fixture
def objects(tmp_path: Path) -> Counted:
    return Counted(FolderObjects(tmp_path / "objects"))


def opened(objects: Objects, place: Path | str = ":memory:", *, writer: str = "w1") -> SqlStore:
    store = open_store(place, Outlying(objects=objects, writer=writer, state=f"state-{writer}"))
    assert isinstance(store, SqlStore)
    return store


def named(store: SqlStore) -> dict[str, str]:
    """Key, without its day -> object of every blob that is outside."""
    with store._connections.read() as connection:
        return {row.key.partition("/")[2]: row.object for row in connection.execute(select(blob)) if row.object}


def there(objects: Counted) -> set[str]:
    return {each.name for each in objects._objects.listed("state-w1", "", 10_000)}


def test_parts_go_outside_and_what_comes_in_small_stays(objects: Counted) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    worker.finish(worker.one())
    assert set(named(store)) == {"part/w/1/3"}
    assert set(named(store).values()) == there(objects)
    store.close()


def test_inputs_of_one_transaction_are_one_object(objects: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(objects)
    ids = [[f"{number}-{row}" for row in range(4)] for number in range(5)]
    size = bodies.INLINE_BYTES // 4
    new = [new_segment(number, padding=size, refused=[0], ids=ids[number]) for number in range(5)]
    submit(store, "batch_a", new)
    assert objects.asked == ["probe", "put"]
    assert sorted(named(store)) == [f"{kind}/batch_a/{number}" for kind in ("input", "intake") for number in range(5)]
    assert set(named(store).values()) == there(objects)
    assert len(there(objects)) == 1
    monkeypatch.setattr(bodies, "WHOLE_BYTES", 0)
    claimed = Worker(store).checkpoint(claim=ClaimRequest(limit=5)).claimed
    assert objects.asked == ["probe", "put", "get_ranges"], "all that were claimed in one go"
    assert [[row.custom_id for row in one.input.rows] for one in claimed] == ids
    store.close()


def test_results_of_a_checkpoint_lie_beside_its_frames(objects: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MERGE_ABOVE", 1)
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    ending, going_on = worker.claim(limit=2)
    worker.checkpoint(ending.reserve(0, 1, 2, 3).change(), going_on.reserve(0, 1).change())
    worker.checkpoint(ending.answer(0).change())
    objects.asked.clear()
    worker.checkpoint(ending.answer(1, 2, 3).change(), going_on.answer(0, 1).change())
    assert objects.asked == ["get", "put"], "the frame that is merged, and all at once"
    outside = named(store)
    result = "result/batch_a/0/0/1"
    beside = [key for key, name in outside.items() if name == outside[result] and key != result]
    assert [key.partition("/")[0] for key in beside] == ["part"]
    worker.finish(going_on)
    assert store.check("batch_a") == []
    texts = [sorted(view.records) for view in store.read_segments("batch_a")]
    assert texts == [[0, 1, 2, 3], [0, 1, 2, 3]]
    store.close()


def test_an_object_goes_with_the_last_that_lies_in_it(objects: Counted) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(number, padding=bodies.INLINE_BYTES // 2) for number in range(3)])
    (together,) = there(objects)
    store._bodies.connections.transact(lambda connection: blobs.discard(connection, ["00000/input/batch_a/2"]))
    assert store.sweep_step(99_000_000) == 0
    assert there(objects) == {together}
    assert len(named(store)) == 3
    store._bodies.connections.transact(
        lambda connection: blobs.discard(connection, ["00000/input/batch_a/0", "00000/input/batch_a/1"])
    )
    assert objects_sweep.delete_superseded(store._bodies, 99_000_000, 2) == 2
    assert there(objects) == set()
    assert objects_sweep.delete_superseded(store._bodies, 99_000_000, 2) == 1, "what is gone may be deleted again"
    assert named(store) == {}
    store.close()


def test_a_claim_of_what_lies_in_the_table_asks_the_object_store_for_nothing(objects: Counted) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    objects.asked.clear()
    Worker(store).one()
    assert objects.asked == []
    store.close()


def test_nothing_is_asked_for_while_a_transaction_is_open(objects: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "INLINE_BYTES", 0)
    monkeypatch.setattr(parts, "MERGE_ABOVE", 0)
    monkeypatch.setattr(bodies, "CACHE_BYTES", 0)
    store = opened(objects)
    asked = Counted._ask

    def ask(self: Counted, what: str) -> None:
        # In memory there is one connection: whoever has a transaction open holds its lock.
        assert store._connections._lock.acquire(blocking=False)  # type: ignore[attr-defined]  # of the file's adapter
        store._connections._lock.release()  # type: ignore[attr-defined]  # as above
        assert not store._connections._writer.in_transaction()  # type: ignore[attr-defined]  # as above
        asked(self, what)

    monkeypatch.setattr(Counted, "_ask", ask)
    store.begin_file("file_a", "acme", owner="lock", now_ms=1)
    store.add_pieces("file_a", [file_piece()])
    assert store.read_piece("file_a", 0) == file_piece()
    submit(store, "batch_a", [new_segment(number, refused=[0]) for number in range(3)])
    lost = Worker(store, "lost")
    held = lost.one()
    lost.checkpoint(held.reserve(1, 2, 3).change())
    lost.checkpoint(held.answer(1).change())
    store.mark_dead([lost.id])
    worker = Worker(store, "other")
    assert worker.run() == 3
    assert len(list(store.read_segments("batch_a", with_input=True))) == 3
    assert store.check("batch_a") == []
    store.drop_batch("batch_a")
    store.sweep_step(99_000_000)
    assert {"put", "get", "delete"} <= set(objects.asked)
    assert there(objects) == set(named(store).values())
    store.close()


def test_what_is_put_and_never_committed_goes_after_a_day(objects: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    held = worker.one()
    worker.checkpoint(held.reserve(0, 1, 2, 3).change())

    change = held.answer(0, 1, 2, 3).change()

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(checkpointing, "_write_part", killed)
        with pytest.raises(Killed):
            worker.checkpoint(change)
    (orphan,) = there(objects)
    assert named(store) == {}
    # The process lives: it does the same again.
    worker.checkpoint(change)
    now_ms = max(each.modified_ms for each in objects._objects.listed("state-w1", "", 10))
    assert store.sweep_orphans(now_ms) == 0
    assert there(objects) == {orphan, *named(store).values()}
    assert store.sweep_orphans(now_ms + DAY_MS + 60_000) == 1
    assert there(objects) == set(named(store).values())
    assert len(there(objects)) == 1
    assert store.check("batch_a") == []
    store.close()


def test_orphans_are_looked_for_in_steps_once_a_day(objects: Counted) -> None:
    store = opened(objects)
    assert store.object_mark() == "state-w1"
    for number in range(7):
        objects._objects.put(f"state-w1/part/x/{number}/old-1", b"x")
    objects._objects.put("another/part/x/1/old-1", b"x")
    later_ms = objects._objects.listed("another", "", 1)[0].modified_ms + 2 * DAY_MS
    assert [store.sweep_orphans(later_ms, 3) for _ in range(4)] == [3, 3, 1, 0]
    assert there(objects) == set()
    objects.asked.clear()
    assert store.sweep_orphans(later_ms + DAY_MS - 1, 3) == 0
    assert objects.asked == []
    assert objects._objects.get("another/part/x/1/old-1") == b"x", "another store's"
    store.close()


def test_who_began_before_anything_was_put_looks_for_orphans_too(tmp_path: Path, objects: Counted) -> None:
    onlooker, store = (opened(objects, tmp_path / "state.sqlite", writer=writer) for writer in ("w2", "w1"))
    assert onlooker.sweep_orphans(DAY_MS) == 0
    assert objects.asked == [], "it is tied to nothing yet"
    assert store.object_mark() == "state-w1"
    objects._objects.put("state-w1/part/x/1/old-1", b"x")
    later_ms = objects._objects.listed("state-w1", "", 1)[0].modified_ms + 2 * DAY_MS
    assert onlooker.sweep_orphans(later_ms) == 1
    assert there(objects) == set()
    onlooker.close()
    store.close()


def test_superseded_objects_go_with_their_rows_and_stay_while_the_store_is_away(
    objects: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "INLINE_BYTES", 0)
    monkeypatch.setattr(parts, "MERGE_ABOVE", 1)
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    held = worker.one()
    worker.checkpoint(held.reserve(0, 1, 2, 3).change())
    for row in range(4):
        worker.checkpoint(held.answer(row).change(), now_ms=5_000)
    assert len(named(store)) == 5
    objects.away.add("delete")
    with pytest.raises(ObjectsAway):
        store.sweep_step(5_000, keep_superseded_ms=0)
    assert len(named(store)) == 5
    objects.away.clear()
    assert store.sweep_step(4_999 + 3_600_000) == 0
    assert store.sweep_step(5_000 + 3_600_000) == 3
    assert set(named(store)) == {"input/batch_a/0", "result/batch_a/0/0/1"}
    assert there(objects) == set(named(store).values())
    store.close()


def test_segments_that_cannot_be_read_are_given_back(objects: Counted) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0, padding=bodies.INLINE_BYTES)])
    submit(store, "batch_b", [new_segment(0)])
    objects.away.add("get")
    worker = Worker(store)
    result = worker.checkpoint(claim=ClaimRequest(limit=2))
    assert ([claimed.key.batch_id for claimed in result.claimed], result.given_back) == (["batch_b"], 1)
    objects.away.clear()
    assert [held.key.batch_id for held in worker.claim(limit=2)] == ["batch_a"]
    store.close()


def test_a_checkpoint_whose_objects_cannot_be_put_leaves_nothing_and_is_done_again(objects: Counted) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    held = worker.one()
    worker.checkpoint(held.reserve(0, 1, 2, 3).change())
    change = held.answer(0, 1, 2, 3).change()
    objects.away.add("put")
    with pytest.raises(ObjectsAway):
        worker.checkpoint(change)
    objects.away.clear()
    assert worker.checkpoint(change).settled == ["batch_a"]
    store.close()


def test_an_object_that_is_lost_is_named(objects: Counted) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    worker.finish(worker.one())
    (name,) = there(objects)
    objects._objects.delete([name])
    store._bodies._cache.clear()
    with pytest.raises(StoreError, match=f"has no object {name}, which holds answers"):
        list(store.read_segments("batch_a"))
    store.close()


def spoil(objects: Counted, name: str, how: str) -> bytes:
    """Returns what it was."""
    whole = objects._objects.get(name)
    match how:
        case "deleted":
            objects._objects.delete([name])
        case "cut":
            objects._objects.put(name, whole[: len(whole) // 2])
        case "replaced":
            objects._objects.put(name, bytes(len(whole)))
        case _:
            middle = len(whole) // 3
            objects._objects.put(name, whole[:middle] + bytes([whole[middle] ^ 0x55]) + whole[middle + 1 :])
    return whole


SPOILT = ("deleted", "cut", "replaced", "changed")


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("whole_bytes", [bodies.WHOLE_BYTES, 1])
def test_a_batch_whose_input_is_lost_is_paused_and_holds_up_no_other(
    objects: Counted, monkeypatch: pytest.MonkeyPatch, how: str, whole_bytes: int
) -> None:
    monkeypatch.setattr(bodies, "INLINE_BYTES", 0)
    monkeypatch.setattr(bodies, "WHOLE_BYTES", whole_bytes)
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    submit(store, "batch_b", [new_segment(0)])
    name = named(store)["input/batch_a/0"]
    before = spoil(objects, name, how)
    worker = Worker(store)
    assert worker.run() + worker.run() == 1, "a claim that meets the loss may come back with nothing"
    (pause,) = store.get_batch("batch_a").pauses
    assert pause.cause is PauseCause.BODIES
    assert "Restore" in pause.reason
    assert store.get_batch("batch_b").facts.settled

    store.resume_batch("batch_a", frozenset({PauseCause.BODIES}))
    assert worker.run() == 0, "it is still lost"
    objects._objects.put(name, before)
    store.resume_batch("batch_a", frozenset({PauseCause.BODIES}))
    assert worker.run() == 1
    assert store.get_batch("batch_a").facts.settled
    assert [store.check(batch) for batch in ("batch_a", "batch_b")] == [[], []]
    store.close()


@pytest.mark.parametrize("batch_id", ["", "batch_a"])
def test_however_many_segments_are_in_doubt_they_are_claimed_step_by_step(
    objects: Counted, monkeypatch: pytest.MonkeyPatch, batch_id: str
) -> None:
    monkeypatch.setattr(bodies, "INLINE_BYTES", 0)
    monkeypatch.setattr(bodies, "CACHE_BYTES", 0)
    store = opened(objects)
    for number in range(40):
        submit(store, f"batch_{number}", [new_segment(0)])
    submit(store, "batch_a", [new_segment(number) for number in range(40)])
    lost = Worker(store, "lost")
    for held in lost.claim(80):
        lost.checkpoint(held.reserve(0, 1).change())
        lost.checkpoint(held.answer(0).change())
    store.mark_dead([lost.id])
    worker = Worker(store, "other")
    claimed = 0
    while found := worker.claim(64, batch_id=batch_id):
        claimed += len(found)
        for each in found:
            worker.finish(each)
    assert claimed == (40 if batch_id else 80)
    assert store.check("batch_a") == []
    store.close()


@pytest.mark.parametrize("how", SPOILT)
def test_rows_in_doubt_whose_records_are_lost_pause_their_batch_alone(objects: Counted, how: str) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    lost = Worker(store, "lost")
    held = lost.one()
    lost.checkpoint(held.reserve(0, 1, 2, 3).change())
    lost.checkpoint(held.answer(0).change())
    store.mark_dead([lost.id])
    submit(store, "batch_b", [new_segment(0)])
    (name,) = [each for key, each in named(store).items() if key.startswith("part/")]
    store._bodies._cache.clear()
    before = spoil(objects, name, how)
    worker = Worker(store, "other")
    assert worker.run() == 1
    assert [pause.cause for pause in store.get_batch("batch_a").pauses] == [PauseCause.BODIES]
    objects._objects.put(name, before)
    store.resume_batch("batch_a", frozenset({PauseCause.BODIES}))
    assert worker.run() == 1
    assert store.get_batch("batch_a").facts.settled
    assert [store.check(batch) for batch in ("batch_a", "batch_b")] == [[], []]
    store.close()


@pytest.mark.parametrize("how", SPOILT)
def test_answers_that_are_lost_hold_up_no_end_of_their_segment(
    objects: Counted, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(parts, "MERGE_ABOVE", 1)
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    held = worker.one()
    worker.checkpoint(held.reserve(0, 1, 2, 3).change())
    worker.checkpoint(held.answer(0).change())
    (name,) = there(objects)
    store._bodies._cache.clear()
    before = spoil(objects, name, how)
    assert worker.checkpoint(held.answer(1, 2, 3).change()).settled == ["batch_a"]
    with pytest.raises(BodyLost):
        list(store.read_segments("batch_a"))
    objects._objects.put(name, before)
    assert store.check("batch_a") == []
    assert len(list(store.read_segments("batch_a"))) == 1
    store.close()


def test_a_store_is_opened_with_its_object_store_alone(tmp_path: Path, objects: Counted) -> None:
    place = tmp_path / "state.db"
    first = opened(objects, place)
    submit(first, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(first)
    worker.finish(worker.one())
    first.close()
    with pytest.raises(StoreError, match=r"has bodies in the object store file://.*, and none was named. Give --blobs"):
        open_store(place)
    with pytest.raises(StoreError, match=r"and it was opened with file://.*/other"):
        opened(FolderObjects(tmp_path / "other"), place)
    objects.asked.clear()
    again = opened(objects, place, writer="w2")
    assert objects.asked == [], "who only looks on asks it for nothing"
    other = Worker(again, "other")
    assert objects.asked == ["probe"]
    other.finish(other.one())
    assert all(name.startswith("state-w1/") for name in named(again).values())
    again.close()


def test_who_only_reads_ties_nothing(tmp_path: Path, objects: Counted) -> None:
    place = tmp_path / "state.db"
    before = open_store(place)
    submit(before, "batch_a", [new_segment(0), new_segment(1)])
    before.close()
    wrong = opened(Counted(FolderObjects(tmp_path / "tpyo")), place)
    assert len(list(wrong.read_segments("batch_a"))) == 2
    assert wrong.sweep_orphans(3 * DAY_MS) == 0
    assert not (tmp_path / "tpyo").exists()
    open_store(place).close()
    store = opened(objects, place, writer="w2")
    assert Worker(store).run() == 2
    assert all(name.startswith("state-w2/") for name in named(store).values())
    with pytest.raises(StoreError, match=r"Another process has begun to keep the bodies of this store in file://"):
        Worker(wrong, "other").store.object_mark()
    with pytest.raises(StoreError, match="Another process has begun"):
        list(wrong.read_segments("batch_a"))
    wrong.close()
    store.close()


def test_a_place_where_nothing_lies_yields_to_another(tmp_path: Path, objects: Counted) -> None:
    place = tmp_path / "state.db"
    tied = opened(Counted(FolderObjects(tmp_path / "tpyo")), place)
    assert tied.object_mark() == "state-w1"
    before = open_store(place)
    store = opened(objects, place, writer="w2")
    submit(store, "batch_a", [new_segment(0)])
    assert Worker(store).run() == 1
    assert all(name.startswith("state-w1/") for name in named(store).values()), "its mark is its own for good"
    with pytest.raises(StoreError, match="Another process has begun to keep"):
        tied.object_mark()
    with pytest.raises(StoreError, match="none was named: another process has put them there"):
        list(before.read_segments("batch_a"))
    for each in (tied, before, store):
        each.close()


def test_a_store_that_had_none_can_begin_with_one(tmp_path: Path, objects: Counted) -> None:
    place = tmp_path / "state.db"
    before = open_store(place)
    submit(before, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(before)
    worker.finish(worker.one())
    before.close()
    store = opened(objects, place)
    other = Worker(store, "other")
    other.finish(other.one())
    assert store.check("batch_a") == []
    assert len(named(store)) == 1
    store.close()


def test_a_step_of_orphans_keeps_what_is_named(objects: Counted) -> None:
    store = opened(objects)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    worker.finish(worker.one())
    later_ms = objects._objects.listed("state-w1", "", 1)[0].modified_ms + 3 * objects_sweep.ORPHAN_MS
    assert store.sweep_orphans(later_ms) == 0
    assert len(list(store.read_segments("batch_a"))) == 1
    store.close()
