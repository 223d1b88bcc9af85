"""What one seed chooses: the batches, the machines, what goes wrong and what the user does. Small worlds mostly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from batchwright.core.batch_spec import BatchSpec, Destination, LaneKey, RouteStep
from batchwright.core.doubt import OnUncertain
from batchwright.core.errors import Finding
from batchwright.core.gate import GateRule
from batchwright.core.records import InputRow
from batchwright.core.routes import find_route
from batchwright.core.rows import SourceRow
from world.coverage import CRASHES, Fault
from world.vendors import FREE, INPUT_PICOUSD, LASTING, OUTPUT_PICOUSD, OUTPUT_TOKENS, PRICED, STATED, UNPRICED, Period

MODELS = (PRICED, STATED, UNPRICED, FREE)
VENDORS = ("north", "south")
ROUTE = "any"
"""The model name of ours that the rows of some batches give."""
ROW_FAULTS = tuple(fault for fault in list(Fault)[: list(Fault).index(Fault.NO_USAGE)] if fault not in LASTING)
"""What can happen to a single attempt."""


@dataclass
class BatchPlan:
    tag: str
    rows: int
    spec: BatchSpec
    submit_at_s: float
    deadline_s: float
    models: tuple[str, ...]
    vendors: tuple[str, ...]
    retries: int
    wrong: bool
    """Every row of it is refused in the same way."""
    poison: frozenset[int]
    invalid: frozenset[int]
    repeats: dict[int, int] = field(default_factory=dict)
    """Rows that share the outcome of an earlier one, and which."""

    def chunks(self, batch_id: str) -> Iterator[list[SourceRow]]:
        """Rows that say which batch and row they are."""
        chunk: list[SourceRow] = []
        for index in range(self.rows):
            chunk.append(self._row(batch_id, index))
            if len(chunk) == 16:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def ways(self) -> dict[int, frozenset[tuple[str, str]]]:
        """By row: the vendors it may go to, and the model that it is there."""
        steps = frozenset((step.vendor, step.model) for step in self.spec.routes.get(ROUTE, ()))
        return {index: steps or frozenset({self._own_way(index)}) for index in range(self.rows)}

    def _own_way(self, index: int) -> tuple[str, str]:
        return self.vendors[index * 5 % len(self.vendors)], self.models[index * 7 % len(self.models)]

    def _row(self, batch_id: str, index: int) -> SourceRow:
        vendor, model = self._own_way(index)
        route = find_route(ROUTE, self.spec.destinations, self.spec.routes) if self.spec.routes else None
        if route is not None:
            vendor, _, model = route.begins_with(index).lane
        extra = ""
        if index in self.poison:
            extra += ', "poison": true'
        if self.wrong:
            extra += ', "wrong": true'
        body = f'{{"batch": "{batch_id}", "index": {index}, "model": "{model}"{extra}}}'
        row = InputRow(body=body.encode(), custom_id=f"{self.tag}-{index}", model=model, output_tokens=OUTPUT_TOKENS)
        row.route = ROUTE if route is not None else ""
        row.shares = self.repeats.get(index, -1)
        if index in self.invalid:
            return SourceRow(row=row, finding=Finding(line=index + 1, code="no_messages", message="simulated"))
        return SourceRow(row=row, lane=str(LaneKey(vendor, "", model)))


@dataclass(eq=False)
class SeatPlan:
    """A place where a worker runs, again and again."""

    name: str
    host: str
    fresh_names: bool = False
    """Each process has a name of its own; else one name and new incarnations."""
    lacks: frozenset[str] = frozenset()
    """Vendors for which its first processes have no key."""
    one_batch: bool = False
    """Each process works on one batch alone and ends with it."""
    until_idle: bool = False


@dataclass
class Plan:
    seed: int
    batches: list[BatchPlan]
    seats: list[SeatPlan]
    hosts: tuple[str, ...]
    trouble_until_s: float
    segment_rows: int
    write_bytes: int
    reopen_step: int
    bounds: dict[str, int]
    """Bounds of the product, by the names in `world.BOUNDS`, made so small that a small world meets them."""
    lease_s: float
    checkpoint_s: float
    concurrency: int
    rates: dict[Fault, float]
    periods: dict[str, list[Period]]
    latency_s: tuple[float, float]
    commit_s: float
    crash_rate: float
    """Chance of a crash or an error at one transaction."""
    favourite: str
    """The crash point that this seed makes happen."""
    kills: list[float]
    stalls: float
    """Chance that one commit hangs for longer than the lease."""
    jumps: list[tuple[float, str, int]]
    """(when, host, by how many ms)."""
    twins: list[float]
    """When a second incarnation of a living name starts."""
    user: list[tuple[float, Fault]]
    unavailable: float
    """Chance that a vendor cannot be opened."""
    no_usage: float
    """Share of answers without usage."""

    @property
    def calm_s(self) -> float:
        """So long after the trouble every batch must have ended: each row once a round, one after another, and more."""
        return 1_200.0 + self.latency_s[1] * sum(batch.rows * (1 + batch.retries) for batch in self.batches)


def make_plan(seed: int) -> Plan:
    chance = Random(seed)
    count = chance.choice((1, 1, 1, 2, 2, 3))
    batches = [_batch(chance, number, count) for number in range(count)]
    largest = max(batch.rows for batch in batches)
    hosts = ("h1", "h2") if chance.random() < 0.5 else ("h1",)
    lease_s = chance.choice((6.0, 10.0, 20.0))
    trouble_s = chance.uniform(8.0, 45.0)
    seats = [
        SeatPlan(
            name=f"w{number}",
            host=chance.choice(hosts),
            fresh_names=chance.random() < 0.5,
            lacks=frozenset({chance.choice(VENDORS)}) if chance.random() < 0.05 else frozenset(),
            one_batch=chance.random() < 0.25,
            until_idle=chance.random() < 0.1,
        )
        for number in range(chance.choice((1, 2, 2, 3)))
    ]
    _route(Random(seed * 31 + 7), batches)
    _repeat(Random(seed * 37 + 11), batches)
    stormy = chance.random() < 0.6
    plan = Plan(
        seed=seed,
        batches=batches,
        seats=seats,
        hosts=hosts,
        trouble_until_s=trouble_s,
        segment_rows=max(largest // 30, chance.choice((1, 3, 10, 25, 60))) if largest < 800 else 250,
        write_bytes=chance.choice((1, 2_000, 4_000_000)),
        reopen_step=chance.choice((1, 3, 1_000)),
        bounds=_bounds(chance) | {"merge_above": 1 if seed % 2 else 8},
        lease_s=lease_s,
        checkpoint_s=chance.choice((0.1, 0.4, 1.0)),
        concurrency=chance.choice((1, 4, 16, 64)),
        rates={fault: chance.random() * 0.3 for fault in chance.sample(ROW_FAULTS, chance.choice((0, 1, 2, 4)))},
        periods=_periods(chance, trouble_s),
        latency_s=chance.choice(((0.05, 0.3), (0.2, 3.0), (1.0, 8.0))),
        commit_s=chance.choice((0.002, 0.05, 0.5)),
        crash_rate=chance.choice((0.0, 0.005, 0.03)) if stormy else 0.0,
        favourite=CRASHES[seed % len(CRASHES)] if stormy else "",
        kills=[chance.uniform(1.0, trouble_s) for _ in range(chance.choice((0, 0, 1, 3)))] if stormy else [],
        stalls=chance.choice((0.0, 0.0, 0.02)) if stormy else 0.0,
        jumps=[
            (
                chance.uniform(1.0, trouble_s),
                chance.choice(hosts),
                int(chance.choice((1, -1)) * 10 ** chance.uniform(3, 7)),
            )
            for _ in range(chance.choice((0, 0, 0, 2)))
        ]
        if stormy
        else [],
        twins=[chance.uniform(1.0, trouble_s)] if stormy and chance.random() < 0.15 else [],
        user=_user(chance, trouble_s),
        unavailable=chance.choice((0.0, 0.0, 0.0, 0.5)),
        no_usage=chance.choice((0.0, 0.0, 0.2)),
    )
    if plan.concurrency == 1 and largest > 60:
        plan.latency_s = (0.05, 0.3)  # a long life of one row after another shows nothing more
    _make_room(chance, plan)
    if any(period.fault in LASTING for periods in plan.periods.values() for period in periods):
        for batch in plan.batches:
            batch.wrong = False  # only a success ends such a pause: a row a probe would take hours
    return plan


def _route(chance: Random, batches: list[BatchPlan]) -> None:
    """Some batches' rows may go to either vendor."""
    for batch in batches:
        if chance.random() >= 0.3:
            continue
        vendors = chance.sample(VENDORS, len(VENDORS))
        models = [chance.choice(batch.models) for _ in vendors]
        weights = chance.choice(((1, 0), (1, 0), (1, 1), (3, 1)))
        steps = tuple(
            RouteStep(vendor=vendor, model=model, weight=weight)
            for vendor, model, weight in zip(vendors, models, weights, strict=True)
        )
        batch.spec = msgspec.structs.replace(batch.spec, routes={ROUTE: steps})


def _repeat(chance: Random, batches: list[BatchPlan]) -> None:
    """Some batches have rows that share the outcome of an earlier one, near or far."""
    for batch in batches:
        if chance.random() >= 0.3:
            continue
        leaders = [0]
        for index in range(1, batch.rows):
            if index in batch.invalid or index in batch.poison or chance.random() < 0.5:
                leaders.append(index)
                continue
            leader = chance.choice(leaders[-3:] if chance.random() < 0.7 else leaders)
            if leader not in batch.invalid:
                batch.repeats[index] = leader
        batch.spec = msgspec.structs.replace(batch.spec, dedup=True)


def _make_room(chance: Random, plan: Plan) -> None:
    """Sees to it that the seed's own crash point is come by."""
    call = plan.favourite.rpartition(": ")[2]
    soon_s = plan.trouble_until_s / 2
    if call in ("add_segments", "close_intake"):
        plan.write_bytes = 1
    elif call in ("request_close", "close_step"):
        plan.user.append((chance.uniform(0.5, soon_s), Fault.CANCEL))
    elif call in ("pause_lane", "clear_lane"):
        for vendor in VENDORS:
            plan.periods[vendor].append(Period(START_S, START_S + 30.0, Fault.AUTH))
        plan.trouble_until_s = max(plan.trouble_until_s, 48.0)
        plan.user.extend((moment_s, Fault.RESUME) for moment_s in range(3, 46, 2))
    elif call == "reopen":
        for batch in plan.batches:
            batch.retries = max(1, batch.retries)
            batch.deadline_s = soon_s
    elif call == "expire_due":
        plan.batches[0].deadline_s = soon_s
    elif call == "mark_dead":
        plan.kills.append(soon_s / 2)
    elif call == "end_worker":
        plan.user.extend((plan.trouble_until_s * share, Fault.STOP_GRACE) for share in (0.3, 0.5, 0.8))


def _bounds(chance: Random) -> dict[str, int]:
    bounds = {
        "open_segments": chance.choice((1, 2, 4)),
        "record_bytes": chance.choice((1, 100, 400)),
        "transaction_bytes": chance.choice((1, 300, 2_000)),
        "reserve_min": chance.choice((1, 4)),
        "reserve_max": chance.choice((1, 8)),
        "flight_bytes": chance.choice((1, 300)),
        "answer_bytes": chance.choice((1, 300)),
        "input_bytes": chance.choice((1, 400)),
    }
    return {name: bounds[name] for name in sorted(bounds) if chance.random() < 0.12}


def _batch(chance: Random, number: int, count: int) -> BatchPlan:
    size = chance.random()
    if size < 0.6:
        rows = chance.randint(1, 40)
    elif size < 0.93:
        rows = chance.randint(40, 150)
    elif size < 0.993 or count > 1:
        rows = chance.randint(150, 500)
    else:
        rows = chance.randint(1_000, 3_000)
    capped = chance.random() < 0.35
    models = tuple(chance.sample((PRICED, STATED, FREE) if capped else MODELS, chance.choice((1, 1, 2))))
    vendors = tuple(chance.sample(VENDORS, chance.choice((1, 1, 2))))
    worst = 80 * INPUT_PICOUSD + OUTPUT_TOKENS * OUTPUT_PICOUSD
    tag = "batch_" + f"{number}{chance.getrandbits(64):x}".ljust(22, "0")[:22]
    spec = BatchSpec(
        name="rows.jsonl",
        destinations=tuple(Destination(vendor=vendor, base_url="http://simulated.test/v1") for vendor in VENDORS),
        max_attempts=chance.choice((1, 2, 3, 5, 5)),
        on_uncertain=chance.choice((OnUncertain.RETRY, OnUncertain.RETRY, OnUncertain.FAIL)),
        gate=chance.choice(tuple(GateRule)),
        rpm=chance.choice((0, 0, 0, 0, 0, 600)),
        tpm=chance.choice((0, 0, 0, 0, 0, 100_000)),
        max_cost_picousd=int(worst * rows * chance.choice((0.1, 0.6, 1.2, 3.0))) + worst if capped else -1,
    )
    return BatchPlan(
        tag=tag,
        rows=rows,
        spec=spec,
        submit_at_s=0.0 if not number else chance.uniform(0.0, 10.0),
        deadline_s=chance.choice((0.0, 0.0, 0.0, 5.0, 15.0, 40.0)),
        models=models,
        vendors=vendors,
        retries=chance.choice((0, 0, 1, 1, 2)),
        wrong=chance.random() < 0.08,
        poison=frozenset({chance.randrange(rows)}) if chance.random() < 0.06 else frozenset(),
        invalid=frozenset(chance.sample(range(rows), min(rows, chance.choice((1, 3)))))
        if chance.random() < 0.1
        else frozenset(),
    )


def _periods(chance: Random, trouble_s: float) -> dict[str, list[Period]]:
    periods: dict[str, list[Period]] = {vendor: [] for vendor in VENDORS}
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        start_s = chance.uniform(0.0, trouble_s)
        fault = chance.choice(
            (
                Fault.OVERLOADED,
                Fault.UNREACHABLE,
                Fault.DROPPED_UNPAID,
                Fault.RATE_LIMITED,
                Fault.QUOTA_EXHAUSTED,
                Fault.AUTH,
            )
        )
        length_s = chance.choice((3.0, 15.0, 150.0))
        periods[chance.choice(VENDORS)].append(Period(START_S + start_s, START_S + start_s + length_s, fault))
    return periods


def _user(chance: Random, trouble_s: float) -> list[tuple[float, Fault]]:
    acts = [
        (
            chance.uniform(0.5, trouble_s),
            chance.choice((Fault.CANCEL, Fault.PAUSE, Fault.PAUSE, Fault.RESUME, Fault.RESUME, Fault.SET_CAP)),
        )
        for _ in range(chance.choice((0, 0, 0, 1, 2, 4)))
    ]
    acts += [
        (chance.uniform(2.0, trouble_s), chance.choice((Fault.STOP_GRACE, Fault.STOP_NOW)))
        for _ in range(chance.choice((0, 0, 1, 2)))
    ]
    return sorted(acts, key=lambda act: act[0])


START_S = 1_000.0
"""The loop's time when a world begins: 0 means "not known" in some places."""
