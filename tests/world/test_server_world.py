"""Lives of the world over a database of a real server: fewer seeds, and every fault that a store has there.

One seed alone: `python tools/world.py --postgres --seeds N`.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest

from support.postgres import PostgresServer
from world.coverage import Coverage
from world.planted import PLANTED, Planted, first_broken
from world.server_faults import StoreFault
from world.server_world import ServerWorld
from world.world import many_lives

SEEDS = 16
CHUNK = 4
COVERAGE: dict[int, Coverage] = {}


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_life_over_a_server_breaks_a_law(postgres: PostgresServer, first: int) -> None:
    coverage = COVERAGE[first] = Coverage()
    with many_lives() as collect:
        for seed in range(first, first + CHUNK):
            with postgres.database() as url:
                try:
                    ServerWorld(seed, url, coverage).live()
                except BaseException as error:
                    error.add_note(f"seed {seed}; alone: python tools/world.py --postgres --seeds {seed}")
                    raise
            collect()


def test_these_lives_met_every_fault_of_a_store() -> None:
    if len(COVERAGE) < SEEDS // CHUNK:
        pytest.skip("only some of the seeds were lived")
    total = Coverage()
    for coverage in COVERAGE.values():
        total.add(coverage)
    sys.stdout.write("\n".join(f"{total.counts[fault]:>9,}  {fault}" for fault in StoreFault) + "\n")
    assert [fault for fault in StoreFault if not total.counts[fault]] == []


def test_the_same_seed_is_the_same_life_over_a_server(postgres: PostgresServer) -> None:
    lives = []
    for _ in range(2):
        with postgres.database() as url:
            world = ServerWorld(2, url)
            world.live()
            lives.append((list(world.auditor.sends), world.loop.time(), world.auditor.commits))
    assert lives[0] == lives[1]


FOUND_HERE = [planted for planted in PLANTED if planted.server_seeds]


@pytest.mark.parametrize("planted", FOUND_HERE, ids=lambda planted: planted.plant.__name__)
def test_a_planted_fault_is_found_over_a_server(postgres: PostgresServer, planted: Planted) -> None:
    found = None
    with ExitStack() as stack:
        planted.plant(stack)
        for seed in planted.server_seeds:
            with postgres.database() as url:
                found = first_broken([ServerWorld(seed, url)])
            if found is not None:
                break
    assert found is not None, f"none of {planted.server_seeds} found it"
    assert found.law in planted.laws, f"found by another law: {found}"
