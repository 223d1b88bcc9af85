"""What `batchwright serve` takes from the settings: where it listens, what it takes in, what it keeps and tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batchwright.server.service import Ceilings
from batchwright.settings.table import LogForm

CEILINGS = {
    "ceiling_rows": "rows",
    "ceiling_body": "array_bytes",
    "ceiling_stream": "stream_bytes",
    "ceiling_row": "row_bytes",
    "ceiling_export": "export_bytes",
}
"""Setting to field of `Ceilings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    host: str = "127.0.0.1"
    port: int = 8080
    """0: any free one."""
    log: LogForm = LogForm.PLAIN
    open_metrics: bool = False
    """`/metrics` asks for no key."""
    retention_s: float = 0.0
    """Batches that ended longer ago are deleted; 0: none is."""
    webhook_allow: tuple[str, ...] = ()
    """Hosts and networks beside the public internet that webhooks may lead to."""
    ceilings: Ceilings = field(default_factory=Ceilings)


def read_serving(values: Mapping[str, Any]) -> Serving:
    """`values`: what the settings' table has read, by setting name; what is not there is the default."""
    fields = {name: values[name] for name in ("host", "port", "log", "open_metrics", "webhook_allow") if name in values}
    ceilings = {CEILINGS[name]: values[name] for name in CEILINGS if name in values}
    return Serving(**fields, retention_s=values.get("retention", 0.0), ceilings=Ceilings(**ceilings))
