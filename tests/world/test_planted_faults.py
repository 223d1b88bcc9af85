"""The world is itself tested: each of the faults in `world.planted` must be found."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from world.planted import PLANTED, Planted, first_broken
from world.world import World


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__)
def test_a_planted_fault_is_found(planted: Planted) -> None:
    with ExitStack() as stack:
        planted.plant(stack)
        found = first_broken(World(seed) for seed in planted.seeds)
    assert found is not None, f"no seed of {planted.seeds} found it"
    assert found.law in planted.laws, f"found by another law: {found}"
