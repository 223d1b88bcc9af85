"""The first schema. What the tables mean stands in `store.schema`; a migration is never changed once it was released.

Revision 0001j, after none.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001j"
down_revision = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:  # noqa: PLR0915  # a list of tables
    op.create_table(
        "allowance",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("picousd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "worker_id", name="allowance_key"),
        sa.CheckConstraint("picousd >= 0", name="allowance_picousd"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "api_key",
        sa.Column("key_id", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("shown", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("name", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("scopes", TEXT, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revoked_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_used_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("budget_picousd", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("rpm", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="api_key_key"),
        sa.UniqueConstraint("digest", name="api_key_by_digest"),
    )
    op.create_table(
        "idempotency",
        sa.Column("account", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("account", "key", name="idempotency_key"),
        sqlite_with_rowid=False,
    )
    op.create_index("idempotency_by_batch", "idempotency", ["batch_id"], unique=False)
    op.create_table(
        "file",
        sa.Column("seq", NUMBER, sa.Identity(), autoincrement=True, nullable=False),
        sa.Column("file_id", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("purpose", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("filename", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("pieces", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("owner", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("batch_id", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("round", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("file_id", name="file_by_id"),
        sa.CheckConstraint("state IN ('arriving', 'ready', 'deleted', 'kept')", name="file_state"),
        sqlite_autoincrement=True,
    )
    op.create_index("file_by_account", "file", ["account", "seq"], unique=False)
    op.create_index("file_by_batch", "file", ["batch_id"], unique=False, **_only("batch_id <> ''"))
    op.create_index(
        "file_expiry",
        "file",
        ["expires_at_ms"],
        unique=False,
        **_only("state = 'ready' AND batch_id = '' AND expires_at_ms > 0"),
    )
    op.create_index(
        "file_unready",
        "file",
        ["state", "seq"],
        unique=False,
        **_only("state IN ('arriving', 'deleted') AND batch_id = ''"),
    )
    op.create_table(
        "file_batch",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("file_id", TEXT, nullable=False),
        sa.Column("endpoint", TEXT, nullable=False),
        sa.Column("completion_window", TEXT, nullable=False),
        sa.Column("output_expires_s", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("model", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("in_progress_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cancelling_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("errors", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", name="file_batch_key"),
    )
    op.create_index("file_batch_by_file", "file_batch", ["file_id"], unique=False)
    op.create_table(
        "batch",
        sa.Column("seq", NUMBER, sa.Identity(), autoincrement=True, nullable=False),
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("key_id", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("identity", TEXT, nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("settled_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("phase", TEXT, nullable=False),
        sa.Column("closing", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("paused", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("gate_passed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("round", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rows", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("segments", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("segments_open", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("priority", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cap_picousd", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("cap_soft", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("worst_picousd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unbounded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reopen_next", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reopen_bytes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("batch_id", name="batch_by_id"),
        sa.CheckConstraint(
            "phase IN ('accepting', 'open', 'settled', 'reopening', 'refused', 'dropping')", name="batch_phase"
        ),
        sa.CheckConstraint("segments_open >= 0", name="batch_segments_open"),
        sqlite_autoincrement=True,
    )
    op.create_index("batch_by_account", "batch", ["account", "seq"], unique=False)
    op.create_index("batch_by_day", "batch", ["created_at_ms"], unique=False)
    op.create_index("batch_by_identity", "batch", ["identity"], unique=False)
    op.create_index("batch_by_phase", "batch", ["phase"], unique=False)
    op.create_index("batch_by_source", "batch", ["source"], unique=False)
    op.create_index("batch_ended", "batch", ["settled_at_ms"], unique=False, **_only("settled_at_ms > 0"))
    op.create_index(
        "batch_unsettled_of_key",
        "batch",
        ["key_id"],
        unique=False,
        **_only("phase <> 'settled' AND phase <> 'refused' AND phase <> 'dropping' AND key_id <> ''"),
    )
    op.create_index("batch_closing", "batch", ["seq"], unique=False, **_only("phase = 'open' AND closing <> ''"))
    op.create_index(
        "batch_deadline",
        "batch",
        ["deadline_ms"],
        unique=False,
        **_only("phase = 'open' AND closing = '' AND deadline_ms > 0"),
    )
    op.create_table(
        "blob",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("superseded_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("object", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("object_size", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("object_offset", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("size", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="blob_key"),
        postgresql_partition_by="RANGE (key)",
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL")
        op.execute("CREATE TABLE blob_undated PARTITION OF blob FOR VALUES FROM ('a') TO (MAXVALUE)")
    op.create_index("blob_by_object", "blob", ["object"], unique=False, **_only("object <> ''"))
    op.create_index("blob_superseded", "blob", ["superseded_at_ms"], unique=False, **_only("superseded_at_ms > 0"))
    op.create_table(
        "fact",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="fact_key"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "custom_ids",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "number", name="custom_ids_key"),
    )
    op.create_table(
        "lane_pause",
        sa.Column("lane", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("since_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("probe_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("lane", name="lane_pause_key"),
    )
    op.create_table(
        "lease",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("until_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="lease_key"),
    )
    op.create_table(
        "part",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("blob_key", TEXT, nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "number", "round", "epoch", "seq", name="part_key"),
        sqlite_with_rowid=False,
    )
    op.create_index("part_by_blob", "part", ["blob_key"], unique=False)
    op.create_table(
        "pause",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("cause", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("since_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lane", TEXT, server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "cause", name="pause_key"),
    )
    op.create_index("pause_of_lanes", "pause", ["batch_id"], unique=False, **_only("cause = 'lane'"))
    op.create_table(
        "pick",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("lane_set", TEXT, nullable=False),
        sa.Column("waiting", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ready", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("behind", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "lane_set", name="pick_key"),
        sa.CheckConstraint("waiting >= 0", name="pick_waiting"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "pick_in_turn",
        "pick",
        ["account", "lane_set", "behind", "turn", "seq", "created_at_ms"],
        unique=False,
        **_only("ready = 1 AND waiting > 0"),
    )
    op.create_index(
        "pick_urgent",
        "pick",
        ["lane_set", "deadline_ms"],
        unique=False,
        **_only("ready = 1 AND waiting > 0 AND deadline_ms > 0"),
    )
    op.create_table(
        "queue",
        sa.Column("account", TEXT, nullable=False),
        sa.Column("lane_set", TEXT, nullable=False),
        sa.Column("state", sa.BigInteger(), nullable=False),
        sa.Column("virtual", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("account", "lane_set", name="queue_key"),
        sa.CheckConstraint("state IN (0, 1, 2)", name="queue_state"),
        sqlite_with_rowid=False,
    )
    op.create_index("queue_waiting", "queue", ["lane_set", "virtual", "account"], unique=False, **_only("state = 1"))
    op.create_index("queue_resting", "queue", ["virtual"], unique=False, **_only("state <> 1"))
    op.create_table(
        "share",
        sa.Column("account", TEXT, nullable=False),
        sa.Column("weight", sa.BigInteger(), server_default=sa.text("100"), nullable=False),
        sa.Column("in_flight", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("account", name="share_key"),
        sa.CheckConstraint("weight > 0", name="share_weight"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "quarantine",
        sa.Column("vendor", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("reason", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("vendor", "model", name="quarantine_key"),
    )
    op.create_table(
        "segment",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("first_index", sa.BigInteger(), nullable=False),
        sa.Column("row_map", sa.LargeBinary(), nullable=False),
        sa.Column("previous_map", sa.LargeBinary(), nullable=True),
        sa.Column("open", sa.BigInteger(), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("round", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("holder", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rank", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("deaths", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lost_alone", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("window", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("not_before_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("closed_as", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("lane_set", TEXT, nullable=False),
        sa.Column("all_lanes", TEXT, nullable=False),
        sa.Column("input_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("account", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("charged", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("weight", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "number", name="segment_key"),
        sa.CheckConstraint("state IN ('waiting', 'parked', 'held', 'settled')", name="segment_state"),
        sa.CheckConstraint("(state = 'settled') = (open = 0)", name="segment_settled"),
    )
    op.create_index("segment_by_holder", "segment", ["holder"], unique=False, **_only("holder <> 0"))
    op.create_index(
        "segment_held_in_turn", "segment", ["account"], unique=False, **_only("state = 'held' AND weight > 0")
    )
    op.create_index("segment_by_row", "segment", ["batch_id", "first_index"], unique=True)
    op.create_index("segment_parked", "segment", ["not_before_ms"], unique=False, **_only("state = 'parked'"))
    op.create_index("segment_unsettled", "segment", ["batch_id", "number"], unique=False, **_only("state <> 'settled'"))
    op.create_index(
        "segment_waiting",
        "segment",
        ["batch_id", "lane_set", "rank"],
        unique=False,
        **_only("state = 'waiting'"),
    )
    op.create_table(
        "tally",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("retries", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unreached", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_picousd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unpriced", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("no_usage", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("doubts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("possible_picousd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("orphan_picousd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("orphans", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "round", "worker_id", name="tally_key"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tally_count",
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("byte", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "round", "worker_id", "byte", name="tally_count_key"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "usage",
        sa.Column("day", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("vendor", TEXT, nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("key_id", TEXT, nullable=False),
        sa.Column("endpoint", TEXT, nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("answers", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_picousd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unpriced", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("no_usage", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint(
            *("day", "account", "model", "vendor", "tenant", "key_id", "endpoint", "worker_id"), name="usage_key"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_by_key", "usage", ["key_id"], unique=False, **_only("key_id <> ''"))
    op.create_table(
        "webhook",
        sa.Column("webhook_id", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("batch_id", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("url", TEXT, nullable=False),
        sa.Column("events", TEXT, nullable=False),
        sa.Column("secret", TEXT, nullable=False),
        sa.Column("description", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("headers", TEXT, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", name="webhook_key"),
    )
    op.create_index("webhook_by_account", "webhook", ["account", "batch_id"], unique=False)
    op.create_table(
        "delivery",
        sa.Column("seq", NUMBER, sa.Identity(), autoincrement=True, nullable=False),
        sa.Column("delivery_id", TEXT, nullable=False),
        sa.Column("webhook_id", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("event_id", TEXT, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("round", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("snapshot", sa.LargeBinary(), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("waits_used", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("last_status", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_attempt_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("delivery_id", name="delivery_by_id"),
        sa.CheckConstraint("state IN ('pending', 'delivered', 'given_up')", name="delivery_state"),
        sqlite_autoincrement=True,
    )
    op.create_index("delivery_by_webhook", "delivery", ["webhook_id", "seq"], unique=False)
    op.create_index("delivery_by_age", "delivery", ["created_at_ms"], unique=False)
    op.create_index("delivery_due", "delivery", ["due_ms"], unique=False, **_only("state = 'pending'"))
    op.create_index(
        "delivery_due_by_webhook",
        "delivery",
        ["webhook_id", "due_ms"],
        unique=False,
        **_only("state = 'pending'"),
    )
    op.create_table(
        "worker",
        sa.Column("id", NUMBER, sa.Identity(), autoincrement=True, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("incarnation", TEXT, nullable=False),
        sa.Column("host", TEXT, nullable=False),
        sa.Column("pid", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("heartbeat_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("dead", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ended", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("note", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("lanes", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("waits", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("state", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("draining", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("checkpoint_number", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "incarnation", name="worker_by_name"),
        sqlite_autoincrement=True,
    )
    op.create_index("worker_live", "worker", ["id"], unique=False, **_only("dead = 0 AND ended = 0"))
    op.create_table(
        "row_group",
        sa.Column("tag", TEXT, nullable=False),
        sa.Column("batch_id", TEXT, nullable=False),
        sa.Column("vendor", TEXT, nullable=False),
        sa.Column("vendor_batch_id", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("rows", sa.LargeBinary(), nullable=False),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
        sa.Column("keeper", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("kept_at_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("tag", name="row_group_key"),
    )
    op.create_index("row_group_by_batch", "row_group", ["batch_id"], unique=False)
