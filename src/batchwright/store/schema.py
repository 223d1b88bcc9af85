"""The tables. SQL is the only truth; a row of a batch is one byte of its segment's map, never a SQL row.

    batch         1 a batch            facts, counters, budget
    segment       1 a segment          row map, who holds it, epoch
    pick          1 a (batch, lanes)   how many of its segments wait: a claim reads these, never the backlog
    queue         1 a (account, lanes) where an account stands among those that wait for these lanes
    share         1 an account         its weight and its bound, where it has been given any
    part          1 a frame            leads from a segment to the records in a blob; of two records the later wins
    blob          1 a blob             immutable bytes: inputs, parts, results, pieces of files; here, or as an object
    fact          1 a fact             of the whole store: which object store its bodies are in, and under which name
    tally         1 a (batch, round, worker), with tally_count: one a row-map byte that rows ended with
    allowance     1 a (batch, worker)  budget drawn and not spent
    usage         1 a (day, vendor's account, model, vendor, tenant, service key, worker)
    worker, pause, lane_pause, lease   who lives, what stands still, who sweeps
    quarantine    1 a (vendor, model)  lanes that a person has closed
    api_key       1 a key of the service: its hash, whose it is, what it may do
    idempotency   1 a (account, idempotency key): which batch it made, and of what request
    webhook       1 a webhook          who wants to be told; delivery: 1 an event and webhook
    custom_ids    1 a segment          hashes of its custom ids, apart so that a checkpoint does not rewrite them
    file          1 a file             what was uploaded (its bytes are blobs), or a view of what a batch answered
    file_batch    1 a batch of a file  what OpenAI's face says of a batch beside what every batch has
    row_group     1 a group            rows that are, or may be, at a vendor's batch API

Moments are milliseconds since the epoch, money 1e-12 USD; 0 and '' stand for none, so that sums need no null rules.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)

from batchwright.core.records import TALLY_SUMS, UsageSum

NOBODY = 0
"""`worker_id` of what no worker counted: rows that ended at intake, closed segments, and a round's base."""

TALLY_COLUMNS: tuple[str, ...] = tuple(name for name in TALLY_SUMS if name != "allowance_picousd")
"""Allowances outlive rounds, so they have a table of their own."""
USAGE_COLUMNS: tuple[str, ...] = UsageSum.__struct_fields__

CLAIMABLE = "phase = 'open' AND closing = '' AND paused = 0"
"""Of a batch. Text, because a partial index is only used by the very words it was made with."""
AWAITS_CLOSING = "phase = 'open' AND closing <> ''"
CAN_EXPIRE = "phase = 'open' AND closing = '' AND deadline_ms > 0"
WAITING = "state = 'waiting'"
PICKABLE = "ready = 1 AND waiting > 0"
"""Of a pick, as the next."""
PICKABLE_BY = "ready = 1 AND waiting > 0 AND deadline_ms > 0"
QUEUED = "state = 1"
"""Of a queue's row, as the next."""
NOT_QUEUED = "state <> 1"
HELD_IN_TURN = "state = 'held' AND weight > 0"
"""Of a segment: by a worker that works for all accounts."""
HAS_HOLDER = "holder <> 0"
SUPERSEDED = "superseded_at_ms > 0"
IS_OBJECT = "object <> ''"
"""Of a blob."""
PARKED = "state = 'parked'"
UNENDED = "state <> 'settled'"
"""Of a segment. In place of `open > 0`: that changes at each checkpoint, and PostgreSQL would write all of the index
entries anew for it."""
LIVES = "dead = 0 AND ended = 0"
"""Of a worker."""
OF_BATCH = "batch_id <> ''"
UNREADY = "state IN ('arriving', 'deleted') AND batch_id = ''"
"""Of an upload, as the next."""
UPLOAD_EXPIRES = "state = 'ready' AND batch_id = '' AND expires_at_ms > 0"
ENDED = "settled_at_ms > 0"
UNSETTLED = "phase <> 'settled' AND phase <> 'refused' AND phase <> 'dropping'"
HAS_KEY = "key_id <> ''"
"""Of usage: what `run` does has no key, and costs no index entry."""
UNSETTLED_OF_KEY = f"{UNSETTLED} AND key_id <> ''"
OF_LANES = "cause = 'lane'"
"""Of a pause: its batch waits for lanes."""
PENDING = "state = 'pending'"
"""Of a delivery."""

metadata = MetaData()
_number = BigInteger().with_variant(Integer, "sqlite")
_text = Text().with_variant(Text(collation="C"), "postgresql")
"""Compared by code points everywhere, as SQLite and Python do, whatever language the server speaks."""


def _serial(name: str) -> Column[int]:
    return Column(name, _number, Identity(), primary_key=True, autoincrement=True)


def _count(name: str, value: int = 0) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text(str(value)))


def _only(condition: str) -> dict[str, Any]:
    """An index of the rows alone that are so."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def _words(name: str) -> Column[str]:
    return Column(name, _text, nullable=False, server_default=text("''"))


batch = Table(
    "batch",
    metadata,
    _serial("seq"),
    Column("batch_id", _text, nullable=False),
    Column("account", _text, nullable=False),
    _words("key_id"),  # the service key it was submitted with
    Column("source", _text, nullable=False),
    Column("identity", _text, nullable=False),
    Column("spec", LargeBinary, nullable=False),
    Column("owner", _text, nullable=False),
    _count("created_at_ms"),
    _count("deadline_ms"),
    _count("settled_at_ms"),
    Column("phase", _text, nullable=False),
    _words("closing"),  # a FailureKind once asked for
    _count("paused"),  # pause facts
    _count("gate_passed"),
    _count("round"),
    _count("rows"),
    _count("segments"),
    _count("segments_open"),
    _count("priority"),  # the higher goes before others of its account
    _count("cap_picousd", -1),
    _count("cap_soft"),
    _count("worst_picousd"),  # one attempt of each row at its dearest, as far as is known
    _count("unbounded"),  # rows of which it is not
    _count("reopen_next"),  # while reopening: the first segment not looked at yet
    Column("reopen_bytes", LargeBinary, nullable=False),  # the row-map bytes that the last reopening chose
    UniqueConstraint("batch_id", name="batch_by_id"),
    CheckConstraint(
        "phase IN ('accepting', 'open', 'settled', 'reopening', 'refused', 'dropping')", name="batch_phase"
    ),
    CheckConstraint("segments_open >= 0", name="batch_segments_open"),
    sqlite_autoincrement=True,
)
Index("batch_closing", batch.c.seq, **_only(AWAITS_CLOSING))
Index("batch_deadline", batch.c.deadline_ms, **_only(CAN_EXPIRE))
Index("batch_by_account", batch.c.account, batch.c.seq)
Index("batch_by_day", batch.c.created_at_ms)
Index("batch_by_identity", batch.c.identity)
Index("batch_by_phase", batch.c.phase)
Index("batch_by_source", batch.c.source)
Index("batch_ended", batch.c.settled_at_ms, **_only(ENDED))
Index("batch_unsettled_of_key", batch.c.key_id, **_only(UNSETTLED_OF_KEY))

segment = Table(
    "segment",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("first_index", BigInteger, nullable=False),
    Column("row_map", LargeBinary, nullable=False),
    Column("previous_map", LargeBinary),
    Column("open", BigInteger, nullable=False),
    Column("state", _text, nullable=False),
    _count("round"),
    _count("epoch"),
    _count("holder"),  # worker.id; kept after a loss until another claims it: whose allowance pays for the doubt
    _count("rank"),  # claim order within the batch; below 0 for a segment that was lost with its worker
    _count("deaths"),
    _count("lost_alone"),  # 1: at its last death one row was reserved there, and no other in all its worker held
    _count("window"),
    _count("not_before_ms"),
    _words("closed_as"),
    Column("lane_set", _text, nullable=False),  # of the rows still open, as far as is known
    Column("all_lanes", _text, nullable=False),  # as intake cut it: what a new round begins with
    _count("input_bytes"),
    _words("account"),
    _count("charged"),  # tokens its account was charged with for rows that are still open
    _count("weight"),  # that it was charged by, in hundredths; 0: not claimed in turn
    PrimaryKeyConstraint("batch_id", "number", name="segment_key"),
    CheckConstraint("state IN ('waiting', 'parked', 'held', 'settled')", name="segment_state"),
    CheckConstraint("(state = 'settled') = (open = 0)", name="segment_settled"),
)
Index(
    "segment_waiting",
    segment.c.batch_id,
    segment.c.lane_set,
    segment.c.rank,
    **_only(WAITING),
)
Index("segment_by_row", segment.c.batch_id, segment.c.first_index, unique=True)
Index("segment_parked", segment.c.not_before_ms, **_only(PARKED))
Index(
    "segment_unsettled",
    segment.c.batch_id,
    segment.c.number,
    **_only(UNENDED),
)
Index(
    "segment_by_holder",
    segment.c.holder,
    **_only(HAS_HOLDER),
)
Index("segment_held_in_turn", segment.c.account, **_only(HELD_IN_TURN))

pick = Table(
    "pick",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("lane_set", _text, nullable=False),
    _count("waiting"),
    # As its batch has them, so that a claim finds its place by an index of this table alone:
    Column("account", _text, nullable=False),
    _count("seq"),
    _count("ready"),  # 1: the batch can be claimed from
    _count("behind"),  # its priority, negated
    _count("turn"),  # grows with each claim from the batch
    _count("deadline_ms"),
    _count("created_at_ms"),
    PrimaryKeyConstraint("batch_id", "lane_set", name="pick_key"),
    CheckConstraint("waiting >= 0", name="pick_waiting"),
    sqlite_with_rowid=False,
)
Index(
    "pick_in_turn",
    *(pick.c.account, pick.c.lane_set, pick.c.behind, pick.c.turn, pick.c.seq, pick.c.created_at_ms),
    **_only(PICKABLE),
)
Index("pick_urgent", pick.c.lane_set, pick.c.deadline_ms, **_only(PICKABLE_BY))

queue = Table(
    "queue",
    metadata,
    Column("account", _text, nullable=False),
    Column("lane_set", _text, nullable=False),
    Column("state", BigInteger, nullable=False),  # 0: nothing waits, 1: waits, 2: waits, and holds all it may
    _count("virtual"),  # `core.fair_share`
    _count("turn"),  # of the account's last claim
    PrimaryKeyConstraint("account", "lane_set", name="queue_key"),
    CheckConstraint("state IN (0, 1, 2)", name="queue_state"),
    sqlite_with_rowid=False,
)
Index("queue_waiting", queue.c.lane_set, queue.c.virtual, queue.c.account, **_only(QUEUED))
Index("queue_resting", queue.c.virtual, **_only(NOT_QUEUED))

share = Table(
    "share",
    metadata,
    Column("account", _text, nullable=False),
    _count("weight", 100),  # in hundredths
    _count("in_flight"),  # segments that workers may hold of it at once; 0: no bound
    PrimaryKeyConstraint("account", name="share_key"),
    CheckConstraint("weight > 0", name="share_weight"),
    sqlite_with_rowid=False,
)

part = Table(
    "part",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("blob_key", _text, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("length", BigInteger, nullable=False),
    PrimaryKeyConstraint("batch_id", "number", "round", "epoch", "seq", name="part_key"),
    sqlite_with_rowid=False,
)
Index("part_by_blob", part.c.blob_key)

blob = Table(
    "blob",
    metadata,
    Column("key", _text, nullable=False),
    _count("superseded_at_ms"),
    _words("object"),  # in the object store, that holds its bytes, perhaps beside others'; `data` is empty then
    _count("object_size"),  # of all of it
    _count("object_offset"),  # where in it they begin
    _count("size"),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("key", name="blob_key"),
    postgresql_partition_by="RANGE (key)",  # which begins with a day (`store.body_days`)
)
Index(
    "blob_superseded",
    blob.c.superseded_at_ms,
    **_only(SUPERSEDED),
)
Index("blob_by_object", blob.c.object, **_only(IS_OBJECT))

AS_IT_IS = "ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL"
"""What is packed already is not packed again, and a frame of it is read without the rest."""
UNDATED = "CREATE TABLE blob_undated PARTITION OF blob FOR VALUES FROM ('a') TO (MAXVALUE)"
"""What is of no day: its keys begin with a word."""
for _statement in (AS_IT_IS, UNDATED):
    event.listen(blob, "after_create", DDL(_statement).execute_if(dialect="postgresql"))  # type: ignore[no-untyped-call]  # SQLAlchemy's own, untyped

fact = Table(
    "fact",
    metadata,
    Column("name", _text, nullable=False),
    Column("value", _text, nullable=False),
    PrimaryKeyConstraint("name", name="fact_key"),
    sqlite_with_rowid=False,
)

custom_ids = Table(
    "custom_ids",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("hashes", LargeBinary, nullable=False),
    PrimaryKeyConstraint("batch_id", "number", name="custom_ids_key"),
)

tally = Table(
    "tally",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("worker_id", BigInteger, nullable=False),
    *[_count(name) for name in TALLY_COLUMNS],
    PrimaryKeyConstraint("batch_id", "round", "worker_id", name="tally_key"),
    sqlite_with_rowid=False,
)

tally_count = Table(
    "tally_count",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("worker_id", BigInteger, nullable=False),
    Column("byte", BigInteger, nullable=False),
    _count("rows"),
    PrimaryKeyConstraint("batch_id", "round", "worker_id", "byte", name="tally_count_key"),
    sqlite_with_rowid=False,
)

allowance = Table(
    "allowance",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("worker_id", BigInteger, nullable=False),
    _count("picousd"),
    PrimaryKeyConstraint("batch_id", "worker_id", name="allowance_key"),
    CheckConstraint("picousd >= 0", name="allowance_picousd"),
    sqlite_with_rowid=False,
)

usage = Table(
    "usage",
    metadata,
    Column("day", _text, nullable=False),
    Column("account", _text, nullable=False),
    Column("model", _text, nullable=False),
    Column("vendor", _text, nullable=False),
    Column("tenant", _text, nullable=False),
    Column("key_id", _text, nullable=False),
    Column("endpoint", _text, nullable=False),
    Column("worker_id", BigInteger, nullable=False),
    *[_count(name) for name in USAGE_COLUMNS],
    PrimaryKeyConstraint(
        *("day", "account", "model", "vendor", "tenant", "key_id", "endpoint", "worker_id"), name="usage_key"
    ),
    sqlite_with_rowid=False,
)
Index("usage_by_key", usage.c.key_id, **_only(HAS_KEY))

worker = Table(
    "worker",
    metadata,
    _serial("id"),
    Column("name", _text, nullable=False),
    Column("incarnation", _text, nullable=False),
    Column("host", _text, nullable=False),
    _count("pid"),
    _count("started_at_ms"),
    _count("heartbeat_ms"),
    _count("dead"),
    _count("ended"),
    _words("note"),
    _words("lanes"),  # JSON: the lanes it sends to, with its shares of their limits
    _words("waits"),  # JSON: what its lanes wait for
    _words("state"),  # JSON: how it is
    _count("draining"),  # 1: it was asked to end
    _count("checkpoint_number"),
    UniqueConstraint("name", "incarnation", name="worker_by_name"),
    sqlite_autoincrement=True,
)
Index("worker_live", worker.c.id, **_only(LIVES))

pause = Table(
    "pause",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("cause", _text, nullable=False),
    Column("reason", _text, nullable=False),
    _count("since_ms"),
    _words("lane"),
    PrimaryKeyConstraint("batch_id", "cause", name="pause_key"),
)
Index("pause_of_lanes", pause.c.batch_id, **_only(OF_LANES))

lane_pause = Table(
    "lane_pause",
    metadata,
    Column("lane", _text, nullable=False),
    Column("reason", _text, nullable=False),
    _count("since_ms"),
    _count("probe_at_ms"),
    PrimaryKeyConstraint("lane", name="lane_pause_key"),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("vendor", _text, nullable=False),
    Column("model", _text, nullable=False),  # empty: all of the vendor's
    _words("reason"),
    _count("since_ms"),
    PrimaryKeyConstraint("vendor", "model", name="quarantine_key"),
)

lease = Table(
    "lease",
    metadata,
    Column("name", _text, nullable=False),
    Column("owner", _text, nullable=False),
    _count("until_ms"),
    PrimaryKeyConstraint("name", name="lease_key"),
)

api_key = Table(
    "api_key",
    metadata,
    Column("key_id", _text, nullable=False),
    Column("digest", _text, nullable=False),
    Column("shown", _text, nullable=False),  # its first characters, for people
    Column("account", _text, nullable=False),
    _words("name"),
    Column("scopes", _text, nullable=False),  # joined by blanks
    _count("created_at_ms"),
    _count("expires_at_ms"),
    _count("revoked_at_ms"),
    _count("last_used_ms"),
    _count("budget_picousd", -1),
    _count("rpm"),
    PrimaryKeyConstraint("key_id", name="api_key_key"),
    UniqueConstraint("digest", name="api_key_by_digest"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("account", _text, nullable=False),
    Column("key", _text, nullable=False),
    Column("digest", _text, nullable=False),
    Column("batch_id", _text, nullable=False),
    _count("created_at_ms"),
    PrimaryKeyConstraint("account", "key", name="idempotency_key"),
    sqlite_with_rowid=False,
)
Index("idempotency_by_batch", idempotency.c.batch_id)

file = Table(
    "file",
    metadata,
    _serial("seq"),
    Column("file_id", _text, nullable=False),
    Column("account", _text, nullable=False),
    _words("purpose"),  # empty while it arrives
    _words("filename"),
    _count("bytes"),  # of a batch's file -1 until somebody asks
    _count("pieces"),  # blobs of an upload
    _count("created_at_ms"),
    _count("expires_at_ms"),
    Column("state", _text, nullable=False),  # `kept`: hidden as `deleted` is, while rows of batches lie in it
    _words("owner"),  # the lock of whoever takes it in
    _words("batch_id"),  # of a batch's file: whose rows, and of which round
    _count("round"),
    UniqueConstraint("file_id", name="file_by_id"),
    CheckConstraint("state IN ('arriving', 'ready', 'deleted', 'kept')", name="file_state"),
    sqlite_autoincrement=True,
)
Index("file_by_account", file.c.account, file.c.seq)
Index("file_by_batch", file.c.batch_id, **_only(OF_BATCH))
Index("file_unready", file.c.state, file.c.seq, **_only(UNREADY))
Index("file_expiry", file.c.expires_at_ms, **_only(UPLOAD_EXPIRES))

file_batch = Table(
    "file_batch",
    metadata,
    Column("batch_id", _text, nullable=False),
    Column("file_id", _text, nullable=False),
    Column("endpoint", _text, nullable=False),
    Column("completion_window", _text, nullable=False),
    _count("output_expires_s"),
    _words("model"),  # the one that all its rows name
    _count("in_progress_at_ms"),
    _count("cancelling_at_ms"),
    Column("errors", LargeBinary, nullable=False),  # JSON: the findings it was refused for
    PrimaryKeyConstraint("batch_id", name="file_batch_key"),
)
Index("file_batch_by_file", file_batch.c.file_id)
webhook = Table(
    "webhook",
    metadata,
    Column("webhook_id", _text, nullable=False),
    Column("account", _text, nullable=False),
    _words("batch_id"),  # the one batch it is for
    Column("url", _text, nullable=False),
    Column("events", _text, nullable=False),  # joined by blanks
    Column("secret", _text, nullable=False),
    _words("description"),
    Column("headers", _text, nullable=False),  # JSON
    _count("created_at_ms"),
    PrimaryKeyConstraint("webhook_id", name="webhook_key"),
)
Index("webhook_by_account", webhook.c.account, webhook.c.batch_id)

delivery = Table(
    "delivery",
    metadata,
    _serial("seq"),
    Column("delivery_id", _text, nullable=False),
    Column("webhook_id", _text, nullable=False),
    Column("account", _text, nullable=False),
    Column("event_id", _text, nullable=False),
    Column("type", _text, nullable=False),
    Column("batch_id", _text, nullable=False),
    _count("round"),
    Column("snapshot", LargeBinary, nullable=False),
    Column("state", _text, nullable=False),
    _count("attempts"),
    _count("waits_used"),
    _count("due_ms"),
    _count("epoch"),
    _words("owner"),  # who is sending it
    _count("last_status"),
    _words("last_error"),
    _count("created_at_ms"),
    _count("last_attempt_ms"),
    UniqueConstraint("delivery_id", name="delivery_by_id"),
    CheckConstraint("state IN ('pending', 'delivered', 'given_up')", name="delivery_state"),
    sqlite_autoincrement=True,
)
Index("delivery_by_webhook", delivery.c.webhook_id, delivery.c.seq)
Index("delivery_by_age", delivery.c.created_at_ms)
Index("delivery_due", delivery.c.due_ms, **_only(PENDING))
Index("delivery_due_by_webhook", delivery.c.webhook_id, delivery.c.due_ms, **_only(PENDING))

row_group = Table(
    "row_group",
    metadata,
    Column("tag", _text, nullable=False),
    Column("batch_id", _text, nullable=False),
    Column("vendor", _text, nullable=False),
    _words("vendor_batch_id"),
    Column("rows", LargeBinary, nullable=False),  # MessagePack: (request_index, attempts before) of each
    Column("ids", LargeBinary, nullable=False),  # MessagePack: what each is called there, or none
    _words("keeper"),
    _count("kept_at_ms"),
    PrimaryKeyConstraint("tag", name="row_group_key"),
)
Index("row_group_by_batch", row_group.c.batch_id)

alembic_version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", _text, nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Alembic's own, declared apart so that a new file can be stamped without importing Alembic."""
