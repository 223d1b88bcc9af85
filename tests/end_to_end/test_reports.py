"""What people report of tools like this one, each as a run of the command against a scripted vendor.

A case is a whole kind of fault, not one sample of it. Most of their time is waiting (for a vendor's latency, a
`Retry-After`, a deadline), so all of them begin together, the slowest first.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import batchwright
from batchwright import assemble, settings
from batchwright.core.errors import WrongState
from batchwright.vendors import openai as openai_vendor
from support.command_line import CommandLine, Ended, Started, chat_row, content
from support.scripted_vendor import ScriptedVendor
from support.together import Together

SEPARATORS = "\u2028\u2029\u0085"


class Case:
    """A command line, a vendor, and the command that most cases give."""

    def __init__(self, folder: Path, vendor: ScriptedVendor) -> None:
        self.command = CommandLine(folder)
        self.vendor = vendor

    def start(self, rows: list[Any] | bytes | None, *options: str, name: str = "rows.jsonl", **named: Any) -> Started:
        """`rows` None: the file that is there already."""
        if isinstance(rows, bytes):
            (self.command.folder / name).write_bytes(rows)
        elif rows is not None:
            self.command.write(name, rows)
        output = () if "-o" in options else ("-o", "out.jsonl")
        return self.command.start(
            *("run", name, *output, "--base-url", self.vendor.base_url, "--api-key-env", "", "--json"),
            *(*(() if "--progress" in options else ("--progress", "none")), *options),
            **named,
        )

    def run(self, rows: list[Any] | bytes | None, *options: str, **named: Any) -> Ended:
        return self.start(rows, *options, **named).end()

    def verb(self, *arguments: str) -> Ended:
        return self.command(*arguments)

    def asked(self) -> Counter[str]:
        """How often the vendor was asked each text."""
        return Counter(self.vendor.texts())


def texts_of(rows: list[dict[str, Any]]) -> list[str]:
    return [row["body"]["messages"][0]["content"] for row in rows]


# ------------------------------------------------------------------------------------------------ reading the input


def a01_line_separators_inside_a_string(case: Case) -> None:
    """Only a line feed ends a line, on the way in, at the vendor, and for careless readers of the way out."""
    inside = [f"one{mark}two" for mark in "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"]
    rows = [chat_row(f'[[content="{text}"]] {text}', str(row)) for row, text in enumerate(inside)]
    assert case.run(rows).code == 0
    assert sorted(case.vendor.texts()) == sorted(texts_of(rows))
    written = (case.command.folder / "out.jsonl").read_bytes()
    lines = written.decode().splitlines()
    assert [content(json.loads(line)) for line in lines] == inside
    assert not any(mark in written.decode() for mark in SEPARATORS)
    again = case.run((case.command.folder / "rows.jsonl").read_bytes().replace(b"\n", b"\r\n"), name="crlf.jsonl")
    assert again.code == 0
    assert [content(line) for line in case.command.lines()] == inside


def a02_byte_order_marks(case: Case) -> None:
    """One at the start is skipped; where two files were joined it is skipped or named. No row vanishes."""
    mark = b"\xef\xbb\xbf"

    def part(*ids: str) -> bytes:
        return mark + b"".join(json.dumps(chat_row(f"say {one}", one)).encode() + b"\n" for one in ids)

    assert case.run(part("a", "b"), name="one.jsonl").code == 0
    assert [line["custom_id"] for line in case.command.lines()] == ["a", "b"]
    joined = case.run(part("a", "b") + part("c", "d"), name="two.jsonl")
    if joined.code == 0:
        assert [line["custom_id"] for line in case.command.lines()] == ["a", "b", "c", "d"]
    else:
        assert (joined.code, "line 3" in joined.err) == (2, True)
    assert not (case.command.folder / "out.jsonl").read_bytes().startswith(mark)


def a03_lines_that_are_json_but_no_row(case: Case) -> None:
    """Each is an ordinary finding, all in one report; nothing is sent and nothing crashes."""
    twice = json.dumps({**chat_row("x", "e"), "body": json.dumps(chat_row("x")["body"])})
    bad = ["[1, 2]", "null", '"text"', "17", "true", twice, '{"custom_id": "f"}', "{", "nothing"]
    ended = case.run([chat_row("fine", "a"), *bad])
    assert (ended.code, ended.out) == (2, "")
    assert case.vendor.hits == []
    for number in range(2, 2 + len(bad)):
        assert f"line {number}: " in ended.err
    assert "Traceback" not in ended.err
    checked = case.verb("validate", "rows.jsonl", "-m", "m", "--base-url", case.vendor.base_url, "--api-key-env", "")
    assert (checked.code, len(checked.out.splitlines())) == (2, len(bad))
    kept = case.run(None, "--skip-invalid")
    assert kept.code == 3
    assert [line["ok"] for line in case.command.lines()] == [True] + [False] * len(bad)


def a04_one_very_long_line(case: Case) -> None:
    """A row of 8 MB and an answer of 8 MB pass; one above the limit is a finding of its own; 413 is final."""
    size = 8_000_000
    rows = [
        chat_row("a", "a"),
        chat_row("x" * size + " big", "big"),
        chat_row(f"[[big={size}]]", "back"),
        chat_row("c", "c"),
    ]
    program = ("-m", "support.measured_command", "peak")
    assert case.run(rows, program=program).code == 0
    assert [len(content(line)) for line in case.command.lines()] == [1, 3, size, 1]
    small_peak = 100
    assert float((case.command.folder / "peak").read_text()) < small_peak + 5 * 2 * size / 2**20
    too_long = case.run([chat_row("a", "a"), chat_row("x" * (33 << 20), "big"), chat_row("c", "c")], "--skip-invalid")
    assert too_long.code == 3
    lines = case.command.lines()
    assert [line["ok"] for line in lines] == [True, False, True]
    assert "line 2" in lines[1]["error"]["message"]
    refused = case.run([chat_row("[[status=413]]", "a"), chat_row("c", "c")])
    assert refused.code == 3
    assert case.asked()["[[status=413]]"] == 1


def a05_half_an_emoji(case: Case) -> None:
    """A pair becomes one character, a lone half costs its own row at most a replacement; all output is UTF-8."""
    rows = [
        json.dumps(chat_row("PH", "pair")).replace("PH", "glass \\ud83c\\udf78"),
        *(
            json.dumps(chat_row("PH", f"half{n}")).replace("PH", half)
            for n, half in enumerate(["cut \\ud83d", "\\udf78 cut", "\\ud83d\\ud83d"])
        ),
        chat_row("[[body=surrogate]] answered", "answer"),
        chat_row("ok", "ok"),
    ]
    ended = case.run(rows, "--skip-invalid")
    assert ended.code in {0, 3}
    assert "glass \U0001f378" in case.vendor.texts()
    assert max(case.asked().values()) == 1, "nothing is sent twice for it"
    lines = case.command.lines()
    assert [line["custom_id"] for line in lines] == ["pair", "half0", "half1", "half2", "answer", "ok"]
    assert content(lines[0]) == "\U0001f378"
    assert all(json.dumps(line, ensure_ascii=False).encode("utf-8") for line in lines)
    assert [line["ok"] for line in lines if not line["custom_id"].startswith("half")] == [True, True, True]


def a06_repeated_custom_ids(case: Case) -> None:
    """Refused before anything is sent, naming both lines, each of them. Rows without ids are no duplicates."""
    rows = [chat_row(word, name) for word, name in [("a", "q1"), ("b", "q2"), ("c", "q1"), ("d", "q2"), ("e", "q1")]]
    ended = case.run(rows)
    assert (ended.code, case.vendor.hits) == (2, [])
    for line, first in ((3, 1), (4, 2), (5, 1)):
        (found,) = [text for text in ended.err.splitlines() if text.strip().startswith(f"line {line}: ")]
        assert f"line {first}" in found
    assert case.run([chat_row("same"), chat_row("same"), chat_row("same")]).code == 0
    assert len(case.vendor.hits) == 3


def a07_url_of_the_row(case: Case) -> None:
    """Harmless spellings are the same endpoint; another one is a finding; no row leads to another host."""
    with ScriptedVendor() as neighbour:
        spellings = [
            "/v1/chat/completions",
            "/chat/completions",
            "v1/chat/completions/",
            "chat/completions",
            "/v1/chat/completions/",
        ]
        rows = [{**chat_row(f"say {n}", str(n)), "url": url} for n, url in enumerate(spellings)]
        others = ["/v1/embeddings", f"{neighbour.base_url}/chat/completions", "//elsewhere/v1/chat/completions"]
        ended = case.run(rows + [{**chat_row("x", f"other{n}"), "url": url} for n, url in enumerate(others)])
        assert (ended.code, case.vendor.hits, neighbour.hits) == (2, [], [])
        for number in range(len(others)):
            assert f"line {len(spellings) + 1 + number}: " in ended.err
        assert "line 5: " not in ended.err
        assert "url_mismatch" in ended.err
        assert case.run(rows).code == 0
        assert {hit.path for hit in case.vendor.hits} == {"/v1/chat/completions"}
        redirected = case.run([chat_row("[[body=redirect]]", "a"), chat_row("b", "b")])
        assert (redirected.code, neighbour.hits) == (3, [])


def a08_stream_in_a_row(case: Case) -> None:
    """Refused with its line where it asks for a stream; false and null pass, and are not sent as true."""
    rows = [chat_row("a", "a", stream=False), chat_row("b", "b", stream=True), chat_row("c", "c", stream=None)]
    ended = case.run(rows)
    assert (ended.code, case.vendor.hits) == (2, [])
    assert (
        "1 of 3 rows cannot be sent, so none was (--skip-invalid sends the others); the first: line 2: stream is true"
        in ended.err
    )
    assert case.run([rows[0], rows[2]]).code == 0
    assert {json.loads(hit.body).get("stream") for hit in case.vendor.hits} <= {None, False}


def a09_every_finding_at_once(case: Case) -> None:
    rows: list[Any] = [chat_row(f"say {n}", str(n)) for n in range(1, 10)]
    rows[1], rows[4], rows[8] = (
        '{"custom_id": "2", "method": ',
        chat_row("x", "1"),
        {**chat_row("x", "9"), "url": "/v1/embeddings"},
    )
    ended = case.run(rows)
    assert (ended.code, case.vendor.hits) == (2, [])
    found = [text for text in ended.err.splitlines() if text.strip().startswith("line ")]
    assert [int(text.split("line ")[1].split(":")[0]) for text in found] == [2, 5, 9]
    codes = [text.rsplit("[", 1)[1].rstrip("]") for text in found]
    assert len(set(codes)) == 3, codes
    assert case.verb("list").out == "", "no batch was made of it"
    many = case.run([f"nonsense {n}" for n in range(2000)])
    assert (many.code, len(many.err.splitlines()) < 200, "more" in many.err) == (2, True, True)


# ------------------------------------------------------------------------------------------------- rows and vendors


def a10_one_bad_row(case: Case) -> None:
    """A row that is refused, and one with an answer nobody can read, cost nobody else anything."""
    bad = {
        57: "[[status=400 code=context_length_exceeded]]",
        120: "[[body=html]]",
        150: "[[body=cut]]",
        160: "[[body=array]]",
    }
    rows = [chat_row(bad.get(n, "ok"), f"r{n}") for n in range(200)]
    ended = case.run(rows, "--max-attempts", "2")
    assert ended.code == 3
    lines = case.command.lines()
    assert [line["custom_id"] for line in lines] == [f"r{n}" for n in range(200)]
    assert [n for n, line in enumerate(lines) if not line["ok"]] == list(bad)
    assert (ended.report["ok"], ended.report["failed"], ended.report["adds_up"]) == (196, 4, True)
    assert case.asked()[bad[57]] == 1


def a11_memory_does_not_grow_with_the_file(case: Case) -> None:
    """Ten times the rows need about the same memory."""
    peaks = []
    for rows in (1_500, 15_000):
        line = b'{"prompt": "' + b"word " * 800 + b'"}\n'
        ended = case.run(
            line * rows, "-m", "m", name=f"rows{rows}.jsonl", program=("-m", "support.measured_command", "peak")
        )
        assert (ended.code, ended.report["ok"]) == (0, rows)
        peaks.append(float((case.command.folder / "peak").read_text()))
    assert peaks[1] < 1.5 * peaks[0], peaks


def a12_waiting_in_our_own_queue_is_no_timeout(case: Case) -> None:
    """Rows that wait their turn for longer than the time limit of an attempt are sent once and answered."""
    ended = case.run([chat_row(f"[[sleep=1]] word{n}", str(n)) for n in range(200)], "-c", "64", "--timeout", "2.5s")
    assert (ended.code, ended.report["ok"]) == (0, 200)
    assert len(case.vendor.hits) == 200
    assert case.vendor.peak <= 64


def a13_retry_after_is_heeded(case: Case) -> None:
    """Never before the time the vendor named, and not all at once then; each form of naming it."""
    ended = case.run([chat_row(f"[[status=429 ra=3 times=1]] word{n}", str(n)) for n in range(40)], "-c", "20")
    assert (ended.code, ended.report["ok"]) == (0, 40)
    assert len(case.vendor.hits) <= 80
    seconds = []
    for times in _times_by_text(case).values():
        assert times[1] - times[0] >= 3.0
        seconds.append(times[1])
    assert max(seconds) - min(seconds) >= 0.5


def a13_other_ways_to_say_it(case: Case) -> None:
    at = time.time() + 4.0
    forms = {
        "[[status=429 ra_ms=1500 times=1]] milliseconds": 1.5,
        "[[status=429 ra=1.5 times=1]] fraction": 1.5,
        f'[[status=429 ra="{formatdate(at, usegmt=True)}" times=1]] date': None,
        "[[status=503 ra=2 times=1]] overloaded": 2.0,
    }
    rows = [chat_row(text, str(n)) for n, text in enumerate(forms)] + [chat_row(f"fine{n}", f"f{n}") for n in range(60)]
    began = (time.time(), time.monotonic())
    assert case.run(rows).code == 0
    times = _times_by_text(case)
    for text, wait_s in forms.items():
        first, second = times[text]
        if wait_s is None:
            assert second - began[1] >= int(at) - began[0]
        else:
            assert second - first >= wait_s
    assert max(times[f"fine{n}"][-1] for n in range(60)) <= max(times[text][1] for text in forms)


def _times_by_text(case: Case) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    for hit in case.vendor.hits:
        times[hit.text].append(hit.at)
    return times


def a14_a_429_that_never_clears(case: Case) -> None:
    """No money left: the batch pauses at once and says so; when there is money again the same command goes on."""
    paid, in_flight = 20, 8
    case.vendor.set(credit=paid)
    rows = [chat_row(f"word{n}", str(n)) for n in range(500)]
    ended = case.run(rows, "-c", str(in_flight))
    assert ended.code == 5
    assert len(case.vendor.hits) <= paid + in_flight
    assert "insufficient_quota" in ended.err
    assert ended.report["failed"] == 0
    status = json.loads(case.verb("status", "--json").out)
    assert (status["state"], status["terminal"]) == ("paused", False)
    assert "insufficient_quota" in json.dumps(status)
    assert "insufficient_quota" in case.verb("status").out
    case.vendor.set(credit=-1)
    before = {hit.text for hit in case.vendor.hits if hit.outcome == "200"}
    asked = len(case.vendor.hits)
    assert case.run(None, "-c", str(in_flight)).code == 0
    assert not before & {hit.text for hit in case.vendor.hits[asked:]}
    assert len(case.vendor.hits) - asked == 500 - paid
    assert [content(line) for line in case.command.lines()] == [f"word{n}" for n in range(500)]


def a14_a_key_that_is_refused(case: Case) -> None:
    """The same for a key: the lane pauses, no row fails, and the message names the cause."""
    ended = case.run(
        [
            chat_row('[[status=401 code=invalid_api_key message="No such key." times=1]]' + f" w{n}", str(n))
            for n in range(60)
        ],
        "-c",
        "4",
    )
    assert (ended.code, ended.report["failed"]) == (5, 0)
    assert len(case.vendor.hits) <= 4
    assert "No such key." in ended.err
    codes: list[int] = []
    while (code := case.run(None, "-c", "4").code) == 5 and len(codes) < 60:
        codes.append(code)
    assert code == 0, "each run asks a few new rows, which are refused once each"


def a15_every_row_refused_alike(case: Case) -> None:
    """The gate stops it after 25 rows; without it all 1,000 are asked, once each, and grouped."""
    text = '[[status=400 code=unsupported_parameter param=max_tokens message="Use max_completion_tokens."]]'
    rows = [chat_row(f"{text} {n}", str(n), max_tokens=20, temperature=0.0) for n in range(1000)]
    ended = case.run(rows)
    assert ended.code == 5
    assert 25 <= len(case.vendor.hits) <= 50
    for word in ("25", "unsupported_parameter", "max_tokens"):
        assert word in ended.err
    sent = json.loads(case.vendor.hits[0].body)
    assert (sent["max_tokens"], sent["temperature"]) == (20, 0.0), "parameters are not rewritten"
    asked = len(case.vendor.hits)
    every = case.run(None, "--no-gate", "--fresh")
    assert (every.code, len(case.vendor.hits) - asked) == (4, 1000)
    (group,) = every.report["failures"]
    assert (group["count"], group["code"], group["param"]) == (1000, "unsupported_parameter", "max_tokens")
    assert group["sample"]["message"] == "Use max_completion_tokens."


def a16_a_retry_mixes_nothing_up(case: Case) -> None:
    """Answers are filed by the row's own index through retries of every kind, and through a retry of chosen rows."""
    chance = random.Random(16)
    rows = []
    # Half of the rows are well: a vendor that refuses most of them at first is one to be slow with.
    faults = ["status=503 times=1", "status=429 times=2", "status=500 times=2", "drop=after times=1", *[""] * 4]
    for n in range(400):
        fault = chance.choice(faults)
        rows.append(chat_row(f"[[{fault} sleep={chance.random() / 5:.3f}]] echo {n}", str(n)))
    rows[2], rows[7] = (chat_row(f"[[status=400 times=1]] echo {n}", str(n)) for n in (2, 7))
    assert case.run(rows, "--max-attempts", "8").code == 3
    expected = [None if n in {2, 7} else str(n) for n in range(400)]
    assert [content(line) if line["ok"] else None for line in case.command.lines()] == expected
    asked = len(case.vendor.hits)
    before = case.command.lines()
    assert case.verb("retry", "@last", "-o", "out.jsonl", "--progress", "none").code == 0
    assert {hit.text for hit in case.vendor.hits[asked:]} == {f"[[status=400 times=1]] echo {n}" for n in (2, 7)}
    after = case.command.lines()
    assert [content(line) for line in after] == [str(n) for n in range(400)]
    assert [after[n]["attempts"] for n in (2, 7)] == [2, 2]
    assert [line for n, line in enumerate(after) if n not in {2, 7}] == [
        line for n, line in enumerate(before) if n not in {2, 7}
    ]


def a17_all_rows_failed(case: Case) -> None:
    """Not a success: exit code 4, the commonest error in the first line, and a line for each row."""
    ended = case.run([chat_row(f"[[status=400 code=invalid_prompt]] {n}", str(n)) for n in range(3)])
    assert ended.code == 4
    assert "invalid_prompt" in ended.report["outcome"]
    lines = case.command.lines()
    assert [(line["ok"], line["error"]["code"]) for line in lines] == [(False, lines[0]["error"]["code"])] * 3
    fine = case.run([chat_row(f"fine {n}", str(n)) for n in range(3)], "--failed", "failed.jsonl")
    assert (fine.code, (case.command.folder / "failed.jsonl").read_bytes()) == (0, b"")


# ------------------------------------------------------------------------------------------------- ends and counters

SLOW = (2, 4, 6, 8)


def a18_time_ran_out(case: Case) -> None:
    """Answers are kept, what did not end is `batch_expired`, and a retry sends only that."""
    rows = [chat_row("[[sleep=30 times=1]] late" if n in SLOW else f"ok{n}", f"r{n}") for n in range(10)]
    for n in SLOW:
        rows[n] = chat_row(f"[[sleep=30 times=1]] late{n}", f"r{n}")
    ended = case.run(rows, "--deadline", "3s")
    assert ended.code == 4
    assert (ended.report["ok"], ended.report["expired"], ended.report["terminal"]) == (6, 4, True)
    lines = case.command.lines()
    assert [n for n, line in enumerate(lines) if not line["ok"]] == list(SLOW)
    assert {lines[n]["error"]["kind"] for n in SLOW} == {"expired"}
    assert ended.report["may_have_been_sent"] == 4
    exported = case.verb("export", "--format", "openai", "-o", "-")
    codes = [(line["error"] or {}).get("code") for line in map(json.loads, exported.out.splitlines())]
    assert [n for n, code in enumerate(codes) if code == "batch_expired"] == list(SLOW)
    asked = len(case.vendor.hits)
    assert case.verb("retry", "@last", "-o", "out.jsonl", "--progress", "none").code == 0
    assert len(case.vendor.hits) - asked == 4
    assert [content(line) for line in case.command.lines()] == [
        f"late{n}" if n in SLOW else f"ok{n}" for n in range(10)
    ]


def a18_while_nobody_was_there(case: Case) -> None:
    """A deadline that passed while everything was down counts, and what was answered before is kept."""
    rows = [chat_row(f"[[hold]] {n}" if n in SLOW else f"ok{n}", f"r{n}") for n in range(10)]
    started = case.start(rows, "--deadline", "6s")
    started.until(case.vendor, lambda vendor: len(vendor.hits) == 10 and vendor.in_flight == 4)
    while json.loads(case.verb("status", "--json").out)["ok"] < 6:
        pass
    started.kill()
    assert started.end().code == -signal.SIGKILL
    while json.loads(case.verb("status", "--json").out)["state"] != "expired":
        pass
    asked = len(case.vendor.hits)
    ended = case.run(None, "--deadline", "6s")
    assert (ended.code, len(case.vendor.hits)) == (4, asked)
    assert [line["ok"] for line in case.command.lines()] == [n not in SLOW for n in range(10)]


def a19_cancelled_at_any_time(case: Case) -> None:
    """Each row has exactly one line; answers that came before the cancel or within the grace are kept."""

    async def all_of_them() -> None:
        await asyncio.gather(*(_cancelled(case, random.Random(n)) for n in range(20)))

    asyncio.run(all_of_them())


async def _cancelled(case: Case, chance: random.Random) -> None:
    number = chance.random()
    rows = [chat_row(f"fast {n} {number}")["body"] for n in range(5)]
    rows += [chat_row(f"[[sleep=1.5]] slow {n} {number}")["body"] for n in range(20)]
    home = case.command.folder / f"state{number}"
    flags = {"home": str(home), "base_url": case.vendor.base_url, "api_key_env": "", "progress": "none"}
    running = asyncio.create_task(batchwright.run_async(rows, **flags, concurrency=10))  # type: ignore[arg-type]
    async with assemble.open_batches(settings.load(flags)) as batches:
        while not (found := await batches.find(limit=1)):  # noqa: ASYNC110 - it is asked, it tells nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        with suppress(WrongState):  # it has ended before
            await batches.cancel(found[0].batch_id)
            await batches.cancel(found[0].batch_id)
    results = list(await running)
    assert [result.index for result in results] == list(range(25))
    asked = Counter(text for text in case.vendor.texts() if text.endswith(str(number)))
    ended_ok = [result for result in results if result.ok]
    assert len(ended_ok) == len(asked), "whatever was sent was answered within the grace, and is kept"
    assert {result.error.kind.value for result in results if result.error is not None} <= {"cancelled"}


def a19_cancelled_beyond_the_grace(case: Case) -> None:
    """Rows still out when the grace is over are cancelled, and marked as sent; the others are not."""
    rows = [chat_row(f"fast {n}", f"f{n}") for n in range(5)] + [chat_row(f"[[hold]] {n}", f"s{n}") for n in range(20)]
    started = case.start(rows, "-c", "10", BATCHWRIGHT_GRACE="0.3s")
    started.until(case.vendor, lambda vendor: vendor.in_flight == 10)
    assert case.verb("cancel", "@last").code == 0
    ended = started.end()
    assert (ended.code, ended.report["ok"], ended.report["cancelled"]) == (4, 5, 20)
    assert ended.report["may_have_been_sent"] == 10
    lines = case.command.lines()
    assert [line["ok"] for line in lines] == [True] * 5 + [False] * 20
    assert {line["error"]["kind"] for line in lines[5:]} == {"cancelled"}
    assert case.verb("cancel", "@last").code == 0, "twice is harmless"


def a20_counters(case: Case) -> None:
    """While it runs completed and failed only grow, and never exceed the rows; at the end they are the lines."""
    faults = ["[[status=400 code=bad]]"] * 5 + ["[[status=503 times=1]]"] * 5 + ["[[sleep=0.3]]"] * 30
    rows = [chat_row(f"{fault} {n}", str(n)) for n, fault in enumerate(faults)]
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    async def look() -> None:
        async with assemble.open_batches(settings.load({"home": str(case.command.state)})) as batches:
            while not over.is_set():
                for status in await batches.find(limit=1):
                    seen.append((status.counts.succeeded, status.counts.failed))
                    assert status.counts.succeeded + status.counts.failed + status.counts.open == status.total
                await asyncio.sleep(0.02)

    looking = threading.Thread(target=asyncio.run, args=(look(),))
    case.command.state.mkdir(mode=0o700)
    looking.start()
    ended = case.run(rows, "-c", "4")
    over.set()
    looking.join()
    assert ended.code == 3
    assert (ended.report["ok"], ended.report["failed"]) == (35, 5)
    assert sorted(seen) == seen
    assert all(one[1] <= two[1] for one, two in pairwise(seen))
    assert len(set(seen)) > 3, "it was looked at while it ran"
    assert sum(not line["ok"] for line in case.command.lines()) == 5


def a21_which_field_says_that_a_row_failed(case: Case) -> None:
    """OpenAI's lines as OpenAI writes them: refused by the vendor, never answered, expired."""
    rows = [
        chat_row("good", "good"),
        chat_row("[[status=400 code=invalid_prompt param=messages]]", "refused"),
        chat_row("[[hang]]", "timeout"),
        chat_row("[[status=429 ra=60]]", "expired"),
    ]
    ended = case.run(rows, "--format", "openai", "--timeout", "1s", "--max-attempts", "1", "--deadline", "5s")
    assert ended.code == 4
    good, refused, late, expired = case.command.lines()
    assert (good["response"]["status_code"], good["error"]) == (200, None)
    assert good["response"]["body"]["choices"][0]["message"]["content"] == "good"
    assert (refused["response"]["status_code"], refused["error"]) == (400, None)
    assert refused["response"]["body"]["error"] == {
        "message": "scripted failure",
        "type": "scripted_error",
        "param": "messages",
        "code": "invalid_prompt",
    }
    assert late["response"] is None
    assert late["error"]["code"]
    assert late["error"]["message"]
    assert (expired["response"], expired["error"]["code"]) == (None, "batch_expired")
    assert [line["custom_id"] for line in (good, refused, late, expired)] == ["good", "refused", "timeout", "expired"]


def a22_a_200_without_an_answer(case: Case) -> None:
    """Each is what it is: plain, flagged, or failed; whole bodies are kept, and flags can be sent again."""
    kinds = {
        "fine": (True, []),
        "[[toolcall]]": (True, []),
        "[[finish=length]] cut": (True, ["truncated"]),
        "[[finish=length content=empty]]": (True, ["empty"]),
        "[[finish=content_filter content=null]]": (True, ["filtered"]),
        "[[refusal]]": (True, ["refused"]),
        "[[body=nochoices]]": (True, ["empty"]),
        "[[body=html]]": (False, None),
        "[[body=empty]]": (False, None),
        "[[error200]]": (False, None),
    }
    ended = case.run([chat_row(text, str(n)) for n, text in enumerate(kinds)], "--max-attempts", "1")
    assert ended.code == 3
    lines = case.command.lines()
    for line, (text, (ok, flags)) in zip(lines, kinds.items(), strict=True):
        assert line["ok"] is ok, text
        if ok:
            assert (line.get("flags") or []) == flags, text
            assert line["response"]["usage"]["prompt_tokens"] == 10
    assert ended.report["flags"] == {"truncated": 1, "empty": 2, "filtered": 1, "refused": 1}
    assert ended.report["ok"] == 7
    assert "1 truncated" in ended.report["outcome"]
    strict = case.run(None, "--max-attempts", "1", "--strict")
    assert strict.code == 3
    asked = len(case.vendor.hits)
    case.verb("retry", "@last", "--flag", "refused", "-o", "out.jsonl", "--progress", "none")
    assert [hit.text for hit in case.vendor.hits[asked:]] == ["[[refusal]]"]


def a23_order_and_keys(case: Case) -> None:
    """Answers that come in any order are filed by the row; lines stand in the input's order, also without ids."""
    chance = random.Random(23)
    rows = []
    for n in range(1000):
        fault = "status=503 times=1 " if n % 11 == 0 else ""
        text = f"[[{fault}sleep={chance.random() / 3:.3f}]] word{n}"
        rows.append(chat_row(text, None if n % 7 == 0 else f"id{n}"))
    assert case.run(rows).code == 0
    came = [hit.text for hit in case.vendor.hits if hit.outcome == "200"]
    assert came != texts_of(rows), "the vendor answered in the input's order, so this shows nothing"
    lines = case.command.lines()
    assert [(line["request_index"], content(line)) for line in lines] == [(n, f"word{n}") for n in range(1000)]
    assert [line.get("custom_id") for line in lines] == [row.get("custom_id") for row in rows]


def a24_rows_with_the_same_text(case: Case) -> None:
    """What is done is known by the row, not by its text: none is skipped, none is paid for twice."""
    case.vendor.set(hold=True)
    rows = [chat_row("Toss a coin.", f"s{n}", temperature=1.0) for n in range(6)]
    started = case.start(rows, "-c", "3", "--progress", "plain")
    started.until(case.vendor, lambda vendor: vendor.in_flight == 3)
    started.interrupt()
    started.wait_for("stopping: waiting for what is in flight")
    case.vendor.release()
    assert started.end().code == 130
    done = len(case.vendor.hits)
    case.vendor.set(hold=False)
    assert case.run(None, "-c", "3").code == 0
    assert (done, len(case.vendor.hits)) == (3, 6)
    assert [line["custom_id"] for line in case.command.lines()] == [f"s{n}" for n in range(6)]


def a25_a_torn_file(case: Case) -> None:
    """Power loss in the middle of a write: whatever of the journal is cut off, each row ends once, and few are asked
    again. An output file that was cut is written anew, without asking anybody."""
    rows = [chat_row(f"word{n}", str(n)) for n in range(300)]
    chance = random.Random(25)
    case.vendor.set(latency_s=0.02)
    for name in ("one", "two"):
        command = case.command = CommandLine(case.command.folder / name)
        begun = len(case.vendor.hits)
        started = case.start(rows, "-c", "16")
        started.until(case.vendor, lambda vendor, until=begun + 150: len(vendor.hits) >= until)  # type: ignore[misc]
        started.kill()
        started.end()
        journal = command.state / "batchwright.sqlite-wal"
        torn = journal.read_bytes()
        journal.write_bytes(torn[: len(torn) - chance.randint(1, 20_000)])
        ended = case.run(None, "-c", "16")
        assert ended.code == 0, ended.err
        assert [content(line) for line in command.lines()] == [f"word{n}" for n in range(300)]
    whole = (command.folder / "out.jsonl").read_bytes()
    asked = len(case.vendor.hits)
    for at in (0, len(whole) // 2, len(whole) - 1):
        (command.folder / "out.jsonl").write_bytes(whole[:at])
        assert case.run(None, "-c", "16").code == 0
        assert (command.folder / "out.jsonl").read_bytes() == whole
    assert len(case.vendor.hits) == asked


def a26_a_price_that_is_not_known(case: Case) -> None:
    """Pricing changes no row's outcome; what is not known is null and counted, a known zero is 0."""
    (case.command.folder / "prices.toml").write_text(
        '[[price]]\npattern = "m-small"\ninput = "1"\noutput = "2"\n[[price]]\npattern = "m-free"\nzero_rated = true\n'
    )
    rows = [
        chat_row("a", "a", model="m-small"),
        chat_row("b", "b", model="m-free"),
        chat_row("c", "c", model="m-new"),
        chat_row("[[usage=none]] d", "d", model="m-small"),
    ]
    ended = case.run(rows, BATCHWRIGHT_PRICES=str(case.command.folder / "prices.toml"))
    assert (ended.code, len(case.vendor.hits)) == (0, 4)
    costs = [line["cost_usd"] for line in case.command.lines()]
    assert costs == [pytest.approx(14e-6), 0, None, None]
    cost = ended.report["cost"]
    assert cost["known_usd"] == pytest.approx(14e-6)
    assert (cost["complete"], cost["rows_without_price"], cost["rows_without_usage"]) == (False, 1, 1)
    shown = case.command("status", BATCHWRIGHT_PRICES=str(case.command.folder / "prices.toml")).out
    figures = dict(line.split("\t") for line in shown.splitlines())
    assert (figures["answers_without_price"], figures["answers_without_usage"]) == ("1", "1")


CASES: list[Callable[[Case], None]] = [
    value for name, value in list(globals().items()) if name[0] == "a" and name[1:3].isdigit()
]
SLOWEST_FIRST = ("a18", "a13", "a12", "a11", "a19", "a21", "a14", "a25", "a15", "a04")


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    """Only what was selected is begun."""
    names = {item.name for item in request.session.items}
    together = Together(at_once=5)

    def work(case: Callable[[Case], None], folder: Path) -> None:
        with ScriptedVendor() as vendor:
            case(Case(folder, vendor))

    ranks = {name: rank for rank, name in enumerate(SLOWEST_FIRST)}
    chosen = [case for case in CASES if f"test_report[{case.__name__}]" in names]
    for case in sorted(chosen, key=lambda case: ranks.get(case.__name__[:3], len(ranks))):
        together.begin(case.__name__, partial(work, case, tmp_path_factory.mktemp(case.__name__)))
    yield together
    together.close()


@pytest.mark.parametrize("name", [case.__name__ for case in CASES])
def test_report(begun: Together, name: str) -> None:
    begun.result(name)


def test_a10_a_fault_of_our_own(tmp_path: Path, vendor: ScriptedVendor, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in our code over one odd answer ends that row alone, and says that it is ours."""
    classify = vars(openai_vendor)["classify"]

    def raising(*arguments: Any, **named: Any) -> Any:
        answer = classify(*arguments, **named)
        if b"word7" in answer.body:
            raise RuntimeError("over word7")
        return answer

    monkeypatch.setattr(openai_vendor, "classify", raising)
    rows = [chat_row(f"word{n}")["body"] for n in range(30)]
    results = list(
        batchwright.run(rows, base_url=vendor.base_url, api_key_env="", home=tmp_path / "state", progress="none")
    )
    assert [result.index for result in results if not result.ok] == [7]
    assert results[7].error is not None
    assert results[7].error.kind is batchwright.FailureKind.INTERNAL
    assert len(vendor.hits) == 30
