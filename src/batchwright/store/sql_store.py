"""`ports.store.Store` on SQL: each method opens its transaction and hands it to the module of its theme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from batchwright.core.batch_spec import Destination
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.failures import FailureKind
from batchwright.core.lane_wait import LaneWait
from batchwright.core.quarantine import Quarantine
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.shares import LaneUse
from batchwright.core.worker_id import WorkerId
from batchwright.core.worker_state import NOTHING_TOLD, WorkerState
from batchwright.ports.files import FileBatchRow, FilePage, LineError, StoredFile
from batchwright.ports.fleet import FleetRow, Heard, LanePause, WorkerRow
from batchwright.ports.groups import Group
from batchwright.ports.keys import ApiKey, KeyCredit
from batchwright.ports.observer import Backlog
from batchwright.ports.store import (
    NOTHING_RELEASED,
    BatchRow,
    BatchSignals,
    Checkpoint,
    CheckpointResult,
    Idempotency,
    IdempotentBatch,
    NewBatch,
    NewSegment,
    Reopened,
    SegmentRepricing,
    SegmentView,
    Share,
    UsageLine,
)
from batchwright.ports.webhooks import AttemptEnd, ClaimedDelivery, Delivery, DeliveryWish, Webhook
from batchwright.store import (
    batches,
    blobs,
    checking,
    checkpointing,
    closing,
    credit,
    dialect,
    dropping,
    file_batches,
    files,
    funds,
    groups,
    idempotency,
    intake,
    keys,
    leases,
    ledger,
    load,
    objects_sweep,
    pausing,
    queueing,
    reading,
    repricing,
    rounds,
    signals,
    turning,
    watching,
    webhooks,
    workers,
)
from batchwright.store.bodies import Bodies
from batchwright.store.connections import Connections

EVERY_CAUSE = frozenset(PauseCause)


class SqlStore:
    def __init__(self, connections: Connections, bodies: Bodies | None = None) -> None:
        """`bodies`: where they lie, if not all in the database."""
        self._connections = connections
        self._bodies = bodies or Bodies(connections)

    # intake ------------------------------------------------------------------------------------------------------

    def create_batch(self, batch: NewBatch, segments: Sequence[NewSegment] = (), *, close: bool = False) -> None:
        self._bodies.probe()
        pieces = list(intake.chunks(segments)) or [()]
        for position, piece in enumerate(pieces):
            closes = close and position == len(pieces) - 1
            outside = intake.put_outside(self._bodies, batch.batch_id, piece)
            create = partial(intake.create_with, batch=batch, segments=piece, outside=outside, closes=closes)
            self._connections.transact(create)

    def add_segments(self, batch_id: str, segments: Sequence[NewSegment]) -> None:
        for piece in intake.chunks(segments):
            outside = intake.put_outside(self._bodies, batch_id, piece)
            self._connections.transact(partial(intake.add, batch_id=batch_id, segments=piece, outside=outside))

    def close_intake(self, batch_id: str, now_ms: int, *, digest: str = "") -> None:
        def close(connection: Connection) -> None:
            if digest:
                idempotency.complete(connection, batch_id, digest)
            intake.close(connection, batch_id, now_ms)

        self._connections.transact(close)

    def drop_batch(self, batch_id: str, *, with_day: bool = False) -> None:
        self._connections.transact(lambda connection: dropping.hide(connection, batch_id))
        self._drop(batch_id, with_day=with_day and self._connections.keeps_days)

    def ended_before(self, before_ms: int, limit: int) -> list[str]:
        return self._connections.look(lambda connection: dropping.ended_before(connection, before_ms, limit))

    def _drop(self, batch_id: str, *, with_day: bool = False) -> None:
        objects_sweep.delete_exports(self._bodies, batch_id)
        more = True
        while more:
            more = self._connections.transact(partial(dropping.step, batch_id=batch_id, with_day=with_day))

    # work --------------------------------------------------------------------------------------------------------

    def register_worker(
        self, worker: WorkerId, *, host: str, pid: int, now_ms: int, state: WorkerState = NOTHING_TOLD
    ) -> None:
        self._bodies.probe()
        self._connections.transact(
            lambda connection: workers.register(connection, worker, host=host, pid=pid, now_ms=now_ms, state=state)
        )

    def heartbeat(
        self,
        worker: WorkerId,
        now_ms: int,
        *,
        note: str = "",
        uses: Sequence[LaneUse] = (),
        waits: Sequence[LaneWait] = (),
        state: WorkerState = NOTHING_TOLD,
    ) -> Heard | None:
        told = workers.Telling(worker=worker, now_ms=now_ms, note=note, uses=uses, waits=waits, state=state)
        return self._connections.transact(lambda connection: workers.heartbeat(connection, told))

    def end_worker(self, worker: WorkerId) -> None:
        self._connections.transact(lambda connection: workers.end(connection, worker))

    def mark_dead(self, workers_: Sequence[WorkerId]) -> int:
        return self._connections.transact(lambda connection: workers.mark_dead(connection, workers_))

    def live_workers(self) -> list[WorkerRow]:
        return self._connections.look(workers.live)

    def fleet(self) -> FleetRow:
        return self._connections.look(workers.fleet)

    def drain_worker(self, worker: WorkerId) -> bool:
        return self._connections.transact(lambda connection: workers.set_draining(connection, worker, wanted=True))

    def end_drain(self, worker: WorkerId) -> bool:
        return self._connections.transact(lambda connection: workers.set_draining(connection, worker, wanted=False))

    def wishes(self, worker: WorkerId) -> Heard | None:
        return self._connections.look(lambda connection: workers.wishes(connection, worker))

    def checkpoint(self, checkpoint: Checkpoint) -> CheckpointResult:
        return checkpointing.run(self._bodies, checkpoint)

    def stop_signals(self, batch_ids: Sequence[str]) -> dict[str, BatchSignals]:
        return self._connections.look(lambda connection: signals.of_stopped(connection, batch_ids))

    def checkpoint_number(self, worker: WorkerId) -> int:
        return self._connections.look(lambda connection: checkpointing.number_of(connection, worker))

    # lanes and pauses --------------------------------------------------------------------------------------------

    def pause_lane(self, pause: LanePause) -> None:
        self._connections.transact(lambda connection: pausing.pause_lane(connection, pause))

    def clear_lane(self, lane: str) -> None:
        self._connections.transact(lambda connection: pausing.clear_lane(connection, lane))

    def release_lane(self, lane: str) -> None:
        self._connections.transact(lambda connection: pausing.release_lane(connection, lane))

    def lane_pauses(self) -> list[LanePause]:
        return self._connections.look(pausing.lane_pauses)

    def quarantines(self) -> list[Quarantine]:
        return self._connections.look(pausing.quarantines)

    def set_quarantine(self, quarantine: Quarantine) -> None:
        self._connections.transact(lambda connection: pausing.set_quarantine(connection, quarantine))

    def lift_quarantine(self, vendor: str, model: str) -> bool:
        return self._connections.transact(lambda connection: pausing.lift_quarantine(connection, vendor, model))

    def release_lanes(self, vendor: str, model: str) -> None:
        self._connections.transact(lambda connection: pausing.release_lanes(connection, vendor, model))

    def batch_pauses(self, limit: int) -> list[tuple[str, Pause]]:
        with self._connections.read() as connection:
            return funds.batch_pauses(connection, limit)

    def pause_batch(self, batch_id: str, pause: Pause) -> None:
        self._connections.transact(lambda connection: turning.pause_batch(connection, batch_id, pause))

    def resume_batch(self, batch_id: str, causes: frozenset[PauseCause] = EVERY_CAUSE) -> None:
        self._connections.transact(lambda connection: pausing.resume_batch(connection, batch_id, causes))

    def set_cap(self, batch_id: str, max_cost_picousd: int, *, soft: bool) -> None:
        self._connections.transact(lambda connection: pausing.set_cap(connection, batch_id, max_cost_picousd, soft))

    def pass_gate(self, batch_id: str) -> None:
        self._connections.transact(lambda connection: batches.pass_gate(connection, batch_id))

    def set_keys(self, batch_id: str, keys_of: Sequence[Destination]) -> None:
        self._connections.transact(lambda connection: batches.set_keys(connection, batch_id, keys_of))

    # order of claims ---------------------------------------------------------------------------------------------

    def set_priority(self, batch_id: str, priority: int) -> None:
        self._connections.transact(lambda connection: batches.set_priority(connection, batch_id, priority))

    def set_share(self, share: Share) -> None:
        self._connections.transact(lambda connection: queueing.set_share(connection, share))

    def shares(self) -> list[Share]:
        return self._connections.look(queueing.shares)

    # closing -----------------------------------------------------------------------------------------------------

    def request_close(self, batch_id: str, kind: FailureKind, now_ms: int) -> bool:
        return self._connections.transact(lambda connection: closing.request(connection, batch_id, kind, now_ms))

    def close_step(self, batch_id: str, now_ms: int, limit: int = 1000) -> int:
        return self._bodies.transact(
            lambda connection, reader: closing.step(connection, reader, batch_id, now_ms=now_ms, limit=limit)
        )

    def expire_due(self, now_ms: int) -> list[str]:
        return self._connections.transact(lambda connection: closing.expire_due(connection, now_ms))

    def sweep_step(self, now_ms: int, keep_superseded_ms: int = 3_600_000, limit: int = 1000) -> int:
        interrupted = self._connections.look(dropping.begun)
        for batch_id in interrupted:
            self._drop(batch_id)

        def delete_old(connection: Connection) -> int:
            idempotency.forget_old(connection, now_ms)
            leases.forget_old(connection, now_ms)
            webhooks.forget_old(connection, now_ms)
            return blobs.delete_superseded(connection, now_ms - keep_superseded_ms, limit)

        deleted = self._connections.transact(delete_old)
        if deleted or interrupted:
            self._connections.give_back_pages()
        return deleted + objects_sweep.delete_superseded(self._bodies, now_ms - keep_superseded_ms, limit)

    def sweep_days(self, now_ms: int, keep_ended_ms: int = 0) -> int:
        return self._connections.sweep_days(now_ms, keep_ended_ms)

    def sweep_orphans(self, now_ms: int, limit: int = 1000) -> int:
        return objects_sweep.delete_orphans(self._bodies, now_ms, limit)

    def take_lease(self, name: str, owner: WorkerId, now_ms: int, lease_ms: int) -> bool:
        return self._connections.transact(
            lambda connection: leases.take(connection, name, owner, now_ms=now_ms, until_ms=now_ms + lease_ms)
        )

    # rounds ------------------------------------------------------------------------------------------------------

    def reopen(self, batch_id: str, chosen: frozenset[int], *, deadline_ms: int = 0, gate: bool = True) -> Reopened:
        return rounds.reopen(self._connections, batch_id, chosen, deadline_ms=deadline_ms, gate=gate)

    # prices ------------------------------------------------------------------------------------------------------

    def reprice(self, change: SegmentRepricing, now_ms: int) -> int:
        return repricing.reprice(self._bodies, change, now_ms)

    # reading -----------------------------------------------------------------------------------------------------

    def get_batch(self, batch_id: str) -> BatchRow:
        return self._connections.look(lambda connection: reading.get_batch(connection, batch_id))

    def count_worked(self, batch_id: str) -> dict[int, int]:
        return self._connections.look(lambda connection: ledger.count_worked(connection, batch_id))

    def find_batches(
        self,
        *,
        prefix: str = "",
        identity: str = "",
        source: str = "",
        accepting: bool = False,
        account: str = "",
        before: str = "",
        limit: int = 50,
        created_after_ms: int = 0,
        created_before_ms: int = 0,
    ) -> list[BatchRow]:
        wish = reading.BatchFilter(
            prefix=prefix,
            identity=identity,
            source=source,
            accepting=accepting,
            account=account,
            before=before,
            created_after_ms=created_after_ms,
            created_before_ms=created_before_ms,
        )
        return self._connections.look(lambda connection: reading.find_batches(connection, wish, limit))

    def read_segments(
        self,
        batch_id: str,
        *,
        first_index: int = 0,
        end_index: int | None = None,
        with_input: bool = False,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> Iterator[SegmentView]:
        wish = reading.SegmentWish(
            end_index=reading.NO_END if end_index is None else end_index,
            with_input=with_input,
            wanted=wanted,
            texts_of=texts_of,
        )
        return reading.read_segments(self._bodies, batch_id, first_index, wish)

    def is_held(self, batch_id: str) -> bool:
        return self._connections.look(lambda connection: reading.is_held(connection, batch_id))

    def open_lane_sets(self, batch_id: str) -> frozenset[str]:
        return self._connections.look(lambda connection: reading.open_lane_sets(connection, batch_id))

    def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]:
        return reading.find_custom_id(self._bodies, batch_id, custom_id)

    def backlog(self) -> Backlog:
        return self._connections.look(watching.backlog)

    def segments_to_do(self) -> int:
        return self._connections.look(load.segments_to_do)

    def hold_credit(self, worker: WorkerId, key_id: str, picousd: int, least_picousd: int) -> int:
        def hold(connection: Connection) -> int:
            worker_id = workers.id_of(connection, worker)
            return credit.hold(connection, key_id, worker_id, (picousd, least_picousd))

        return self._connections.transact(hold)

    def add_usage(
        self,
        worker: WorkerId,
        deltas: Mapping[UsageKey, UsageSum],
        now_ms: int,
        *,
        released: Mapping[str, int] = NOTHING_RELEASED,
    ) -> None:
        def add(connection: Connection) -> None:
            worker_id = workers.id_of(connection, worker)
            ledger.add_usage(connection, worker_id, deltas)
            for key_id, picousd in released.items():
                ledger.lower_allowance(connection, key_id, worker_id, picousd)
            credit.pause_spent(connection, {key.key_id for key in deltas}, {}, now_ms)

        self._connections.transact(add)

    def read_usage(self, *, since_day: str = "", tenant: str = "") -> list[UsageLine]:
        return self._connections.look(lambda connection: reading.read_usage(connection, since_day, tenant))

    # keys --------------------------------------------------------------------------------------------------------

    def add_key(self, key: ApiKey, digest: str) -> None:
        self._connections.transact(lambda connection: keys.add(connection, key, digest))

    def find_key(self, digest: str) -> ApiKey | None:
        return self._connections.look(lambda connection: keys.find(connection, digest))

    def list_keys(self, account: str = "") -> list[ApiKey]:
        return self._connections.look(lambda connection: keys.listed(connection, account))

    def revoke_key(self, key_id: str, now_ms: int) -> bool:
        return self._connections.transact(lambda connection: keys.revoke(connection, key_id, now_ms))

    def key_credit(self, key_id: str) -> KeyCredit | None:
        return self._connections.look(lambda connection: funds.of_key(connection, key_id))

    def key_spending(self, account: str) -> dict[str, int]:
        return self._connections.look(lambda connection: credit.spending(connection, account))

    def set_key_budget(self, key_id: str, picousd: int) -> bool:
        return self._connections.transact(lambda connection: credit.set_budget(connection, key_id, picousd))

    def touch_keys(self, used: Mapping[str, int]) -> None:
        self._connections.transact(lambda connection: keys.touch(connection, used))

    # groups ------------------------------------------------------------------------------------------------------

    def keep_group(self, group: Group) -> None:
        self._connections.transact(lambda connection: groups.keep(connection, group))

    def name_group(self, tag: str, vendor_batch_id: str) -> None:
        self._connections.transact(lambda connection: groups.name(connection, tag, vendor_batch_id))

    def drop_group(self, tag: str) -> None:
        self._connections.transact(lambda connection: groups.drop(connection, tag))

    def groups_of(self, batch_id: str) -> Sequence[Group]:
        return self._connections.look(lambda connection: groups.of_batch(connection, batch_id))

    # webhooks ----------------------------------------------------------------------------------------------------

    def add_webhook(self, webhook: Webhook, wish: Idempotency | None) -> None:
        def add(connection: Connection) -> None:
            if wish is not None:
                place = (webhook.account, webhook.webhook_id)
                idempotency.keep(connection, wish, place, webhook.created_at_ms)
            webhooks.add(connection, webhook)

        self._connections.transact(add)

    def find_webhook(self, account: str, webhook_id: str) -> Webhook | None:
        return self._connections.look(lambda connection: webhooks.find(connection, account, webhook_id))

    def list_webhooks(self, account: str) -> list[Webhook]:
        return self._connections.look(lambda connection: webhooks.listed(connection, account))

    def delete_webhook(self, account: str, webhook_id: str) -> bool:
        found = self._connections.transact(lambda connection: webhooks.remove(connection, account, webhook_id))
        more = found
        while more:
            more = self._connections.transact(lambda connection: webhooks.drop_deliveries(connection, webhook_id))
        return found

    def list_deliveries(self, webhook_id: str, *, before: int, limit: int) -> list[Delivery]:
        return self._connections.look(lambda connection: webhooks.page(connection, webhook_id, before, limit))

    def replay_delivery(self, account: str, delivery_id: str, now_ms: int) -> Delivery | None:
        return self._connections.transact(lambda connection: webhooks.replay(connection, account, delivery_id, now_ms))

    def has_due_deliveries(self, now_ms: int) -> bool:
        return self._connections.look(lambda connection: webhooks.has_due(connection, now_ms))

    def claim_deliveries(self, wish: DeliveryWish) -> list[ClaimedDelivery]:
        return self._connections.transact(lambda connection: webhooks.claim(connection, wish))

    def finish_delivery(self, claimed: ClaimedDelivery, end: AttemptEnd, now_ms: int) -> bool:
        return self._connections.transact(lambda connection: webhooks.finish(connection, claimed, end, now_ms))

    def delivery_owners(self) -> frozenset[str]:
        return self._connections.look(webhooks.owners)

    def release_deliveries(self, owner: str, now_ms: int) -> int:
        return self._connections.transact(lambda connection: webhooks.release(connection, owner, now_ms))

    # ids and the file itself -------------------------------------------------------------------------------------

    def find_idempotent(self, account: str, key: str, now_ms: int) -> IdempotentBatch | None:
        return self._connections.look(lambda connection: idempotency.find(connection, (account, key), now_ms))

    # files -------------------------------------------------------------------------------------------------------

    def begin_file(self, file_id: str, account: str, *, owner: str, now_ms: int) -> None:
        self._bodies.probe()
        self._connections.transact(lambda connection: files.begin(connection, (file_id, account, owner), now_ms))

    def add_pieces(self, file_id: str, packed: Sequence[bytes]) -> None:
        outside = files.put_outside(self._bodies, file_id, packed)
        self._connections.transact(lambda connection: files.add_pieces(connection, file_id, packed, outside))

    def finish_file(self, file: StoredFile) -> None:
        self._connections.transact(lambda connection: files.finish(connection, file))

    def find_file(self, account: str, file_id: str, now_ms: int) -> StoredFile:
        return self._connections.look(lambda connection: files.get(connection, (account, file_id), now_ms))

    def list_files(self, account: str, page: FilePage, now_ms: int) -> list[StoredFile]:
        return self._connections.look(lambda connection: files.listed(connection, (account, page), now_ms))

    def read_piece(self, file_id: str, number: int) -> bytes:
        return self._bodies.look(lambda connection, reader: files.read_piece(connection, reader, (file_id, number)))

    def count_pieces(self, file_id: str) -> int:
        return self._connections.look(lambda connection: files.count_pieces(connection, file_id))

    def set_file_size(self, file_id: str, size: int) -> None:
        self._connections.transact(lambda connection: files.set_size(connection, file_id, size))

    def hide_file(self, file_id: str) -> None:
        self._connections.transact(lambda connection: files.hide(connection, file_id))

    def arriving_files(self) -> list[tuple[str, str, int]]:
        return self._connections.look(files.arriving)

    def sweep_files(self, now_ms: int) -> int:
        gone = self._connections.look(lambda connection: files.gone(connection, now_ms))
        if not gone:
            return 0
        swept = self._connections.transact(
            lambda connection: sum(files.sweep_step(connection, file_id, now_ms) for file_id in gone)
        )
        self._connections.give_back_pages()
        return swept

    def create_file_batch(self, batch: NewBatch, row: FileBatchRow) -> None:
        self._connections.transact(lambda connection: file_batches.create(connection, batch, row))

    def begin_intake_again(self, batch_id: str) -> None:
        more = True
        while more:
            more = self._connections.transact(lambda connection: dropping.empty_step(connection, batch_id))

    def close_file_intake(self, batch_id: str, now_ms: int, *, model: str) -> None:
        self._connections.transact(lambda connection: file_batches.close(connection, batch_id, now_ms, model))

    def refuse_file_batch(self, batch_id: str, errors: Sequence[LineError], now_ms: int) -> None:
        self.begin_intake_again(batch_id)
        self._connections.transact(lambda connection: file_batches.refuse(connection, batch_id, errors, now_ms))

    def accepting_file_batches(self) -> list[str]:
        return self._connections.look(file_batches.accepting)

    def get_file_batch(self, batch_id: str) -> FileBatchRow:
        return self._connections.look(lambda connection: file_batches.get(connection, batch_id))

    def list_file_batches(self, account: str, *, after: str, limit: int) -> list[FileBatchRow]:
        return self._connections.look(lambda connection: file_batches.listed(connection, (account, after), limit))

    def id_hashes(self, batch_id: str) -> Iterator[bytes]:
        return reading.id_hashes(self._connections, batch_id)

    def data_version(self) -> int:
        return self._connections.data_version()

    def changes(self) -> int:
        return self._connections.changes()

    def now_ms(self, own_ms: int) -> int:
        return self._connections.look(lambda connection: dialect.now_ms(connection, own_ms))

    def object_mark(self) -> str:
        return self._bodies.mark()

    def check(self, batch_id: str) -> list[str]:
        return self._bodies.look(lambda connection, reader: checking.check(connection, batch_id, reader))

    def close(self) -> None:
        self._bodies.close()
        self._connections.close()
