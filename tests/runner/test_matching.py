"""Which earlier answer goes to which row: one to one, in order, none twice, and never to another request."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.records import Record
from batchwright.runner.matching import Matching


def hash_of(letter: str) -> bytes:
    return letter.encode() * 20


def answer(row: int, batch: str = "batch_1") -> Record:
    return Record(row=0, byte=16, attempts=0, used=0, body=b"%d" % row, reused=batch, reused_row=row)


LETTERS = st.lists(st.sampled_from("abc"), max_size=12)


@given(rows=LETTERS, earlier=LETTERS, failed=LETTERS)
def test_equal_rows_take_equal_answers_in_order(rows: list[str], earlier: list[str], failed: list[str]) -> None:
    with Matching() as matching:
        matching.add(map(hash_of, rows))
        matching.seal()
        given = [matching.give(hash_of(letter), answer(row)) for row, letter in enumerate(earlier)]
        for letter in failed:
            matching.lack(hash_of(letter))
        found = list(matching.answers())
        lacking = matching.lacking()
        left = matching.open
    wanted, there = Counter(rows), Counter(earlier)
    both = wanted & there
    assert sum(given) == both.total() == len(found)
    assert left == len(rows) - len(found)
    places = {letter: [row for row, one in enumerate(rows) if one == letter] for letter in "abc"}
    expected = sorted(
        (places[letter][number], row)
        for letter in both
        for number, row in enumerate([row for row, one in enumerate(earlier) if one == letter][: both[letter]])
    )
    assert [(each.row, each.record.reused_row) for each in found] == expected
    assert all(each.hash == hash_of(rows[each.row]) for each in found)
    again = ((wanted - both) & Counter(failed)).total()
    assert lacking == (again, len(failed) - again)


def test_an_answer_goes_to_one_row_however_often_it_was_taken_over() -> None:
    with Matching() as matching:
        matching.add([hash_of("a"), None, hash_of("a"), hash_of("a")])
        matching.seal()
        assert matching.open == 3
        assert matching.give(hash_of("a"), answer(4))
        assert not matching.give(hash_of("a"), answer(4)), "the same one, found in another batch that took it over"
        assert matching.give(hash_of("a"), answer(4, "batch_2"))
        assert [(each.row, each.record.reused) for each in matching.answers()] == [(0, "batch_1"), (2, "batch_2")]
