from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import asdict

import pytest

from batchwright.core.failures import FailureKind, Flag
from batchwright.ports.vendor import Answer
from batchwright.vendors import simulated
from batchwright.vendors.simulated import DEFAULTS, Fate, SimulatedVendor, Simulation, fails_first, latency_s

CHAT = "/chat/completions"
QUICK = Simulation(latency_min_s=0.0, latency_max_s=0.0)
GOOD = Simulation(latency_min_s=0.0, latency_max_s=0.0, rate_limited_share=0, error_share=0, dropped_share=0)


def row(number: int, **body: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": f"row {number}"}], **body}).encode()


async def ask(vendor: SimulatedVendor, body: bytes, endpoint: str = CHAT) -> Answer:
    ended: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    vendor.send(endpoint, body, ended.set_result)
    assert not ended.done(), "the end was told from inside send"
    return await ended


async def ask_until_answered(vendor: SimulatedVendor, body: bytes) -> list[Answer]:
    answers = [await ask(vendor, body)]
    while answers[-1].kind is not None:
        answers.append(await ask(vendor, body))
    return answers


def test_the_same_row_always_ends_the_same_way() -> None:
    async def run() -> list[list[Answer]]:
        vendor = SimulatedVendor(QUICK)
        return [await ask_until_answered(vendor, row(number)) for number in range(300)]

    first, second = asyncio.run(run()), asyncio.run(run())
    assert first == second
    kinds = Counter(answer.kind for answers in first for answer in answers[:-1])
    assert set(kinds) == {FailureKind.RATE_LIMITED, FailureKind.OVERLOADED, FailureKind.NETWORK}
    assert max(len(answers) for answers in first) == 2
    assert {answers[-1].flag for answers in first} == {Flag.PLAIN, Flag.REFUSED, Flag.TRUNCATED}


def test_an_answer_says_that_it_is_simulated_and_what_it_costs() -> None:
    async def run() -> Answer:
        return await ask(SimulatedVendor(GOOD), row(1))

    answer = asyncio.run(run())
    body = json.loads(answer.body)
    assert body["choices"][0]["message"]["content"] == "Simulated answer to: row 1"
    assert "simulated" in body["id"]
    assert body["usage"]["prompt_tokens"] == answer.prompt_tokens == len(row(1)) // 4
    priced = answer.prompt_tokens * GOOD.prompt_picousd + answer.completion_tokens * GOOD.completion_picousd
    assert answer.cost_picousd == priced > 0


def test_a_rate_limit_says_how_long_to_wait() -> None:
    limited = Simulation(latency_min_s=0, latency_max_s=0, rate_limited_share=1.0, retry_after_s=2.5)

    async def run() -> list[Answer]:
        return await ask_until_answered(SimulatedVendor(limited), row(1))

    first, second = asyncio.run(run())
    assert (first.kind, first.wait_s, second.kind) == (FailureKind.RATE_LIMITED, 2.5, None)


def test_an_aborted_row_hears_nothing() -> None:
    heard: list[Answer] = []

    async def run() -> None:
        vendor = SimulatedVendor(GOOD)
        vendor.send(CHAT, row(1), heard.append).abort()
        await ask(vendor, row(2))

    asyncio.run(run())
    assert heard == []


def test_other_endpoints() -> None:
    async def run() -> list[Answer]:
        vendor = SimulatedVendor(GOOD)
        embedding = json.dumps({"model": "m", "input": ["a", "b"]}).encode()
        response = json.dumps({"model": "m", "input": "what?"}).encode()
        return [
            await ask(vendor, embedding, "/embeddings"),
            await ask(vendor, response, "/responses"),
            await ask(vendor, row(1), "/rerank"),
            await ask(vendor, b"[]"),
        ]

    embedding, response, unknown, no_object = asyncio.run(run())
    assert [len(item["embedding"]) for item in json.loads(embedding.body)["data"]] == [8, 8]
    assert (response.kind, response.flag) == (None, Flag.PLAIN)
    assert (unknown.kind, unknown.http_status) == (FailureKind.INVALID_REQUEST, 404)
    assert no_object.kind is FailureKind.INVALID_REQUEST


def test_latency_and_first_failures_keep_their_shares() -> None:
    fates = [Fate(row(number)) for number in range(20_000)]
    share = sum(fails_first(fate, DEFAULTS) for fate in fates) / len(fates)
    assert share == pytest.approx(0.04, abs=0.005)
    latencies = [latency_s(fate, DEFAULTS) for fate in fates]
    assert DEFAULTS.latency_min_s <= min(latencies) <= max(latencies) <= DEFAULTS.latency_max_s


def test_what_is_remembered_of_failed_rows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_FAILED_ROWS", 3)
    failing = Simulation(latency_min_s=0, latency_max_s=0, error_share=1.0, rate_limited_share=0)

    async def run() -> list[FailureKind | None]:
        vendor = SimulatedVendor(failing)
        for number in range(4):
            await ask(vendor, row(number))
        return [(await ask(vendor, row(number))).kind for number in (3, 0)]

    assert asyncio.run(run()) == [None, FailureKind.OVERLOADED]


def test_rows_that_failed_before_are_not_all_refused_anew_when_a_batch_goes_on() -> None:
    async def run() -> list[bool]:
        failing = [body for body in map(row, range(5000)) if fails_first(Fate(body), QUICK)][:60]
        vendor = SimulatedVendor(QUICK)
        return [(await ask(vendor, body)).kind is None for body in failing]

    answered = asyncio.run(run())
    assert len(answered) == 60
    assert not answered[0], "the first failure is never spared"
    assert answered[:16].count(False) <= 3
    assert answered.count(False) <= 6


BOUNDS = [
    (CHAT, {"max_tokens": 3}, 3),
    (CHAT, {"max_completion_tokens": 1}, 1),
    (CHAT, {"max_tokens": 9, "max_completion_tokens": 2}, 2),
    ("/responses", {"max_output_tokens": 4, "input": "a question of some length"}, 4),
]


@pytest.mark.parametrize(("endpoint", "bounds", "tokens"), BOUNDS, ids=str)
def test_an_answer_ends_at_the_rows_own_bound(endpoint: str, bounds: dict[str, object], tokens: int) -> None:
    whole = Simulation(**{**asdict(GOOD), "refused_share": 0, "truncated_share": 0})

    async def run() -> Answer:
        return await ask(SimulatedVendor(whole), row(1, **bounds), endpoint)

    first, second = asyncio.run(run()), asyncio.run(run())
    assert first == second
    assert (first.kind, first.flag, first.completion_tokens) == (None, Flag.TRUNCATED, tokens)
    assert first.cost_picousd == first.prompt_tokens * GOOD.prompt_picousd + tokens * GOOD.completion_picousd
    assert f'"{"Simulated answer to: "[: tokens * 4]}"'.encode() in first.body


@pytest.mark.parametrize("bound", [6, 10**30, None, "3", 1.5, [], True])
def test_a_bound_that_is_not_reached_or_is_none_changes_no_answer(bound: object) -> None:
    async def run() -> Answer:
        return await ask(SimulatedVendor(GOOD), row(1, max_tokens=bound))

    answer = asyncio.run(run())
    assert (answer.kind, answer.flag) == (None, Flag.PLAIN)
    assert b"Simulated answer to: row 1" in answer.body


@pytest.mark.parametrize("bound", [0, -5])
def test_a_bound_below_one_is_refused(bound: int) -> None:
    async def run() -> Answer:
        return await ask(SimulatedVendor(GOOD), row(1, max_tokens=bound))

    answer = asyncio.run(run())
    assert (answer.kind, answer.http_status) == (FailureKind.INVALID_REQUEST, 400)
