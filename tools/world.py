"""Lives seeds of the simulated world: `python tools/world.py --seeds 0-5000`, or `--seeds 17` for one alone."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from contextlib import ExitStack, closing
from pathlib import Path

# In the place of this folder, where this file would be found as `world`.
sys.path[0] = str(Path(__file__).resolve().parent.parent / "tests")

from support.postgres import PostgresServer  # noqa: E402
from world.coverage import Coverage  # noqa: E402
from world.object_faults import ObjectFault  # noqa: E402
from world.object_world import ObjectServerWorld, ObjectWorld  # noqa: E402
from world.server_faults import StoreFault  # noqa: E402
from world.server_world import ServerWorld  # noqa: E402
from world.world import World, many_lives  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-300", help="FIRST-LAST (LAST not included), or one seed")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--coverage", action="store_true", help="print what was met, and how often")
    parser.add_argument("--reports", action="store_true", help="print what workers reported")
    parser.add_argument("--postgres", action="store_true", help="over a PostgreSQL server, with what befalls one")
    parser.add_argument("--objects", action="store_true", help="bodies in an object store, with what befalls one")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    coverage = Coverage()
    failed: list[int] = []
    commits = sends = 0
    began_s = time.process_time()
    with ExitStack() as stack, many_lives() as collect:
        server = stack.enter_context(closing(PostgresServer())) if options.postgres else None
        for seed in seeds:
            url = server.new_database() if server is not None else ""
            world = _world(seed, url, coverage, objects=options.objects)
            try:
                world.live()
            except Exception as error:
                failed.append(seed)
                print(f"seed {seed}: {str(error) or repr(error)}", flush=True)
                if not options.keep_going:
                    traceback.print_exc()
            if options.reports:
                print("\n".join(world.reports))
            commits += world.auditor.commits
            sends += len(world.auditor.sends)
            if failed and not options.keep_going:
                break
            collect()
            if server is not None:
                server.drop(url)
    spent_s = time.process_time() - began_s
    print(
        f"{len(seeds)} seeds, {len(failed)} failed, {commits:,} commits, {sends:,} sends, {spent_s:.1f} s of processor"
    )
    if options.coverage:
        print(coverage.table())
        for faults in (*((StoreFault,) if options.postgres else ()), *((ObjectFault,) if options.objects else ())):
            print("\n".join(f"{coverage.counts[fault]:>9,}  {fault}" for fault in faults))
        print("never met: " + (", ".join(coverage.missing()) or "nothing"))
    return 1 if failed else 0


def _world(seed: int, url: str, coverage: Coverage, *, objects: bool) -> World:
    if url:
        return ObjectServerWorld(seed, url, coverage) if objects else ServerWorld(seed, url, coverage)
    return ObjectWorld(seed, coverage) if objects else World(seed, coverage)


if __name__ == "__main__":
    raise SystemExit(main())
