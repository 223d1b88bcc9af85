"""Lives of the world whose bodies lie in an object store: each of its faults is met, and no law is broken.

One seed alone: `python tools/world.py --objects --seeds N`, over a server with `--postgres` too.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest

from support.postgres import PostgresServer
from world.coverage import Coverage
from world.object_faults import ObjectFault
from world.object_world import ObjectServerWorld, ObjectWorld
from world.planted import PLANTED_OUTSIDE, Planted, first_broken
from world.world import many_lives

SEEDS = 48
CHUNK = 8
SERVER_SEEDS = 6
COVERAGE: dict[int, Coverage] = {}


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_life_with_an_object_store_breaks_a_law(first: int) -> None:
    coverage = COVERAGE[first] = Coverage()
    with many_lives() as collect:
        for seed in range(first, first + CHUNK):
            try:
                ObjectWorld(seed, coverage).live()
            except BaseException as error:
                error.add_note(f"seed {seed}; alone: python tools/world.py --objects --seeds {seed}")
                raise
            collect()


def test_these_lives_met_every_fault_of_an_object_store() -> None:
    if len(COVERAGE) < SEEDS // CHUNK:
        pytest.skip("only some of the seeds were lived")
    total = Coverage()
    for coverage in COVERAGE.values():
        total.add(coverage)
    sys.stdout.write("\n".join(f"{total.counts[fault]:>9,}  {fault}" for fault in ObjectFault) + "\n")
    assert [fault for fault in ObjectFault if not total.counts[fault]] == []


def test_no_life_over_a_server_and_an_object_store_breaks_a_law(postgres: PostgresServer) -> None:
    with many_lives():
        for seed in range(SERVER_SEEDS):
            with postgres.database() as url:
                try:
                    ObjectServerWorld(seed, url).live()
                except BaseException as error:
                    error.add_note(f"seed {seed}; alone: python tools/world.py --objects --postgres --seeds {seed}")
                    raise


def test_the_same_seed_is_the_same_life_with_an_object_store() -> None:
    first, second = ObjectWorld(8), ObjectWorld(8)
    first.live()
    second.live()
    assert list(first.auditor.sends) == list(second.auditor.sends)
    assert first.loop.time() == second.loop.time()
    assert first.house.held == second.house.held


@pytest.mark.parametrize("planted", PLANTED_OUTSIDE, ids=lambda planted: planted.plant.__name__)
def test_a_planted_fault_is_found_with_an_object_store(planted: Planted) -> None:
    with ExitStack() as stack:
        planted.plant(stack)
        found = first_broken(ObjectWorld(seed) for seed in planted.seeds)
    assert found is not None, f"no seed of {planted.seeds} found it"
    assert found.law in planted.laws, f"found by another law: {found}"
