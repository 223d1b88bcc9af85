"""`GET /metrics`: figures of this process and its store, in Prometheus' text format.

Labels are bounded (`ports.observer.NAMES_MAX`, templates of routes): no id of a batch, key or request is ever one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batchwright.core import row_map
from batchwright.core.batch_spec import LaneKey
from batchwright.core.histogram import BOUNDS_S, Histogram
from batchwright.core.money import usd_text
from batchwright.ports.observer import Backlog, WorkerFigures, WorkerView
from batchwright.server.insight import HttpFigures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, object], object]
"""(labels, value)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    worker: WorkerFigures
    view: WorkerView | None
    """None: no worker lives in this process."""
    works: bool
    """The worker takes rows of batches; with --no-work it only sends single calls."""
    backlog: Backlog
    http: HttpFigures
    now_ms: int


def metrics_text(figures: Figures) -> str:
    return "".join((*_worker(figures.worker), *_lanes(figures), *_store(figures), *_http(figures.http)))


def _worker(worker: WorkerFigures) -> Iterable[str]:
    yield _family(
        "rows_ended_total",
        "counter",
        "Rows that this process's worker brought to an end.",
        (
            ({"vendor": vendor, "model": model, **_end(byte)}, count)
            for (vendor, model, byte), count in sorted(worker.rows.items())
        ),
    )
    yield _family(
        "attempts_total",
        "counter",
        "Attempts of this process's worker, at rows and at single calls, by how they ended.",
        (
            ({"vendor": vendor, "model": model, "kind": kind or "answered"}, count)
            for (vendor, model, kind), count in sorted(worker.attempts.items())
        ),
    )
    yield _histogram("checkpoint_seconds", "How long commits of checkpoints took.", [({}, worker.checkpoints)])


def _end(byte: int) -> dict[str, str]:
    failed = byte in row_map.BYTE_KINDS
    return {"outcome": "failed" if failed else "ok", "kind": row_map.name_of(byte)}


def _lanes(figures: Figures) -> Iterable[str]:
    view = figures.view
    alive = int(figures.works and view is not None)
    about = "Whether a worker in this process takes rows of batches."
    yield _family("worker_up", "gauge", about, [({}, alive)])
    lanes = () if view is None else view.lanes
    in_flight: dict[tuple[str, str], int] = {}
    limits: dict[tuple[str, str], int] = {}
    for lane in lanes:
        vendor, _, model = LaneKey.parse(lane.lane)
        in_flight[vendor, model] = in_flight.get((vendor, model), 0) + lane.in_flight
        limits[vendor, model] = limits.get((vendor, model), 0) + lane.limit
    yield _family("in_flight", "gauge", "Rows at a vendor now.", _by_lane(in_flight))
    yield _family("lane_limit", "gauge", "Rows that may be at a vendor at once now.", _by_lane(limits))


def _by_lane(values: Mapping[tuple[str, str], int]) -> Iterable[Sample]:
    return (({"vendor": vendor, "model": model}, value) for (vendor, model), value in sorted(values.items()))


def _store(figures: Figures) -> Iterable[str]:
    backlog = figures.backlog
    states = (({"state": state}, backlog.batches.get(state, 0)) for state in ("accepting", "open", "paused"))
    yield _family("batches", "gauge", "Batches that have not ended.", states)
    since_ms = backlog.waiting_since_ms
    age_s = max(0.0, (figures.now_ms - since_ms) / 1000) if since_ms else 0
    yield _family(
        "queue_age_seconds",
        "gauge",
        "Age of the oldest batch with a segment that could be claimed.",
        [({}, f"{age_s:g}")],
    )
    fair = backlog.fairness
    about = "Accounts with segments that could be claimed, or that hold as many as they may."
    standing = (({"state": "waiting"}, fair.waiting), ({"state": "at_bound"}, fair.at_bound))
    yield _family("accounts", "gauge", about, standing)
    about = "Tokens, at weight 1, that the most served of waiting accounts is ahead of the least served."
    yield _family("account_spread_tokens", "gauge", about, [({}, fair.spread_tokens)])
    yield _family("workers", "gauge", "Live workers of all processes.", [({}, backlog.workers)])
    about = "Lanes that live workers of all processes cannot send to, or only by a probe, by why."
    yield _family("lanes_waiting", "gauge", about, _waiting(figures))
    closed = Counter(fact.vendor for fact in backlog.quarantines)
    about = "What a person has closed to all workers: models of a vendor, or all of them."
    yield _family("quarantines", "gauge", about, (({"vendor": name}, count) for name, count in sorted(closed.items())))
    by = [({"vendor": spent.vendor, "model": spent.model}, spent) for spent in backlog.spent]
    yield _family(
        "answers_total",
        "counter",
        "Answers that vendors gave, over all workers and time.",
        ((labels, spent.answers) for labels, spent in by),
    )
    yield _family(
        "tokens_total",
        "counter",
        "Tokens that vendors counted, over all workers and time.",
        (
            sample
            for labels, spent in by
            for sample in (
                ({**labels, "kind": "prompt"}, spent.prompt_tokens),
                ({**labels, "kind": "completion"}, spent.completion_tokens),
            )
        ),
    )
    yield _family(
        "cost_usd_total",
        "counter",
        "Known cost of answers, over all workers and time.",
        ((labels, usd_text(spent.cost_picousd)) for labels, spent in by),
    )


def _waiting(figures: Figures) -> Iterable[Sample]:
    """By vendor: a lane's model comes from a row. Each lane counts once, however many workers tell of it."""
    waits = {wait.lane: wait for wait in figures.backlog.waits if not wait.is_over(figures.now_ms)}
    by = Counter((LaneKey.parse(wait.lane_text).vendor, wait.cause.value) for wait in waits.values())
    return (({"vendor": vendor, "cause": cause}, lanes) for (vendor, cause), lanes in sorted(by.items()))


def _http(http: HttpFigures) -> Iterable[str]:
    yield _family(
        "http_requests_total",
        "counter",
        "Requests that were answered.",
        (
            ({"method": method, "route": route, "status": status}, count)
            for (method, route, status), count in sorted(http.requests.items())
        ),
    )
    yield _family("http_in_flight", "gauge", "Requests that are being answered.", [({}, http.in_flight)])
    by_route = [({"route": route}, histogram) for route, histogram in sorted(http.seconds.items())]
    yield _histogram("http_request_seconds", "How long requests took.", by_route)


def _histogram(name: str, meaning: str, histograms: Iterable[tuple[Mapping[str, object], Histogram]]) -> str:
    lines = [_head(name, "histogram", meaning)]
    for labels, histogram in histograms:
        for bound, count in zip((*BOUNDS_S, "+Inf"), histogram.cumulative, strict=True):
            lines.append(_line(f"{name}_bucket", {**labels, "le": bound}, count))
        lines.append(_line(f"{name}_sum", labels, repr(histogram.sum_s)))
        lines.append(_line(f"{name}_count", labels, histogram.cumulative[-1]))
    return "".join(lines)


def _family(name: str, kind: str, meaning: str, samples: Iterable[Sample]) -> str:
    return _head(name, kind, meaning) + "".join(_line(name, labels, value) for labels, value in samples)


def _head(name: str, kind: str, meaning: str) -> str:
    return f"# HELP batchwright_{name} {meaning}\n# TYPE batchwright_{name} {kind}\n"


def _line(name: str, labels: Mapping[str, object], value: object) -> str:
    inner = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"batchwright_{name}{{{inner}}} {value}\n" if inner else f"batchwright_{name} {value}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
