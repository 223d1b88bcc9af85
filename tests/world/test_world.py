"""Lives of the simulated world: no seed may break a law, and together they must meet everything that is listed.

One seed alone: `python tools/world.py --seeds N`; many more: `python tools/world.py --seeds 0-5000 --coverage`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from batchwright.core import row_map
from batchwright.core.failures import FailureKind
from batchwright.core.row_map import IllegalMove
from world.coverage import Coverage
from world.world import World, many_lives

SEEDS = 375
CHUNK = 25
COVERAGE: dict[int, Coverage] = {}
"""By chunk; the last test asks what all of them met."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_life_breaks_a_law(first: int) -> None:
    coverage = COVERAGE[first] = Coverage()
    with many_lives() as collect:
        for seed in range(first, first + CHUNK):
            try:
                World(seed, coverage).live()
            except BaseException as error:
                error.add_note(f"seed {seed}; alone: python tools/world.py --seeds {seed}")
                raise
            collect()


def test_the_lives_met_everything() -> None:
    if len(COVERAGE) < SEEDS // CHUNK:
        pytest.skip("only some of the seeds were lived")
    total = Coverage()
    for coverage in COVERAGE.values():
        total.add(coverage)
    sys.stdout.write(total.table() + "\n")
    assert total.missing() == [], "a fault, a crash point or a move that no seed met tests nothing"


def test_the_same_seed_is_the_same_life() -> None:
    first, second = World(17), World(17)
    first.live()
    second.live()
    assert list(first.auditor.sends) == list(second.auditor.sends)
    assert first.loop.time() == second.loop.time()
    assert first.auditor.commits == second.auditor.commits


EVERY_BYTE = (row_map.PENDING, row_map.RESERVED, *sorted(row_map.END_BYTES))
OK = row_map.PLAIN_SUCCESS
FAILED = row_map.KIND_BYTES[FailureKind.TIMEOUT]


@pytest.mark.parametrize("byte", EVERY_BYTE)
def test_every_illegal_move_of_a_row_is_refused(byte: int) -> None:
    """The table above `core.row_map`: what is legal from a byte changes it, all else raises and changes nothing."""
    moves: dict[str, tuple[int, Callable[[bytearray], None], int]] = {
        "reserve": (row_map.PENDING, lambda rows: row_map.reserve(rows, 0), row_map.RESERVED),
        "clear": (row_map.RESERVED, lambda rows: row_map.clear(rows, 0), row_map.PENDING),
        "succeed": (row_map.RESERVED, lambda rows: row_map.finish(rows, 0, OK), OK),
        "fail": (row_map.RESERVED, lambda rows: row_map.finish(rows, 0, FAILED), FAILED),
        "restore": (row_map.RESERVED, lambda rows: row_map.restore(rows, 0, OK), OK),
        "finish without an end": (-1, lambda rows: row_map.finish(rows, 0, row_map.PENDING), -1),
        "restore a failure": (-1, lambda rows: row_map.restore(rows, 0, FAILED), -1),
    }
    for name, (legal_from, move, leads_to) in moves.items():
        rows = bytearray([byte])
        if byte == legal_from:
            move(rows)
            assert rows[0] == leads_to, name
        else:
            with pytest.raises(IllegalMove):
                move(rows)
            assert rows[0] == byte, name


@pytest.mark.parametrize("byte", [row_map.PENDING, row_map.RESERVED])
def test_a_row_that_has_not_ended_is_never_opened_again(byte: int) -> None:
    with pytest.raises(IllegalMove):
        row_map.reopen(bytes([byte]), frozenset({byte}))
