"""Lives seeds of the simulated world: `python tools/world.py --seeds 0-5000`, or `--seeds 17` for one alone."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

# In the place of this folder, where this file would be found as `world`.
sys.path[0] = str(Path(__file__).resolve().parent.parent / "tests")

from world.coverage import Coverage
from world.world import World, collect


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-300", help="FIRST-LAST (LAST not included), or one seed")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--coverage", action="store_true", help="print what was met, and how often")
    parser.add_argument("--reports", action="store_true", help="print what workers reported")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    coverage = Coverage()
    failures = 0
    began_s = time.monotonic()
    commits = sends = 0
    for seed in seeds:
        world = World(seed, coverage)
        try:
            world.live()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failures += 1
            print(f"seed {seed}: {error}" if str(error) else f"seed {seed}: {error!r}", flush=True)
            if not options.keep_going:
                traceback.print_exc()
        if options.reports:
            print("\n".join(world.reports))
        commits += world.auditor.commits
        sends += len(world.auditor.sends)
        del world
        collect(seed)
        if failures and not options.keep_going:
            break
    spent_s = time.monotonic() - began_s
    print(f"{len(seeds)} seeds, {failures} failed, {commits:,} commits, {sends:,} sends, {spent_s:.1f} s")
    if options.coverage:
        print(coverage.table())
        print("never met: " + (", ".join(coverage.missing()) or "nothing"))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
