"""A worker's commits, one after another: each is tried until it is known what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchwright.core.errors import AWAY_MAX_S, StoreAway, StoreError, WorkerGone, WrongState
from batchwright.engine.checkpoint import Landed, Proposal, commit
from batchwright.engine.outages import Who
from batchwright.engine.traces import checkpoint_span

if TYPE_CHECKING:
    from batchwright.engine.worker import Worker

COMMIT_TRIES = 5
"""A commit that failed is tried again so often, sending nothing meanwhile, before the worker gives up. Tries while a
database or the object store of its bodies is away, or the disk is full, do not count, unless the worker was told to
stop."""
HURRIED_AT_MOST = 8
"""Checkpoints in an interval that desks without reserved rows bring about. What each reserves doubles what the desk
has, so that after a few of them rows last for the interval."""
RESERVED_S = 1.0
"""Where commits are slow rows are reserved for the time between them, up to this: a store that hangs for seconds is not
to leave all the more in doubt."""
HURRIED_S = 0.02
"""And no sooner than after this, if the interval is not shorter."""


class Landing:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._parts = worker.parts
        self._clock = worker.parts.clock
        self.number = 0
        """Of the last checkpoint that landed."""
        self.landed_ms = 0
        """When that was, by the calendar; 0: none has landed."""
        self.lasted_s = 0.0
        """How long its commit took."""
        self.interval_s = worker.settings.checkpoint_s
        """For how long rows are reserved, twice over."""
        self.next_s = 0.0
        """When the next one is due, unless it is urgent."""
        self.soonest_s = 0.0
        """When one is due that a desk without a reserved row waits for."""
        self._away_since_s: float | None = None
        """When a commit first found one of what it needs away; None: not so, as far as is known."""

    async def land(self, proposal: Proposal) -> Landed:
        """Commits, and where that fails tries again: the same checkpoint, sending nothing meanwhile.

        Raises StoreError where it cannot be had. A commit whose reply was lost although it landed cannot be told from
        its result any more (which segments were claimed?), so the worker ends (WorkerGone); its segments are taken over
        like those of any lost worker.
        """
        store = self._parts.store
        tried = waited = 0
        while True:
            started_s = self._clock.now_s()
            try:
                landed = await self._parts.writer.do(lambda: commit(store, proposal))
            except WrongState as error:
                # Its number is used up: an earlier try did land, and what came of it cannot be told any more.
                raise WorkerGone(f"a commit's reply was lost: {error}; nothing of it is lost") from error
            except StoreError as error:
                self._worker.sender.sending = False
                self._trace(proposal, None, self._clock.now_s() - started_s)
                if self._waits_for_it(proposal.number, error):
                    waited += 1
                else:
                    tried += 1
                    self._tell(
                        error, f"checkpoint {proposal.number} failed ({error}); it is tried {COMMIT_TRIES} times"
                    )
                if await self._has_landed(proposal.number):
                    raise WorkerGone(f"a commit's reply was lost: {error}; nothing of it is lost") from error
                if tried == COMMIT_TRIES:
                    raise
                await self._clock.sleep(self._worker.settings.heartbeat_s / 10 * min(tried + waited, COMMIT_TRIES))
                continue
            self._away_since_s = None
            if over := self._parts.outages.passed(Who.CHECKPOINT, self._clock.now_s()):
                self._parts.report(f"{over}; the worker goes on")
            self.number = proposal.number
            self.lasted_s = lasted_s = self._clock.now_s() - started_s
            self.landed_ms = self._clock.now_ms()
            self._parts.figures.checkpoints.add(lasted_s)
            self._trace(proposal, landed, lasted_s)
            interval_s = self._worker.settings.checkpoint_s
            self.interval_s = max(interval_s, min(3 * lasted_s, RESERVED_S))
            self.next_s = started_s + max(interval_s, 3 * lasted_s)
            hurried_s = min(interval_s, max(interval_s / HURRIED_AT_MOST, HURRIED_S))
            self.soonest_s = started_s + max(hurried_s, 3 * lasted_s)
            return landed

    def _waits_for_it(self, number: int, error: StoreError) -> bool:
        """Whether a commit that failed so is tried again without being counted. Told as an outage is."""
        if not isinstance(error, StoreAway) or self._worker.stopping:
            return False
        now_s = self._clock.now_s()
        if self._away_since_s is None:
            self._away_since_s = now_s
        self._tell(
            error,
            f"checkpoint {number} waits for {error.awaited}, for {AWAY_MAX_S / 60:g} minutes at most; nothing is "
            f"sent meanwhile, and what was answered is kept: {error}",
        )
        return now_s - self._away_since_s < AWAY_MAX_S

    def _tell(self, error: StoreError, text: str) -> None:
        # It alone says what becomes of rows.
        if line := self._parts.outages.met(Who.CHECKPOINT, error, text, now_s=self._clock.now_s(), always=True):
            self._parts.report(line)

    def _trace(self, proposal: Proposal, landed: Landed | None, duration_s: float) -> None:
        if (trace := self._parts.trace) is not None:
            trace(checkpoint_span(proposal, landed, ended_ms=self._clock.now_ms(), duration_s=duration_s))

    async def _has_landed(self, number: int) -> bool:
        """Whether a checkpoint landed although its commit failed; if that cannot be told, it is tried again, and a
        number that was used up already is refused."""
        store, identity = self._parts.store, self._worker.identity
        try:
            return await self._parts.writer.do(lambda: store.checkpoint_number(identity)) >= number
        except StoreAway:
            return False  # said of the commit already
        except StoreError as error:
            self._parts.report(f"checkpoint {number}: whether it landed could not be read ({error})")
            return False
