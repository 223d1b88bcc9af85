"""Any sequence of operations keeps the laws: workers that live, die and come back, rounds, closing, pauses, budgets."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from batchwright.core import row_map
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.doubt import OnUncertain
from batchwright.core.errors import WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.row_map import PENDING, RESERVED
from batchwright.ports.store import AllowanceRequest, BatchRow, CheckpointResult, Release
from batchwright.store.open import open_store
from support.store_drive import FAILED, OK, WORST, Held, Worker, accept, new_segment, spec

ENDS = st.sampled_from([OK, OK, FAILED, 17])
CLOSING = st.sampled_from(sorted(row_map.CLOSING_KINDS))
LANES = st.sampled_from(["a", "b", "a\nb"])
CAP = 12 * WORST


@dataclass
class Hand:
    """A worker and what it holds; a dead one goes on as if it did not know."""

    worker: Worker
    held: list[Held] = field(default_factory=list)
    drawn: dict[str, int] = field(default_factory=dict)


class AnyOrder(RuleBasedStateMachine):
    hands = Bundle("hands")

    def __init__(self) -> None:
        super().__init__()
        self.store = open_store(":memory:")
        self.now_ms = 10_000
        self.names = 0
        self.batches: dict[str, bool] = {}
        """By id: whether it has a cap."""
        self.settled: dict[str, BatchRow] = {}
        self.counts: dict[str, tuple[int, dict[int, int]]] = {}

    def teardown(self) -> None:
        self.store.close()

    # intake ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.batches) < 4)
    @rule(
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        lanes=LANES,
        refused=st.booleans(),
        policy=st.sampled_from(OnUncertain),
        capped=st.booleans(),
        deadline=st.sampled_from([0, 0, 60_000]),
    )
    def submit(
        self, sizes: list[int], lanes: str, refused: bool, policy: OnUncertain, capped: bool, deadline: int
    ) -> None:
        batch_id = f"batch_{len(self.batches)}"
        first = 0
        segments = []
        for number, rows in enumerate(sizes):
            bad = [0] if refused and number == 0 else []
            segments.append(new_segment(number, rows, first_index=first, lanes=lanes, refused=bad))
            first += rows
        of = spec(cap=CAP if capped else -1, policy=policy, max_attempts=3)
        accept(self.store, batch_id, segments, of, deadline_ms=deadline and self.now_ms + deadline)
        self.store.close_intake(batch_id, self.now_ms)
        self.batches[batch_id] = capped

    # workers -----------------------------------------------------------------------------------------------------

    @rule(target=hands, name=st.sampled_from(["w", "v"]))
    def start(self, name: str) -> Hand:
        self.names += 1
        return Hand(Worker(self.store, name, str(self.names), now_ms=self.now_ms))

    @rule(hand=hands)
    def die(self, hand: Hand) -> None:
        self.store.mark_dead([hand.worker.id])

    @rule(target=hands, hand=consumes(hands))
    def end(self, hand: Hand) -> object:
        self.store.end_worker(hand.worker.id)
        return multiple()

    @rule(hand=hands, limit=st.integers(1, 3), exclude=st.sampled_from(["", "a", "b"]))
    def claim(self, hand: Hand, limit: int, exclude: str) -> None:
        pairs = frozenset((batch_id, exclude) for batch_id in self.batches)
        hand.held += hand.worker.claim(limit=limit, now_ms=self.now_ms, exclude=pairs)

    @rule(hand=hands, which=st.integers(0, 9), rows=st.integers(1, 4))
    def reserve(self, hand: Hand, which: int, rows: int) -> None:
        one = _pick(hand, which)
        if one is None:
            return
        chosen = [row for row, byte in enumerate(one.row_map) if byte == PENDING][:rows]
        if self.batches[one.key.batch_id] and chosen:
            asked = AllowanceRequest(
                batch_id=one.key.batch_id, picousd=len(chosen) * WORST, minimum_picousd=len(chosen) * WORST
            )
            if not hand.worker.checkpoint(allowances=[asked], now_ms=self.now_ms).allowances[one.key.batch_id]:
                return
        self._land(hand, one, hand.worker.checkpoint(one.reserve(*chosen).change(), now_ms=self.now_ms))

    @rule(hand=hands, which=st.integers(0, 9), rows=st.integers(1, 4), end=ENDS, noted=st.booleans())
    def answer(self, hand: Hand, which: int, rows: int, end: int, noted: bool) -> None:
        one = _pick(hand, which)
        if one is None:
            return
        out = [row for row, byte in enumerate(one.row_map) if byte == RESERVED][:rows]
        spent = {}
        if noted:
            one.note(*out)
        else:
            one.answer(*out, byte=end)
            spent = {one.key.batch_id: len(out) * WORST} if self.batches[one.key.batch_id] else {}
        self._land(hand, one, hand.worker.checkpoint(one.change(), now_ms=self.now_ms, spent=spent))

    @rule(hand=hands, which=st.integers(0, 9), parked=st.booleans(), lanes=st.sampled_from(["", "a"]))
    def give_back(self, hand: Hand, which: int, parked: bool, lanes: str) -> None:
        one = _pick(hand, which)
        if one is None:
            return
        out = [row for row, byte in enumerate(one.row_map) if byte == RESERVED]
        change = one.unreserve(*out).change(
            release=Release.PARKED if parked else Release.WAITING, not_before_ms=self.now_ms + 5_000, lanes=lanes
        )
        back = [AllowanceRequest(batch_id=one.key.batch_id, picousd=-len(out) * WORST)]
        hand.worker.checkpoint(change, now_ms=self.now_ms, allowances=back if self.batches[one.key.batch_id] else ())
        hand.held.remove(one)

    def _land(self, hand: Hand, one: Held, result: CheckpointResult) -> None:
        signal = result.signals.get(one.key.batch_id)
        if one.key in result.lost or not row_map.count_open(one.row_map):
            hand.held.remove(one)
        elif signal is not None and signal.closing is not None:
            out = one.row_map.count(RESERVED)
            back = [AllowanceRequest(batch_id=one.key.batch_id, picousd=-out * WORST)]
            hand.worker.checkpoint(
                one.change(closed_as=signal.closing),
                now_ms=self.now_ms,
                allowances=back if self.batches[one.key.batch_id] else (),
            )
            hand.held.remove(one)

    # batches -----------------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 3), kind=CLOSING)
    def ask_to_close(self, which: int, kind: FailureKind) -> None:
        batch_id = f"batch_{which}"
        if batch_id in self.batches and batch_id not in self.settled:
            self.store.request_close(batch_id, kind, self.now_ms)

    @rule(limit=st.integers(1, 3))
    def sweep(self, limit: int) -> None:
        for batch_id in self.store.expire_due(self.now_ms):
            self.store.close_step(batch_id, self.now_ms, limit)
        self.store.sweep_step(self.now_ms, keep_superseded_ms=1_000)

    @rule(which=st.integers(0, 3), chosen=st.sets(st.sampled_from([*sorted(row_map.FAILURE_BYTES), 17]), min_size=1))
    def reopen(self, which: int, chosen: set[int]) -> None:
        batch_id = f"batch_{which}"
        if batch_id not in self.batches:
            return
        try:
            reopened = self.store.reopen(batch_id, frozenset(chosen))
        except WrongState:
            assert batch_id not in self.settled
            return
        if reopened.rows:
            assert self.store.get_batch(batch_id).round == reopened.round
            del self.settled[batch_id]

    @rule(which=st.integers(0, 3), pause=st.booleans())
    def pause_or_resume(self, which: int, pause: bool) -> None:
        batch_id = f"batch_{which}"
        if batch_id not in self.batches or batch_id in self.settled:
            return
        if pause:
            self.store.pause_batch(batch_id, Pause(cause=PauseCause.USER, reason="", since_ms=self.now_ms))
        else:
            self.store.resume_batch(batch_id)

    @rule(by=st.sampled_from([1_000, 10_000, 100_000]))
    def wait(self, by: int) -> None:
        self.now_ms += by

    # laws --------------------------------------------------------------------------------------------------------

    @invariant()
    def laws_hold(self) -> None:
        for batch_id in self.batches:
            assert self.store.check(batch_id) == []
            row = self.store.get_batch(batch_id)
            if self.batches[batch_id]:
                assert row.budget_taken_picousd <= CAP
            self._counts_only_grow(row)
            if row.facts.settled:
                self._stands_still(row)

    def _counts_only_grow(self, row: BatchRow) -> None:
        round_, before = self.counts.get(row.batch_id, (row.round, {}))
        if round_ == row.round:
            assert all(row.tally.counts.get(byte, 0) >= rows for byte, rows in before.items())
        self.counts[row.batch_id] = (row.round, row.tally.counts)

    def _stands_still(self, row: BatchRow) -> None:
        first = self.settled.setdefault(row.batch_id, row)
        assert (row.tally.counts, row.tally.cost_picousd, row.settled_at_ms) == (
            first.tally.counts,
            first.tally.cost_picousd,
            first.settled_at_ms,
        )


def _pick(hand: Hand, which: int) -> Held | None:
    return hand.held[which % len(hand.held)] if hand.held else None


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=25, stateful_step_count=40, suppress_health_check=list(HealthCheck))
