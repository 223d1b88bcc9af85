"""A request that asks again is the row's own, byte for byte, with the answer and the finding behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchwright.wire.repair_bodies import MAX_ANSWER_CHARS, MAX_SCHEMA_CHARS, repair_body


def asked(body: object, endpoint: str = "/chat/completions", *, answer: str = "no", schema: str = "{}") -> Any:
    found = repair_body(json.dumps(body).encode(), endpoint, answer=answer, finding="at $: wrong", schema=schema)
    return None if found is None else json.loads(found)


USER = {"role": "user", "content": "hi"}


def test_of_a_chat() -> None:
    body = {"model": "m", "messages": [USER], "temperature": 0}
    found = asked(body)
    assert {name: found[name] for name in ("model", "temperature")} == {"model": "m", "temperature": 0}
    own, said, asking = found["messages"]
    assert (own, said) == (USER, {"role": "assistant", "content": "no"})
    assert asking["role"] == "user"
    assert "at $: wrong" in asking["content"]
    assert "The schema: {}" in asking["content"]


def test_fields_keep_their_bytes() -> None:
    body = b'{"messages":[{"role":"user","content":"\\u00e4 \xe2\x80\xa8","n":1.50}],"big":1e400}'
    found = repair_body(body, "/chat/completions", answer="x", finding="y", schema="{}")
    assert found is not None
    assert found.startswith(body[: body.index(b"]")])
    assert found.endswith(b'],"big":1e400}')


@pytest.mark.parametrize("given", ["hi", [USER]])
def test_of_a_response(given: object) -> None:
    found = asked({"model": "m", "input": given}, "/responses")
    assert found["input"][0] == USER
    assert [turn["role"] for turn in found["input"]] == ["user", "assistant", "user"]


def test_of_a_completion() -> None:
    found = asked({"model": "m", "prompt": "hi"}, "/completions")
    assert found["prompt"].startswith("hino\n\nThis answer does not match")


@pytest.mark.parametrize(
    ("body", "endpoint"),
    [
        ({"prompt": ["a", "b"]}, "/completions"),
        ({"prompt": {"id": "pmpt_1"}}, "/responses"),
        ({"input": {}}, "/responses"),
        ({"input": "x"}, "/embeddings"),
    ],
)
def test_a_body_without_a_place_for_it(body: object, endpoint: str) -> None:
    assert asked(body, endpoint) is None


def test_it_is_bounded() -> None:
    found = asked({"messages": [USER]}, answer="x" * 10**6, schema='"' + "y" * 10**5 + '"')
    _, said, asking = found["messages"]
    assert len(said["content"]) < MAX_ANSWER_CHARS + 100
    assert said["content"].endswith("[... left out ...]")
    assert len(asking["content"]) < MAX_SCHEMA_CHARS
