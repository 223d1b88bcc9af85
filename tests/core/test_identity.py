from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.identity import (
    CUSTOM_ID_HASH_BYTES,
    NO_CUSTOM_ID,
    batch_identity,
    hash_custom_id,
    hash_custom_ids,
)

TEXTS = st.text(max_size=20)
OPTIONS = st.dictionaries(TEXTS, TEXTS, max_size=6)


def test_identities_and_hashes_are_the_same_after_every_update() -> None:
    """Both are stored: another value would start every unfinished run anew, and lose every look-up."""
    assert batch_identity("ab12", {"--model": "m", "--prompt": "{text}"}) == "d9be8884742db8b956f84338b3bd7fe37bdfee7b"
    assert hash_custom_id("row-1").hex() == "5c6e3078b04de4db"


@given(digest=TEXTS, options=OPTIONS)
def test_neither_order_nor_empty_options_change_an_identity(digest: str, options: dict[str, str]) -> None:
    other = dict(reversed(options.items())) | {"--not-given": ""}
    assert batch_identity(digest, other) == batch_identity(digest, {k: v for k, v in options.items() if v})


@given(first=st.tuples(TEXTS, OPTIONS), second=st.tuples(TEXTS, OPTIONS))
def test_what_differs_has_another_identity(
    first: tuple[str, dict[str, str]], second: tuple[str, dict[str, str]]
) -> None:
    given_options = [{name: value for name, value in options.items() if value} for _, options in (first, second)]
    same = first[0] == second[0] and given_options[0] == given_options[1]
    assert (batch_identity(*first) == batch_identity(*second)) is same


def test_a_value_never_reads_as_the_next_name() -> None:
    seen = {
        batch_identity("d", {"ab": "c"}),
        batch_identity("d", {"a": "bc"}),
        batch_identity("da", {"b": "c"}),
        batch_identity("d", {"a": "b", "c": "d"}),
        batch_identity("d", {"a": "b1:c1:d"}),
    }
    assert len(seen) == 5


@given(st.text(max_size=200))
def test_a_custom_ids_hash_is_eight_bytes_and_never_that_of_no_id(custom_id: str) -> None:
    assert len(hash_custom_id(custom_id)) == CUSTOM_ID_HASH_BYTES
    assert hash_custom_id(custom_id) != NO_CUSTOM_ID


def test_half_of_a_surrogate_pair_can_be_hashed() -> None:
    assert hash_custom_id("\ud83c") != hash_custom_id("\ud83d")
    assert batch_identity("d", {"--prompt": "\ud83c"}) != batch_identity("d", {"--prompt": "\ud83d"})


def test_hashes_of_a_segment_stand_one_after_another() -> None:
    assert hash_custom_ids(["row-1", None, "x"]) == hash_custom_id("row-1") + NO_CUSTOM_ID + hash_custom_id("x")
