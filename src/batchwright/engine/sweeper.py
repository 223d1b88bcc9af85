"""What nobody else does: ends what is due, frees what the dead held, deletes what was superseded. In bounded steps.

`work` and `serve` sweep every few seconds; every other command that opens the store makes one pass first, so that a
deadline which passed while everything was down still counts.
"""

from __future__ import annotations

from batchwright.core.worker_id import WorkerId
from batchwright.ports.locks import Locks
from batchwright.ports.store import Store, WorkerRow

SWEEP_EVERY_S = 5.0
SWEEP_SOONEST_S = 0.2
"""After the last pass, whatever is due."""
SWEEP_LEASE_MS = 15_000
BLIND_MS = 10_000
"""Between two passes that succeeded; two could not be made then."""
OLD_BATCHES_MAX = 20
"""Batches past their retention that one pass deletes."""
ELSEWHERE_MS = 24 * 3_600_000
"""What a process elsewhere began to take in and has not ended by then is given up: nothing here proves its end."""
STEPS_MAX = 20
"""Of each kind in one pass: a pass is short, and the next one goes on."""


def worker_lock_name(worker: WorkerId) -> str:
    """The lock a worker's process holds for as long as it lives."""
    return f"worker-{worker.name}-{worker.incarnation}"


def run_lock_name(batch_id: str) -> str:
    """The lock of whoever takes a batch in, or owes it its output."""
    return batch_id


class Sweeper:
    def __init__(
        self, store: Store, *, owner: WorkerId, locks: Locks, host: str, lease_ms: int, shared: bool = False
    ) -> None:
        """`host`: where these locks are, as workers there say it. `shared`: processes elsewhere have the same store,
        and of what they hold no lock here tells."""
        self._shared = shared
        self._store = store
        self._owner = owner
        self._locks = locks
        self._host = host
        self._lease_ms = lease_ms
        self._looked_ms = 0
        """When this one last looked at the workers; 0: never."""
        self._patient_until_ms = 0
        """Until then it takes nobody elsewhere for dead."""
        self._lease_ends_ms = 0
        """The first moment at which one that lived elsewhere at the last look may be taken for dead; 0: nobody did."""

    def bury_dead(self, now_ms: int) -> int:
        """Marks workers dead whose lease has run out, or whose lock on this machine can be taken. Needs no lease.

        Where this process could not look for a while, a database may have been away: nobody could renew a lease then,
        and all have one more to do so.
        """
        if self._looked_ms and now_ms - self._looked_ms > max(self._lease_ms // 2, BLIND_MS):
            self._patient_until_ms = now_ms + self._lease_ms
        rows = self._store.live_workers()
        dead = {row.worker for row in rows if self._is_dead(row, now_ms)}
        if dead:
            self._store.mark_dead(sorted(dead))
        self._looked_ms = now_ms
        beats_ms = [row.heartbeat_ms for row in rows if row.host != self._host and row.worker not in dead]
        self._lease_ends_ms = max(min(beats_ms) + self._lease_ms + 1, self._patient_until_ms) if beats_ms else 0
        return len(dead)

    def rest_s(self, now_ms: int) -> float:
        """Until the next pass: what a worker elsewhere held is free at the end of its lease, not some seconds later.
        One that lives has renewed it by then, and costs no pass more."""
        if not self._lease_ends_ms:
            return SWEEP_EVERY_S
        return min(SWEEP_EVERY_S, max(SWEEP_SOONEST_S, (self._lease_ends_ms - now_ms) / 1000))

    def sweep(self, now_ms: int, *, keep_ended_ms: int = 0) -> None:
        """One bounded pass. `keep_ended_ms`: batches that ended longer ago are deleted; 0: none."""
        self.bury_dead(now_ms)
        if not self._store.take_lease("sweeper", self._owner, now_ms, SWEEP_LEASE_MS):
            return
        try:
            self._pass(now_ms)
            if keep_ended_ms:
                self._drop_old(now_ms - keep_ended_ms)
            self._store.sweep_days(now_ms, keep_ended_ms)
        finally:
            # Given back at once: the next command's pass is not to wait for a lease that nobody uses.
            self._store.take_lease("sweeper", self._owner, now_ms, 0)

    def _pass(self, now_ms: int) -> None:
        for batch_id in self._store.expire_due(now_ms):
            for _ in range(STEPS_MAX):
                if not self._store.close_step(batch_id, now_ms):
                    break
        self._drop_abandoned(now_ms)
        self._sweep_files(now_ms)
        for _ in range(STEPS_MAX):
            if not self._store.sweep_step(now_ms):
                break
        self._store.sweep_orphans(now_ms)

    def _is_dead(self, row: WorkerRow, now_ms: int) -> bool:
        if row.worker == self._owner:
            return False
        if row.host == self._host:
            return self._locks.is_free(worker_lock_name(row.worker))
        return now_ms - row.heartbeat_ms > self._lease_ms and now_ms >= self._patient_until_ms

    def _drop_old(self, before_ms: int) -> None:
        """Oldest first; one whose answers a process is writing to a file now is left for a later pass."""
        for batch_id in self._store.ended_before(before_ms, OLD_BATCHES_MAX):
            if self._locks.is_free(run_lock_name(batch_id)):
                self._store.drop_batch(batch_id, with_day=True)

    def _drop_abandoned(self, now_ms: int) -> None:
        """An intake whose process has ended can never be finished: the same command takes its input in anew."""
        for batch in self._store.find_batches(accepting=True):
            if batch.facts.reopening:
                continue
            is_ours = not self._shared or batch.owner.startswith(f"{self._host}-")
            ended = self._locks.is_free(run_lock_name(batch.batch_id))
            if ended if is_ours else now_ms - batch.created_at_ms > ELSEWHERE_MS:
                self._store.drop_batch(batch.batch_id)

    def _sweep_files(self, now_ms: int) -> None:
        for file_id, lock, begun_ms in self._store.arriving_files():
            is_ours = not self._shared or lock.startswith(f"uploads-{self._host}-")
            if self._locks.is_free(lock) if is_ours else now_ms - begun_ms > ELSEWHERE_MS:
                self._store.hide_file(file_id)
        for _ in range(STEPS_MAX):
            if not self._store.sweep_files(now_ms):
                break
