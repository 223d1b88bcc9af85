"""What a killed process leaves at a service is found by the next one, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchwright.client.chunk_journal import KEPT_MS, KEYS_KEPT_MS, ChunkJournal, Head
from batchwright.store.file_locks import FileLocks

NOW_MS = 1_767_225_600_000


@pytest.fixture
def locks(tmp_path: Path) -> FileLocks:
    return FileLocks(tmp_path)


def journal(tmp_path: Path, locks: FileLocks, owner: str) -> ChunkJournal:
    return ChunkJournal(tmp_path / "chunks", owner=owner, take_lock=lambda name: locks.take(name, holder="a test"))


def head(key: str, written_ms: int = NOW_MS) -> Head:
    return Head(key=key, rows=["d1", "d2"], written_ms=written_ms)


def test_a_dead_process_leaves_its_chunks_to_one_successor(tmp_path: Path, locks: FileLocks) -> None:
    first = journal(tmp_path, locks, "first")
    first.write(head("k1"), b'{"requests":[\n1]}')
    first.write(head("k2"), b"{}")
    first.name("k2", "batch_2")
    second = journal(tmp_path, locks, "second")
    assert second.left_over(NOW_MS) == [], "the first lives"
    first.close()
    found = {chunk.key: chunk for chunk in second.left_over(NOW_MS)}
    assert (found["k1"].body, found["k1"].batch_id, found["k1"].rows) == (b'{"requests":[\n1]}', "", ["d1", "d2"])
    assert found["k2"].batch_id == "batch_2"
    assert journal(tmp_path, locks, "third").left_over(NOW_MS) == []
    second.close()
    again = journal(tmp_path, locks, "fourth").left_over(NOW_MS)
    assert {chunk.key: chunk.batch_id for chunk in again} == {"k1": "", "k2": "batch_2"}, "it ended without asking"


def test_a_submit_whose_key_the_service_may_have_forgotten_says_so(tmp_path: Path, locks: FileLocks) -> None:
    first = journal(tmp_path, locks, "first")
    first.write(head("unheard", NOW_MS - KEYS_KEPT_MS - 1), b"{}")
    first.write(head("named", NOW_MS - KEYS_KEPT_MS - 1), b"{}")
    first.name("named", "batch_1")
    first.write(head("fresh", NOW_MS - KEYS_KEPT_MS), b"{}")
    first.close()
    found = journal(tmp_path, locks, "second").left_over(NOW_MS)
    assert {chunk.key: chunk.too_old for chunk in found} == {"unheard": True, "named": False, "fresh": False}


def test_what_was_dropped_is_gone(tmp_path: Path, locks: FileLocks) -> None:
    first = journal(tmp_path, locks, "first")
    first.write(head("k"), b"{}")
    first.name("k", "batch_1")
    first.drop("k")
    first.close()
    assert journal(tmp_path, locks, "second").left_over(NOW_MS) == []
    assert not (tmp_path / "chunks" / "first").exists()


def test_what_is_torn_or_old_is_removed(tmp_path: Path, locks: FileLocks) -> None:
    first = journal(tmp_path, locks, "first")
    first.write(head("old", NOW_MS - KEPT_MS - 1), b"{}")
    first.write(head("good"), b"{}")
    (tmp_path / "chunks" / "first" / "torn.chunk").write_bytes(b'{"key":"t')
    (tmp_path / "chunks" / "first" / "half.chunk.tmp").write_bytes(b"{")
    first.close()
    assert [chunk.key for chunk in journal(tmp_path, locks, "second").left_over(NOW_MS)] == ["good"]
    assert not (tmp_path / "chunks" / "first").exists()


def test_what_is_over_leaves_no_folder(tmp_path: Path, locks: FileLocks) -> None:
    first, second = journal(tmp_path, locks, "first"), journal(tmp_path, locks, "second")
    first.write(head("k"), b"{}")
    first.close()
    assert [chunk.key for chunk in second.left_over(NOW_MS)] == ["k"]
    second.close()
    assert (tmp_path / "chunks").is_dir(), "a chunk is in it"
    third = journal(tmp_path, locks, "third")
    assert [chunk.key for chunk in third.left_over(NOW_MS)] == ["k"]
    third.drop("k")
    third.close()
    assert not (tmp_path / "chunks").exists()
    fourth = journal(tmp_path, locks, "fourth")
    fourth.write(head("k"), b"{}")
    assert [path.name for path in (tmp_path / "chunks").iterdir()] == ["fourth"]
