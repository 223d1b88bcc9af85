"""Single calls of OpenAI's face with the stock SDK: through a real service to a vendor that does what rows say."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from batchwright.core.tenants import Scope
from support.openai_client import CHAT, chat_rows, create, sdk
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService, serving

KEY = "sk-of-the-vendor-0123456789"


def say(text: str, **more: Any) -> Any:
    return {"model": "m-small", "messages": [{"role": "user", "content": text}], **more}


@pytest.fixture
def client(scripted: RunningService) -> Iterator[openai.OpenAI]:
    with sdk(scripted).with_options(max_retries=0) as client:
        yield client


def test_a_chat_is_answered_by_the_vendor(client: openai.OpenAI, vendor: ScriptedVendor) -> None:
    raw = client.chat.completions.with_raw_response.create(**say("how are things", seed=7))
    answer = raw.parse()
    assert answer.choices[0].message.content == "things"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 12
    assert raw.headers["x-infrai-vendor"] == "scripted"
    assert raw.headers["x-request-id"] == raw.headers["x-infrai-request-id"]
    (hit,) = vendor.hits
    assert hit.path == CHAT


def test_the_body_goes_as_it_came(scripted: RunningService, vendor: ScriptedVendor) -> None:
    body = b'{ "messages":[{"role":"user","content":"caf\xc3\xa9 \\ud83c\\udf78 tail"}], "odd":1e3,"model" : "m-small"}'
    answer = scripted.clients[0].post(CHAT, content=body, headers={"content-type": "application/json"})
    assert answer.json()["choices"][0]["message"]["content"] == "tail"
    assert vendor.hits[0].body == body


def test_a_vendors_prefix_is_taken_off_the_model(client: openai.OpenAI, vendor: ScriptedVendor) -> None:
    client.chat.completions.create(**say("hi", model="scripted/m-large", seed=12345678901234567890))
    assert b'"model":"m-large"' in vendor.hits[0].body
    assert b"12345678901234567890" in vendor.hits[0].body


def test_embeddings_and_responses(client: openai.OpenAI, vendor: ScriptedVendor) -> None:
    vectors = client.embeddings.create(model="m-small", input="a text", encoding_format="float")
    assert vectors.data[0].embedding == [0.25, -0.5]
    response = client.responses.create(model="m-small", input="a text")
    assert response.output_text == "text"
    assert [hit.path for hit in vendor.hits] == ["/v1/embeddings", "/v1/responses"]


def test_a_stream_comes_in_pieces(client: openai.OpenAI, vendor: ScriptedVendor) -> None:
    """The first is here while the vendor still holds the others."""
    stream = client.chat.completions.create(
        **say("[[stream=hold]] one two", stream=True, stream_options={"include_usage": True})
    )
    first = next(stream)
    assert first.choices[0].delta.role == "assistant"
    assert vendor.held
    vendor.release()
    rest = list(stream)
    assert [chunk.choices[0].delta.content for chunk in rest if chunk.choices] == ["one", "two", None]
    assert rest[-1].usage.total_tokens == 12


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("status=400 code=invalid_value param=seed message=odd", openai.BadRequestError),
        ("status=401 code=invalid_api_key message=who", openai.AuthenticationError),
        ("status=404 code=model_not_found message=none", openai.NotFoundError),
        ("status=429 code=rate_limit_exceeded ra=7", openai.RateLimitError),
        ("status=500 message=trouble", openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_the_vendors_own(
    client: openai.OpenAI, vendor: ScriptedVendor, script: str, error: type[openai.APIStatusError], stream: bool
) -> None:
    headers = 'header="x-request-id: req-of-vendor|x-ratelimit-remaining-requests: 3"'
    with pytest.raises(error) as caught:
        client.chat.completions.create(**say(f"[[{script} {headers}]]", stream=stream))
    expected = httpx.post(f"{vendor.base_url}/chat/completions", json=say(f"[[{script}]]"))
    assert caught.value.response.json() == expected.json()
    assert caught.value.request_id == "req-of-vendor"
    assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "3"
    assert caught.value.response.headers.get("retry-after") == ("7" if "ra=7" in script else None)
    assert len(vendor.hits) == 2, "it is never sent twice"


def test_what_we_refuse_has_openais_shape(client: openai.OpenAI, scripted: RunningService) -> None:
    http = scripted.clients[0]
    for content, code in ((b"{", "invalid_json"), (b"[1]", "invalid_json"), (b'{"model":5}', "invalid_type")):
        answer = http.post(CHAT, content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert answer.json()["error"]["type"] == "invalid_request_error"
    answer = http.post(CHAT, json={"messages": []})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**say("hi", model="local/other"))
    assert caught.value.code == "model_not_found"
    assert http.get(CHAT).json()["error"]["code"] == "method_not_allowed"
    reader = sdk(scripted, scripted.new_key(scopes=frozenset({Scope.READ})))
    with pytest.raises(openai.PermissionDeniedError):
        reader.chat.completions.create(**say("hi"))


def test_nobody_answers(tmp_path: Path) -> None:
    with ScriptedVendor() as vendor:
        vendor.set(refuse=True)
        with serving(tmp_path, vendor) as service, pytest.raises(openai.InternalServerError) as caught:
            sdk(service).with_options(max_retries=0).chat.completions.create(**say("hi"))
    assert (caught.value.status_code, caught.value.code) == (503, "unreachable")


def test_a_lane_without_money_says_so_at_once(client: openai.OpenAI, vendor: ScriptedVendor) -> None:
    vendor.set(quota_empty=True)
    with pytest.raises(openai.RateLimitError) as first:
        client.chat.completions.create(**say("hi"))
    assert first.value.code == "insufficient_quota", "the vendor's own answer"
    with pytest.raises(openai.InternalServerError) as second:
        client.chat.completions.create(**say("hi"))
    assert (second.value.status_code, second.value.code) == (503, "vendor_quota_exhausted")
    assert int(second.value.response.headers["retry-after"]) > 100
    assert len(vendor.hits) == 1


def test_many_lanes_pause_at_once(client: openai.OpenAI, vendor: ScriptedVendor) -> None:
    """Each is written down while calls make others."""
    vendor.set(quota_empty=True)

    def ask(model: str) -> int:
        with pytest.raises(openai.APIStatusError) as caught:
            client.chat.completions.create(**say("hi", model=model))
        return caught.value.status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(ask, [f"m-{number}" for number in range(80)])) == {429}
        assert set(pool.map(ask, [f"m-{number}" for number in range(80)])) == {503}
    assert len(vendor.hits) == 80


def test_a_call_goes_to_the_next_choice_of_its_route(tmp_path: Path, vendor: ScriptedVendor) -> None:
    project = "[routes.big]\nto = ['scripted/m-first', 'scripted/m-second']\n"
    with serving(tmp_path, vendor, project=project) as service:
        client = sdk(service).with_options(max_retries=0)
        assert client.chat.completions.create(**say("one", model="big")).model == "m-first"
        vendor.set(quota_empty=True)
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(**say("two", model="scripted/m-first"))
        vendor.set(quota_empty=False)
        assert client.chat.completions.create(**say("three", model="big")).model == "m-second"


def test_the_vendors_key_is_in_no_answer(tmp_path: Path, vendor: ScriptedVendor) -> None:
    environment = {"SCRIPTED_KEY": KEY}
    settings = "api_key_env = 'SCRIPTED_KEY'\n"
    with serving(tmp_path, vendor, environment=environment, vendor_settings=settings) as service:
        http = service.clients[0]
        texts = [
            f"the key {KEY}",
            f"[[status=401 message=Bearer_{KEY} header=x-request-id:{KEY}]]",
            f"[[status=500 body={KEY}]] {KEY}",
        ]
        for text in texts:
            for stream in (False, True):
                answer = http.post(CHAT, json=say(text, stream=stream))
                assert KEY not in answer.text
                assert KEY not in str(answer.headers)
        assert "[key]" in http.post(CHAT, json=say(f"say {KEY}", stream=True)).text
        assert all(hit.headers["authorization"] == f"Bearer {KEY}" for hit in vendor.hits)


def usage(service: RunningService) -> list[Any]:
    from batchwright.store.open import open_store

    store = open_store(service.settings.state_dir / "batchwright.sqlite")
    try:
        return store.read_usage()
    finally:
        store.close()


def test_calls_are_on_the_same_bill_as_batches(scripted: RunningService, client: openai.OpenAI) -> None:
    """At the moment an answer is here its usage is durable."""
    batch = create(client, chat_rows("one", "two", "three"))
    scripted.ended(batch.id)
    for number in range(4):
        client.chat.completions.create(**say(f"call {number}", model="gpt-4o-mini"))
    list(client.chat.completions.create(**say("s", stream=True, stream_options={"include_usage": True})))
    list(client.chat.completions.create(**say("no usage in its stream", stream=True)))
    sums: dict[str, list[int]] = {}
    for line in usage(scripted):
        total = sums.setdefault(line.key.model, [0, 0, 0])
        total[0] += line.sum.answers
        total[1] += line.sum.prompt_tokens + line.sum.completion_tokens
        total[2] += line.sum.no_usage
        assert line.key.key_id
    shown = scripted.get("/v1/account/usage").json()["data"]
    assert {line["capability"]: line["answers"] for line in shown["by_capability"]} == {
        "ai.batch.submit": 3,
        "chat.completions": 6,
    }
    assert sums == {"m": [3, 36, 0], "gpt-4o-mini": [4, 48, 0], "m-small": [2, 12, 1]}


def test_what_it_cost_stands_in_a_header(service: RunningService) -> None:
    """The simulator says what an answer costs; the sum of these is the bill."""
    http = service.clients[0]
    answers = [http.post(CHAT, json=say(f"text {number}")) for number in range(8)]
    told = [answer.headers["x-infrai-cost-usd"] for answer in answers if answer.status_code == 200]
    assert told
    spent = sum(line.sum.cost_picousd for line in usage(service))
    assert sum(round(float(usd) * 10**12) for usd in told) == spent


def test_a_key_whose_budget_is_spent_makes_no_more_calls(service: RunningService) -> None:
    """The call that passes it is answered; the next is not, and batches under the key stand still."""
    key = service.new_key(budget_picousd=1)
    http = service.client(key)
    while (answer := http.post(CHAT, json=say("one"))).status_code != 402:
        assert answer.status_code == 200 or answer.status_code >= 429
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert answer.headers["x-should-retry"] == "false"
    assert service.post(CHAT, say("one")).status_code == 200, "another key has its own"


def test_a_limit_holds_for_batches_and_calls_together(tmp_path: Path, vendor: ScriptedVendor) -> None:
    with serving(tmp_path, vendor, vendor_settings="concurrency = 4\n") as service:
        vendor.set(hold=True)
        batch = create(sdk(service), chat_rows(*[f"row{number}" for number in range(20)]))
        vendor.wait_for(lambda vendor: len(vendor.held) == 4)
        with ThreadPoolExecutor(8) as pool:
            client = sdk(service)

            def ask(text: str) -> str:
                return str(client.chat.completions.create(**say(text, model="m")).choices[0].message.content)

            calls = [pool.submit(ask, f"call{number}") for number in range(8)]
            vendor.set(hold=False)
            answers = [call.result(PATIENCE_S) for call in calls]
        assert answers == [f"call{number}" for number in range(8)]
        assert service.ended(batch.id)["completed_count"] == 20
        assert vendor.peak == 4


def test_who_goes_away_in_the_middle_of_a_stream_ends_it_at_the_vendor(
    client: openai.OpenAI, scripted: RunningService, vendor: ScriptedVendor
) -> None:
    stream = client.chat.completions.create(**say("[[stream=hold]] one", stream=True))
    next(stream)
    assert vendor.in_flight == 1
    stream.close()
    vendor.wait_for(lambda vendor: vendor.in_flight == 0)
    client.chat.completions.create(**say("the next one is answered"))
    assert sum(line.sum.no_usage for line in usage(scripted)) == 1


def test_a_reader_that_reads_nothing_stops_nobody(scripted: RunningService, vendor: ScriptedVendor) -> None:
    """The vendor is not read either: nothing piles up here."""
    url = httpx.URL(scripted.base_url)
    body = httpx.Request("POST", url, json=say("[[stream=30000000]]", stream=True)).content
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {scripted.key}\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 80)) as idle:
        idle.sendall(head.encode() + body)
        vendor.wait_for(lambda vendor: vendor.stalled > 0)
        client = sdk(scripted)
        assert client.chat.completions.create(**say("hi")).choices[0].message.content == "hi"
        words = list(client.chat.completions.create(**say("[[stream=5000]]", stream=True)))
        assert len(words) == 7
        assert vendor.in_flight == 1
    vendor.wait_for(lambda vendor: vendor.in_flight == 0)


def test_a_stream_that_breaks_off_says_so(client: openai.OpenAI, vendor: ScriptedVendor) -> None:
    stream = client.chat.completions.create(**say("[[stream=cut]] one two", stream=True))
    with pytest.raises(openai.APIError, match="broke off"):
        list(stream)
    assert len(vendor.hits) == 1


def test_an_error_in_a_stream_goes_by(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="scripted failure"):
        list(client.chat.completions.create(**say("[[stream=error]] one", stream=True)))


def test_a_service_that_ends_leaves_no_call_open(scripted: RunningService, vendor: ScriptedVendor) -> None:
    """One streams, one is out: both are told within the grace, and both are dropped at the vendor."""
    client = sdk(scripted).with_options(max_retries=0)
    stream = client.chat.completions.create(**say("[[stream=hold]] one", stream=True))
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: client.chat.completions.create(**say("[[hold]] two")))
        vendor.wait_for(lambda vendor: vendor.in_flight == 2)
        scripted.stop()
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            list(stream)
        with pytest.raises(openai.APIError):
            asked.result(PATIENCE_S)
    vendor.wait_for(lambda vendor: vendor.in_flight == 0)


def test_calls_without_work(tmp_path: Path, vendor: ScriptedVendor) -> None:
    """A service that leaves batches to others answers calls all the same."""
    with serving(tmp_path, vendor, works=False) as service:
        client = sdk(service)
        batch = create(client, chat_rows("one"))
        assert client.chat.completions.create(**say("hi")).choices[0].message.content == "hi"
        service.until(batch.id, lambda status: status["state"] == "queued")
        assert vendor.texts() == ["hi"]
        assert sum(line.sum.answers for line in usage(service)) == 1


def test_the_simulator_answers_calls(service: RunningService) -> None:
    with sdk(service) as client:  # it refuses some first attempts, and the SDK tries again
        answer = client.chat.completions.create(**say("hello there"))
        assert answer.choices[0].message.content == "Simulated answer to: hello there"
        pieces = list(client.chat.completions.create(**say("hello again", stream=True)))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
        assert text == "Simulated answer to: hello again"
        assert len(client.embeddings.create(model="m", input=["a", "b"]).data) == 2
        with client.responses.stream(model="m", input="say it") as events:
            assert events.get_final_response().output_text == "Simulated answer to: say it"
        whole = client.completions.create(model="m", prompt=["one", "two"])
        assert [choice.text for choice in whole.choices] == ["Simulated answer to: one", "Simulated answer to: two"]
        streamed = list(client.completions.create(model="m", prompt="three", stream=True))
        assert "".join(chunk.choices[0].text for chunk in streamed) == "Simulated answer to: three"
        assert streamed[-1].choices[0].finish_reason == "stop"
