"""`workers` and `lanes`: what is shown in every form, and by which words workers and lanes are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchwright.cli import screen
from batchwright.core.lane_wait import LaneWait, WaitCause
from batchwright.core.shares import LaneUse
from batchwright.core.worker_id import WorkerId
from batchwright.core.worker_state import WorkerState
from batchwright.fabric.system import SystemClock
from batchwright.ports.store import LanePause, Store
from batchwright.store.open import open_store
from support.cli_machine import Invoke
from support.store_drive import new_segment, submit

LARGE, SMALL = "openai|KEY|large#aaaaaaaa", "openai|KEY|small#aaaaaaaa"
NOW_MS = SystemClock().now_ms() + 3_600_000
"""Of heartbeats: their leases hold for as long as any test here."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two workers of another machine; one of them for a `run` alone."""
    found = open_store(tmp_path / "state" / "batchwright.sqlite")
    for number, name in enumerate(("afar-11", "afar-12")):
        found.register_worker(WorkerId(name, "1"), host="afar@aaaa", pid=11 + number, now_ms=NOW_MS + number)
    found.heartbeat(
        WorkerId("afar-11", "1"),
        NOW_MS,
        note="KEY2 is not set here",
        uses=[LaneUse(LARGE, in_flight=4, concurrency=16, requests_per_minute=600.0, demand=100.0)],
        waits=[LaneWait(SMALL, WaitCause.OUTAGE, "HTTP 503", NOW_MS - 12_000, 0)],
        state=WorkerState(in_flight=4, rows_per_minute=123.4, checkpoint_ms=NOW_MS, checkpoint_duration_s=0.012),
    )
    found.heartbeat(WorkerId("afar-12", "1"), NOW_MS, state=WorkerState(only_batch="batch_aa"))
    yield found
    found.close()


def test_workers_are_listed_with_what_they_told(store: Store, invoke: Invoke) -> None:
    first, second = (json.loads(line) for line in invoke("workers", "--json").stdout.splitlines())
    assert (first["name"], first["host"], first["place"], first["pid"]) == ("afar-11", "afar", "aaaa", 11)
    assert (first["state"], first["segments"], first["in_flight"], first["rows_per_minute"]) == ("working", 0, 4, 123.4)
    assert first["last_checkpoint"] == {"at": screen.moment_text(NOW_MS), "seconds": 0.012}
    assert first["lanes"] == [
        {"vendor": "openai", "model": "large", "in_flight": 4, "concurrency": 16, "demand": 100.0, "share": 1.0}
    ]
    assert [(wait["model"], wait["cause"]) for wait in first["waiting"]] == [("small", "outage")]
    assert (second["batch_id"], second["last_checkpoint"], second["note"]) == ("batch_aa", None, None)
    one, two = (line.split("\t") for line in invoke("workers").stdout.splitlines())
    assert one[:7] == ["afar-11", "afar", "11", "working", "0", "4", "123.4"]
    assert one[8] == f"{screen.moment_text(NOW_MS)} 12 ms"
    assert (one[10], two[10]) == ("KEY2 is not set here", "batch_aa alone")
    assert "HTTP 503" in one[11]


def test_tables_fit_80_columns(store: Store, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "is_table", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    invoke("lanes", "pause", "openai/large", "--reason", "wrong answers since the model was changed yesterday")
    for what, words in (("workers", ("WORKER", "STATE", "HEARD")), ("lanes", ("VENDOR", "MODEL", "STATE"))):
        heading, *lines = invoke(what).stdout.splitlines()
        assert set(words) <= set(heading.split())
        assert len(lines) == 2
        assert all(len(line) <= 80 for line in (heading, *lines))


def test_lanes_are_listed_with_their_limits_and_what_holds_them(store: Store, invoke: Invoke) -> None:
    store.pause_lane(LanePause(lane="north||m#bbbbbbbb", reason="no credit left", since_ms=NOW_MS, probe_at_ms=NOW_MS))
    assert invoke("lanes", "pause", "openai/large", "--reason", "odd answers").exit_code == 0
    refused = invoke("lanes", "pause", "nowhere")
    assert refused.exit_code == 2
    assert "no vendor 'nowhere' is in the settings here" in refused.stderr
    assert "there are: local, north, openai, simulated." in refused.stderr
    assert [fact.name for fact in store.quarantines()] == ["openai/large"], "nothing was closed"
    assert invoke("lanes", "pause", "nowhere", "--force").exit_code == 0
    found = {
        (lane["vendor"], lane["model"]): lane
        for lane in (json.loads(line) for line in invoke("lanes", "--json").stdout.splitlines())
    }
    assert {names: lane["state"] for names, lane in found.items()} == {
        ("north", "m"): "paused",
        ("openai", "large"): "quarantined",
        ("openai", "small"): "outage",
        ("nowhere", None): "quarantined",
    }
    large = found["openai", "large"]
    assert (large["requests_per_minute"], large["tokens_per_minute"], large["in_flight"]) == (600, None, 4)
    assert [(worker["name"], worker["share"]) for worker in large["workers"]] == [("afar-11", 1.0)]
    assert "odd answers" in large["reason"]
    assert found["north", "m"]["reason"] == "paused: no credit left"
    lines = {tuple(line.split("\t")[:3]): line.split("\t") for line in invoke("lanes").stdout.splitlines()}
    assert lines["openai", "large", "quarantined"][-1] == "afar-11 100%"


def test_what_was_closed_is_opened_by_the_same_name(store: Store, invoke: Invoke) -> None:
    invoke("lanes", "pause", "openai")
    invoke("lanes", "pause", "openai/large")
    covered = invoke("lanes", "resume", "openai/large")
    assert (covered.exit_code, "openai/large stays closed with openai" in covered.stderr) == (2, True)
    assert "openai is open again" in invoke("lanes", "resume", "openai").stderr
    none = invoke("lanes", "resume", "openai")
    assert (none.exit_code, "quarantined are: none" in none.stderr) == (2, True)
    for wrong in ("", "/m", "openai/", "a|b/m"):
        refused = invoke("lanes", "pause", wrong)
        assert (refused.exit_code, "VENDOR/MODEL" in refused.stderr) == (2, True), wrong
    assert store.quarantines() == []


def test_lanes_that_workers_paused_are_tried_again(store: Store, invoke: Invoke) -> None:
    for lane in ("north||m#bbbbbbbb", "north||n#bbbbbbbb", "south||m#cccccccc"):
        store.pause_lane(LanePause(lane=lane, reason="no credit left", since_ms=NOW_MS, probe_at_ms=NOW_MS))
    assert "2 lanes that workers had paused" in invoke("lanes", "resume", "north").stderr
    assert [pause.lane for pause in store.lane_pauses()] == ["south||m#cccccccc"]


def test_a_worker_is_named_by_the_beginning_of_its_name(store: Store, invoke: Invoke) -> None:
    several = invoke("workers", "drain", "afar")
    assert (several.exit_code, "afar-11, afar-12" in several.stderr) == (2, True)
    alone = invoke("workers", "drain", "afar-12")
    assert (alone.exit_code, "works for a command that runs batch_aa alone" in alone.stderr) == (2, True)
    assert invoke("workers", "drain", "afar-11", "nobody").exit_code == 2, "all or none"
    assert [row.draining for row in store.live_workers()] == [False, False]
    assert invoke("workers", "drain", "afar-11").exit_code == 0
    assert [row.draining for row in store.live_workers()] == [True, False]
    first = invoke("workers", "--json").stdout.splitlines()[0]
    assert json.loads(first)["state"] == "draining"


def test_json_is_of_the_lists_alone(invoke: Invoke) -> None:
    assert invoke("workers", "--json", "drain", "w").exit_code == 2
    assert invoke("lanes", "--json", "pause", "openai").exit_code == 2
    assert "No worker is alive." in invoke("workers").stderr
    assert "No worker sends to any vendor now" in invoke("lanes").stderr


def test_resume_says_which_closed_lane_its_rows_cannot_do_without(store: Store, invoke: Invoke) -> None:
    submit(store, "batch_aa", [new_segment(0, lanes="openai|KEY|large")])
    submit(store, "batch_bb", [new_segment(0, lanes="openai|KEY|large\nopenai|KEY|small")])
    invoke("lanes", "pause", "openai/large")
    one, other = (invoke("resume", batch_id, "--no-run") for batch_id in ("batch_aa", "batch_bb"))
    assert (one.exit_code, other.exit_code) == (0, 0), one.stderr + other.stderr
    assert "openai/large is still closed to all workers: `batchwright lanes resume openai/large` opens it" in one.stderr
    assert "closed" not in other.stderr
