"""What a running batch, or a worker, is doing, in words: for the live panel and the plain lines. Pure."""

from __future__ import annotations

from batchwright.core.batch_spec import LaneKey
from batchwright.core.batch_state import BatchState
from batchwright.ports.batches import BatchStatus
from batchwright.ports.observer import WorkerView
from batchwright.runner.figures import count_text, duration_text, money_text, plural, rate_text, shown_text
from batchwright.runner.seams import Snapshot
from batchwright.runner.standing import ends_without_success

MAX_LANES = 4
MAX_REASON = 160
MAX_PLACE = 60


def plain_line(snapshot: Snapshot) -> str:
    """ "1,200/5,000 done, 12 failed, 812 rows/s, 5 s left, $0.31, 64 of 64 in flight; rate limit at openai gpt-4o"."""
    status = snapshot.status
    done = status.total - status.counts.open
    parts = [f"{count_text(done)}/{count_text(status.total)} done ({percent_text(done, status.total)})"]
    parts += ends_texts(snapshot)
    if snapshot.rows_per_s:
        parts.append(rate_text(snapshot.rows_per_s))
    if snapshot.eta_s >= 0 and status.counts.open:
        parts.append(f"{duration_text(snapshot.eta_s)} left")
    cost = cost_text(snapshot)
    if cost:
        parts.append(cost)
    if snapshot.view is not None:
        parts.append(f"{count_text(snapshot.view.in_flight)} in flight")
        if snapshot.view.retries_waiting:
            parts.append(f"{plural(snapshot.view.retries_waiting, 'retry', 'retries')} waiting")
    reasons = waiting_texts(snapshot)
    return ", ".join(parts) + (f"; {'; '.join(reasons)}" if reasons else "")


def work_line(view: WorkerView) -> str:
    """ "1,200 requests answered so far, 64 in flight; openai: rate limit": of a worker on all batches, without end."""
    # Not rows: a retry's answer, and that of a row that is lost to another worker, count too.
    answers = f"{plural(view.answered, 'request')} answered so far"
    moves = view.in_flight or view.retries_waiting
    parts = [f"{answers}, {count_text(view.in_flight)} in flight" if moves else answers]
    # Rows may wait all the same, in segments that other workers hold.
    parts += ["no rows to take"] if view.idle_looks and not moves else []
    parts += [f"{lane.lane.partition('|')[0]}: {lane.waiting}" for lane in view.lanes if lane.waiting]
    parts += [view.note] if view.note else []
    return "; ".join(parts)


def percent_text(done: int, total: int) -> str:
    """Never 100% before the end, never 0% after the first: a person takes both for what they say."""
    if done >= total:
        return "100%"
    return f"{min(99, max(1 if done else 0, done * 100 // total))}%"


def cost_text(snapshot: Snapshot) -> str:
    """ "$0.31", "$0.31 of $5.00", "$0.31 known"; empty where nothing is known and there is no cap."""
    tally, spec = snapshot.status.tally, snapshot.status.spec
    if spec.max_cost_picousd >= 0:
        return f"{money_text(tally.cost_picousd)} of {money_text(spec.max_cost_picousd)}"
    if not tally.cost_picousd:
        return ""
    return money_text(tally.cost_picousd) + (" known" if tally.unpriced or tally.no_usage else "")


def ends_texts(snapshot: Snapshot) -> list[str]:
    """ "12 failed", "3 cancelled": rows that ended without success, by how; empty where there are none."""
    return [f"{count_text(number)} {name}" for name, number in ends_without_success(snapshot.status.counts) if number]


def waiting_texts(snapshot: Snapshot) -> list[str]:
    """Why nothing more is sent; empty while it goes."""
    texts: list[str] = []
    if snapshot.stopping:
        texts.append(snapshot.stopping)
    if snapshot.status.state is BatchState.CANCELLING:
        texts.append("cancelling: waiting for what is in flight")
    texts += [f"paused: {shown_text(pause.reason, MAX_REASON)}" for pause in snapshot.status.pauses]
    view = snapshot.view
    if view is None:  # another process works on it
        return texts + elsewhere_texts(snapshot.status)
    if view.note:
        texts.append(shown_text(view.note, MAX_REASON))
    several = len(view.lanes) > 1
    # What paused the lane for good is the reason of the batch's pause too, and is told once.
    reasons = [pause.reason for pause in snapshot.status.pauses]
    waiting = [lane for lane in view.lanes if lane.waiting and not any(lane.waiting in reason for reason in reasons)]
    for lane in waiting[:MAX_LANES]:
        reason = shown_text(lane.waiting, MAX_REASON)
        texts.append(f"{lane_text(lane.lane)}: {reason}" if several else reason)
    return texts


def elsewhere_texts(status: BatchStatus) -> list[str]:
    """What lanes of other processes' workers wait for, as far as it is not what paused the batch."""
    reasons = [pause.reason for pause in status.pauses]
    found = [one for one in status.waiting if not any(one.reason.removeprefix("paused: ") in text for text in reasons)]
    return [f"{_place_text(one.vendor, one.model)}: {shown_text(one.reason, MAX_REASON)}" for one in found[:MAX_LANES]]


def lane_text(lane: str) -> str:
    """ "openai gpt-4o" of "openai|OPENAI_API_KEY|gpt-4o"."""
    key = LaneKey.parse(lane)
    return _place_text(key.vendor, key.model)


def _place_text(vendor: str, model: str) -> str:
    return shown_text(f"{vendor} {model}".strip(), MAX_PLACE)
