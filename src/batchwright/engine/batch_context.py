"""What a worker keeps of a batch it holds segments of: its spec, the latest signals, its gate and its allowance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.doubt import OnUncertain
from batchwright.core.failures import FailureKind
from batchwright.core.gate import Gate
from batchwright.core.routes import RouteLanes
from batchwright.core.tenants import LOCAL, Tenant
from batchwright.engine.checked import AnswerCheck
from batchwright.ports.store import BatchSignals

if TYPE_CHECKING:
    from batchwright.engine.desk import LaneDesk


class BatchContext:
    __slots__ = (
        "all_drawn",
        "allowance_picousd",
        "asked_least_picousd",
        "asked_picousd",
        "batch_id",
        "budget_spent",
        "budgeted",
        "check",
        "closing",
        "closing_until_s",
        "deadline_ms",
        "desks",
        "failed_anew",
        "gate",
        "gate_passed",
        "gate_shut",
        "guessed_next",
        "in_flight",
        "key_held",
        "key_short",
        "may_send",
        "paused",
        "recall_ms",
        "round",
        "route_lanes",
        "rows_ended",
        "segments",
        "since_s",
        "spec",
        "spent_picousd",
        "tenant",
        "total",
        "worst_next_picousd",
    )

    def __init__(  # noqa: PLR0915  # a list of what is kept of it
        self, batch_id: str, *, spec: BatchSpec, total: int, round: int, gate: Gate | None, tenant: Tenant = LOCAL
    ) -> None:
        self.batch_id, self.tenant = batch_id, tenant
        self.spec = spec
        self.total, self.round = total, round
        self.route_lanes = RouteLanes(spec.routes, spec.destinations)
        """The lanes of each of its routes that has more than one."""
        self.desks: dict[str, LaneDesk] = {}
        """By the text of a lane, those met so far."""
        self.check = AnswerCheck(spec.answers) if spec.answers is not None else None
        """None: its answers are taken as they come."""
        self.gate = gate
        """None once it is passed, or where there is none."""
        self.gate_passed = False
        """Passed since the last checkpoint: to be written."""
        self.gate_shut = ""
        """Why the first rows all failed; empty while the gate is open."""
        self.failed_anew = spec.stop_after is not None
        """Rows that ended without success were made durable since it was last asked whether they are too many; or it
        was never asked here."""
        self.since_s = 0.0
        """When it was met."""
        self.rows_ended = 0
        """Here, durably, since then."""
        self.segments = 0
        self.in_flight = 0
        self.paused = False
        self.closing: FailureKind | None = None
        self.closing_until_s = 0.0
        """When the grace for rows in flight ends."""
        self.deadline_ms = 0
        self.recall_ms = 0
        """From this moment on nothing of it waits at a batch API any more; 0: no such moment."""
        self.may_send = True
        self.allowance_picousd = 0
        """Budget drawn and free: held by no row in flight."""
        self.all_drawn = False
        """The last draw gave all that cap and key had left."""
        self.asked_picousd = 0
        self.asked_least_picousd = 0
        """And with how much of it a row could go."""
        self.spent_picousd = 0
        """Left the allowance since the last checkpoint."""
        self.worst_next_picousd = 0
        """What the next row needs and the allowance did not have; 0: nothing is wanting."""
        self.guessed_next = False
        """That is a guess, which holds nothing back of what may still be spent."""
        self.budget_spent = False
        """The cap left less than the next row needs."""
        self.budgeted = False
        """The key it was submitted with has, or had, a budget."""
        self.key_short = False
        """It was that budget, not the cap, that left less than was asked for last."""
        self.key_held = False
        """And it may leave more once others that have drawn from it give back."""

    @property
    def needs_allowance(self) -> bool:
        """Whether a row is only sent when an allowance covers it."""
        return self.budgeted or self.spec.max_cost_picousd >= 0

    @property
    def least_next_picousd(self) -> int:
        """With how much the next row may go: a guessed one with what there is, once it would be the only one out."""
        return 1 if self.guessed_next and not self.in_flight and self.worst_next_picousd else self.worst_next_picousd

    @property
    def has_cap(self) -> bool:
        """Whether it has a cap of its own."""
        return self.spec.max_cost_picousd >= 0

    @property
    def doubt_ends_rows(self) -> bool:
        """A row that was reserved when its worker died is not sent again: so none is reserved before it can be sent,
        and none ends that never left."""
        return self.spec.on_uncertain is OnUncertain.FAIL or self.spec.max_attempts == 1

    @property
    def waits_at_gate(self) -> bool:
        """As many rows are out as the gate judges; the others wait for its verdict."""
        return self.gate is not None and self.in_flight >= self.gate.allowed_in_flight(self.total)

    def stands_still(self, now_s: float) -> bool:
        """Whether none of its rows can go for now, whichever lane they wait for: but for a probe, which draws anew."""
        desks = [desk for desk in self.desks.values() if any(line.context is self for line in desk.lines)]
        return bool(desks) and all(desk.blocked or desk.lane.stands_still(now_s) for desk in desks)

    def reserve_bound(self, wanted: int) -> int:
        """While the gate has not been passed no more rows than it judges are reserved."""
        if self.gate is None:
            return wanted
        return min(wanted, self.gate.allowed_in_flight(self.total) - self.in_flight)

    def signal(self, signals: BatchSignals, *, sending_allowed: bool) -> None:
        self.round = signals.round
        self.budgeted = self.budgeted or signals.budgeted
        self.paused = signals.paused
        self.deadline_ms = signals.deadline_ms
        self.may_send = sending_allowed and not signals.paused and signals.closing is None
