from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.money import picousd_from_usd
from batchwright.core.records import Tally
from batchwright.ports.batches import BatchStatus
from batchwright.ports.observer import LaneView, WorkerView
from batchwright.runner.live_progress import LiveProgress, panel
from batchwright.runner.meter import Meter
from batchwright.runner.plain_progress import PlainProgress
from batchwright.runner.progress import open_display
from batchwright.runner.progress_text import percent_text, plain_line, waiting_texts, work_line
from batchwright.runner.seams import Snapshot
from support.batch_samples import failed, ok, spec_of, status_of


def view_of(*lanes: LaneView, note: str = "", retries: int = 0) -> WorkerView:
    return WorkerView(
        in_flight=sum(lane.in_flight for lane in lanes), answered=0, retries_waiting=retries, lanes=lanes, note=note
    )


def snapshot_of(status: BatchStatus, *, elapsed_s: float = 10.0, view: WorkerView | None = None) -> Snapshot:
    return Snapshot(
        status=status,
        view=view,
        now_ms=int(elapsed_s * 1000),
        elapsed_s=elapsed_s,
        rows_per_s=812.4,
        eta_s=2.3,
        stopping="",
    )


RUNNING = status_of(
    {ok(): 3_084, ok(Flag.TRUNCATED): 4, failed(FailureKind.TIMEOUT): 12},
    total=5_000,
    tally=Tally(cost_picousd=picousd_from_usd("0.86"), attempts=3_100),
    spec=spec_of(max_cost_picousd=picousd_from_usd(5)),
)
LANE = LaneView(lane="acme|KEY|m-small", in_flight=60, limit=64, waiting="")
SLOW_LANE = LaneView(lane="other|KEY|m|x", in_flight=4, limit=8, waiting="rate limit, 3 s")


def drawn(snapshot: Snapshot) -> str:
    out = io.StringIO()
    Console(file=out, width=100, no_color=True).print(panel(snapshot))
    return out.getvalue()


def test_the_panel_has_what_people_look_for() -> None:
    text = drawn(snapshot_of(RUNNING, view=view_of(LANE, retries=3)))
    for part in (
        "tickets.jsonl", "62%", "3,100 of 5,000", "3,088 ok (4 truncated)", "12 failed", "$0.86 of $5.00",
        "812 rows/s", "2.3 s left", "60 of 64 in flight", "3 retries waiting",
    ):  # fmt: skip
        assert part in text, part


def test_several_lanes_stand_apart_and_say_why_they_wait() -> None:
    text = drawn(snapshot_of(RUNNING, view=view_of(LANE, SLOW_LANE)))
    assert "acme m-small  60 of 64" in text
    assert "waiting  other m|x: rate limit, 3 s" in text


def test_a_pause_and_a_workers_note_are_reasons() -> None:
    paused = status_of({ok(): 1}, total=2, pauses=[Pause(cause=PauseCause.LANE, reason="no credit left", since_ms=1)])
    text = plain_line(snapshot_of(paused, view=view_of(note="ACME_KEY is not set")))
    assert text.endswith("; paused: no credit left; ACME_KEY is not set")


def test_no_hundred_before_the_end_and_no_zero_after_the_first() -> None:
    assert percent_text(99_999, 100_000) == "99%"
    assert percent_text(1, 100_000) == "1%"
    assert percent_text(0, 5) == "0%"
    assert percent_text(5, 5) == "100%"


def test_plain_lines_come_rarely_and_a_reason_at_once() -> None:
    out = io.StringIO()
    display = PlainProgress(out)
    for tenths in range(0, 300):
        display.show(snapshot_of(RUNNING, elapsed_s=tenths / 10))
    assert len(out.getvalue().splitlines()) == 5
    display.show(snapshot_of(RUNNING, elapsed_s=31.5, view=view_of(SLOW_LANE)))
    assert out.getvalue().splitlines()[-1].endswith("; rate limit, 3 s")
    display.show(snapshot_of(RUNNING, elapsed_s=31.9, view=view_of(SLOW_LANE)))
    assert len(out.getvalue().splitlines()) == 6


def test_plain_line() -> None:
    text = plain_line(snapshot_of(RUNNING, view=view_of(LANE)))
    assert text == ("3,100/5,000 done (62%), 12 failed, 812 rows/s, 2.3 s left, $0.86 of $5.00, 60 in flight")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_lines_and_a_terminal_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(open_display("auto", io.StringIO()), PlainProgress)
    assert isinstance(open_display("auto", Terminal()), LiveProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_display("auto", Terminal()), PlainProgress)


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def escapes() -> str:
        out = Terminal()
        display = LiveProgress(out)
        display.say("a line that stays")
        display.show(snapshot_of(RUNNING, view=view_of(LANE)))
        display.close()
        assert "a line that stays" in out.getvalue()
        return out.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m" in escapes()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in escapes()


def test_meter_follows_the_last_seconds() -> None:
    meter = Meter(0.0, 0)
    for second in range(1, 31):
        meter.note(float(second), second * 100 if second <= 15 else 1_500 + (second - 15) * 10)
    assert meter.rows_per_s() == pytest.approx(10.0)
    assert meter.eta_s(50) == pytest.approx(5.0)
    assert Meter(0.0, 5).eta_s(10) == -1.0


def test_nothing_is_promised_while_nothing_moves() -> None:
    meter = Meter(0.0, 0)
    for tenths in range(1, 101):
        meter.note(tenths / 10, tenths)
    assert meter.eta_s(100) == pytest.approx(10.0)
    for tenths in range(101, 125):
        meter.note(tenths / 10, 100)
    assert (meter.rows_per_s(), meter.eta_s(100)) == (0.0, -1.0)
    slow = Meter(0.0, 0)
    for second in range(1, 21):
        slow.note(float(second), second // 4)
    assert slow.rows_per_s() > 0, "rows that come rarely come all the same"


def test_a_process_that_was_stopped_for_a_while_has_no_pace_of_that_time() -> None:
    meter = Meter(0.0, 0)
    for second in range(1, 11):
        meter.note(float(second), second * 100)
    meter.note(610.0, 1_010)
    assert (meter.rows_per_s(), meter.eta_s(900)) == (0.0, -1.0)
    meter.note(611.0, 1_110)
    assert meter.rows_per_s() == pytest.approx(100.0)


def test_lanes_keep_their_places() -> None:
    busy = replace(SLOW_LANE, in_flight=8)
    idle = replace(LANE, in_flight=0)
    for lanes in ((LANE, SLOW_LANE), (busy, idle)):
        text = drawn(snapshot_of(RUNNING, view=view_of(*lanes)))
        assert text.index("acme m-small") < text.index("other m|x")


def test_lines_are_cut_at_a_word() -> None:
    lane = replace(SLOW_LANE, waiting="an unhelpful sentence of many words " * 6)
    snapshot = snapshot_of(RUNNING, view=view_of(LANE, lane, retries=12_345))
    for columns in (40, 80):
        out = io.StringIO()
        Console(file=out, width=columns, no_color=True).print(panel(snapshot, columns))
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        assert len(lines) == 7, lines
        words = set(drawn_words(snapshot))
        for line in (line for line in lines if line.endswith("…")):
            assert set(line.removesuffix("…").split()) <= words


def drawn_words(snapshot: Snapshot) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=1_000, no_color=True).print(panel(snapshot, 1_000))
    return out.getvalue().split()


def test_a_pause_is_told_once_in_plain_lines() -> None:
    out = io.StringIO()
    display = PlainProgress(out)
    pause = Pause(cause=PauseCause.LANE, reason="no credit left", since_ms=1)
    paused = snapshot_of(status_of({ok(): 1}, total=2, pauses=[pause]), elapsed_s=1.5)
    display.show(paused)
    for _ in range(3):
        display.show(replace(paused, elapsed_s=1.7, stopping="waiting for what is in flight"))
    assert out.getvalue().count("no credit left") == 1


def test_plain_lines_say_at_once_that_an_interrupt_was_heard() -> None:
    out = io.StringIO()
    display = PlainProgress(out)
    running = snapshot_of(RUNNING, elapsed_s=0.5)
    display.show(running)
    assert out.getvalue() == ""
    for _ in range(3):
        display.show(replace(running, stopping="stopping: waiting for what is in flight"))
    display.show(running)
    (line,) = out.getvalue().splitlines()
    assert "stopping: waiting" in line, "that it is over is no news: the report comes"


def test_a_reason_is_told_once() -> None:
    pause = Pause(cause=PauseCause.LANE, reason="acme, m-small: auth (401): revoked", since_ms=1)
    paused = status_of({ok(): 1}, total=2, pauses=[pause])
    lane = replace(LANE, waiting="auth (401): revoked")
    snapshot = replace(snapshot_of(paused, view=view_of(lane)), stopping="waiting for what is in flight")
    assert waiting_texts(snapshot) == ["waiting for what is in flight", "paused: acme, m-small: auth (401): revoked"]


def test_a_terminal_that_is_gone_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setenv("TERM", "xterm-256color")
    display = LiveProgress(Gone())
    display.say("a line")
    display.show(snapshot_of(RUNNING))
    display.close()


@pytest.mark.parametrize(
    ("view", "line"),
    [
        (replace(view_of(), idle_looks=1), "0 requests answered so far; no rows to take"),
        (view_of(), "0 requests answered so far"),
        (view_of(retries=2), "0 requests answered so far, 0 in flight"),
        (
            view_of(
                LaneView(lane="openai|KEY|m", in_flight=1_200, limit=2_000, waiting="rate limit"),
                LaneView(lane="groq|KEY|m", in_flight=0, limit=16, waiting=""),
                note="the variable KEY is not set here",
            ),
            "0 requests answered so far, 1,200 in flight; openai: rate limit; the variable KEY is not set here",
        ),
    ],
)
def test_a_worker_says_what_it_does_and_what_it_lacks(view: WorkerView, line: str) -> None:
    assert work_line(view) == line
