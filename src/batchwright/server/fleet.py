"""Workers and lanes for whoever runs them: what the store knows of both, put together, as the commands and the routes
show it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.responses import JSONResponse, Response

from batchwright.core.batch_spec import LaneKey, split_lane
from batchwright.core.lane_wait import LaneWait, WaitCause
from batchwright.core.quarantine import Quarantine, covering
from batchwright.core.shares import WHOLE_PPM, LaneUse
from batchwright.core.tenants import LOCAL_ACCOUNT
from batchwright.ports.fleet import FleetRow, WorkerRow
from batchwright.server.asking import Ask
from batchwright.server.faults import Fault

OPEN = "open"
"""The state of a lane that nothing holds back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStanding:
    """One lane, over all workers; or what a person closed and no worker has met."""

    vendor: str
    account: str
    """The name of the key's variable."""
    model: str
    """Empty: all of the vendor's."""
    place: str
    """Tells apart lanes that read alike and lead to different addresses; empty: of any."""
    cause: WaitCause | None
    """None: nothing holds it back."""
    reason: str
    """A sentence; empty for an open lane."""
    since_ms: int
    """Of what holds it back; 0 for an open lane."""
    uses: tuple[tuple[str, LaneUse], ...]
    """(worker's name, what it told), in the order of the workers' start."""

    @property
    def state(self) -> str:
        """In a word."""
        return OPEN if self.cause is None else self.cause.value

    @property
    def in_flight(self) -> int:
        return sum(use.in_flight for _, use in self.uses)

    @property
    def limits_per_minute(self) -> tuple[float, float]:
        """Requests and tokens, the most that a worker knows of; 0: no limit is known."""
        requests = max((use.requests_per_minute for _, use in self.uses), default=0.0)
        return requests, max((use.tokens_per_minute for _, use in self.uses), default=0.0)


def lanes_of(fleet: FleetRow, now_ms: int) -> list[LaneStanding]:
    """Every lane that a worker sends to or tells of, that is paused, or that a person closed; by name."""
    uses: dict[str, list[tuple[str, LaneUse]]] = {}
    waits: dict[str, LaneWait] = {}
    for row in fleet.workers:
        for use in row.uses:
            uses.setdefault(use.lane, []).append((row.worker.name, use))
        for wait in row.waits:
            longest = waits.get(wait.lane)
            if not wait.is_over(now_ms) and (longest is None or wait.since_ms < longest.since_ms):
                waits[wait.lane] = wait
    for pause in fleet.pauses:  # whatever a worker tells besides: it holds for all of them
        waits[pause.lane] = LaneWait(pause.lane, WaitCause.PAUSED, pause.reason, pause.since_ms, pause.probe_at_ms)
    found = [
        _standing(name, tuple(uses.get(name, ())), (waits.get(name), fleet.quarantines, now_ms))
        for name in sorted(uses.keys() | waits.keys())
    ]
    met = {(lane.vendor, model) for lane in found for model in (lane.model, "")}
    return found + [_closed(closed) for closed in fleet.quarantines if (closed.vendor, closed.model) not in met]


def _standing(
    name: str, uses: tuple[tuple[str, LaneUse], ...], held: tuple[LaneWait | None, tuple[Quarantine, ...], int]
) -> LaneStanding:
    wait, quarantines, now_ms = held
    text, place = split_lane(name)
    key = LaneKey.parse(text)
    cause: WaitCause | None = None
    reason, since_ms = "", 0
    closed = covering(quarantines, key)
    if closed is not None:
        cause, reason, since_ms = WaitCause.QUARANTINED, closed.sentence, closed.since_ms
    elif wait is not None and wait.cause is not WaitCause.QUARANTINED:  # else: opened again, and not heard of yet
        cause, reason, since_ms = wait.cause, wait.sentence(now_ms), wait.since_ms
    return LaneStanding(
        vendor=key.vendor,
        account=key.account,
        model=key.model,
        place=place,
        cause=cause,
        reason=reason,
        since_ms=since_ms,
        uses=uses,
    )


def _closed(closed: Quarantine) -> LaneStanding:
    return LaneStanding(
        vendor=closed.vendor,
        account="",
        model=closed.model,
        place="",
        cause=WaitCause.QUARANTINED,
        reason=closed.sentence,
        since_ms=closed.since_ms,
        uses=(),
    )


def place_of(row: WorkerRow) -> tuple[str, str]:
    """The host of a worker, and the place on it whose locks tell of it; the place is empty on a machine's own store."""
    host, _, place = row.host.partition("@")
    return host, place


def state_of(row: WorkerRow) -> str:
    if row.state.stopping:
        return "ending"
    if row.state.drained:
        return "drained" if row.draining else "working"
    return "draining" if row.draining else "working" if row.state.claims else "calls only"


# --------------------------------------------------------------------------------------------------------------- json


def worker_json(row: WorkerRow, segments: int, now_ms: int) -> dict[str, object]:
    host, place = place_of(row)
    state = row.state
    checkpoint = None
    if state.checkpoint_ms:
        checkpoint = {"at": _moment(state.checkpoint_ms), "seconds": state.checkpoint_duration_s}
    return {
        "name": row.worker.name,
        "incarnation": row.worker.incarnation,
        "host": host,
        "place": place or None,
        "pid": row.pid,
        "state": state_of(row),
        "since": _moment(row.started_at_ms),
        "last_heartbeat": _moment(row.heartbeat_ms),
        "batch_id": state.only_batch or None,
        "segments": segments,
        "in_flight": state.in_flight,
        "rows_per_minute": state.rows_per_minute,
        "last_checkpoint": checkpoint,
        "note": row.note or None,
        "lanes": [{**_lane_name(use.lane), **_use_json(use)} for use in row.uses],
        "waiting": [
            {**_lane_name(wait.lane), "cause": wait.cause.value, "reason": wait.sentence(now_ms)}
            for wait in row.waits
            if not wait.is_over(now_ms)
        ],
    }


def lane_json(lane: LaneStanding) -> dict[str, object]:
    requests, tokens = lane.limits_per_minute
    return {
        "vendor": lane.vendor,
        "model": lane.model or None,
        "key_env": lane.account or None,
        "place": lane.place or None,
        "state": lane.state,
        "reason": lane.reason or None,
        "since": _moment(lane.since_ms),
        "in_flight": lane.in_flight,
        "requests_per_minute": requests or None,
        "tokens_per_minute": tokens or None,
        "workers": [{"name": name, **_use_json(use)} for name, use in lane.uses],
    }


def _lane_name(name: str) -> dict[str, object]:
    key = LaneKey.parse(split_lane(name)[0])
    return {"vendor": key.vendor, "model": key.model or None}


def _use_json(use: LaneUse) -> dict[str, object]:
    shared = bool(use.requests_per_minute or use.tokens_per_minute)
    return {
        "in_flight": use.in_flight,
        "concurrency": use.concurrency,
        "demand": use.demand if shared else None,
        "share": use.share_ppm / WHOLE_PPM if shared else None,
    }


def _moment(moment_ms: int) -> str | None:
    if not moment_ms:
        return None
    return datetime.fromtimestamp(moment_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ------------------------------------------------------------------------------------------------------------- routes


async def workers(ask: Ask) -> Response:
    fleet = await _read(ask)
    now_ms = ask.service.clock.now_ms()
    return _answer(worker_json(row, fleet.segments.get(row.worker, 0), now_ms) for row in fleet.workers)


async def lanes(ask: Ask) -> Response:
    fleet = await _read(ask)
    return _answer(lane_json(lane) for lane in lanes_of(fleet, ask.service.clock.now_ms()))


async def _read(ask: Ask) -> FleetRow:
    assert ask.key is not None
    if ask.key.account != LOCAL_ACCOUNT:
        # Hosts and other accounts' models are nobody's business but that of who runs the service.
        raise Fault("FORBIDDEN", f"Workers and lanes are shown to the account {LOCAL_ACCOUNT} alone.")
    return await asyncio.to_thread(ask.service.insight.read_fleet)


def _answer(found: Iterable[dict[str, object]]) -> Response:
    return JSONResponse(list(found))
