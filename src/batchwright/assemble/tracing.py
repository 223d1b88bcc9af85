"""Whether this process traces, and with what: only where the environment names a collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

from batchwright.ports.observer import Trace
from batchwright.settings import Settings

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Of the process's environment alone: a `.env` that came with a project must not choose who is told of the work."""


@asynccontextmanager
async def tracing(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[Trace | None]:
    """What spans are told to while it is open; None: nobody wants them, and nothing was imported."""
    environ = settings.process_environment()
    named = next((name for name in ENDPOINTS if environ.get(name)), "")
    if not named:
        yield None
        return
    try:
        from batchwright.telemetry.otlp import OtlpTraces
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        say(
            f"{named} is set, but nothing is traced: that needs the extra `otel`. In a checkout: uv run --extra otel "
            'batchwright ...; installed: pip install "batchwright[otel]".'
        )
        yield None
        return
    traces = await asyncio.to_thread(OtlpTraces, version("batchwright"), say)
    try:
        yield traces
    finally:
        await asyncio.to_thread(traces.close)
