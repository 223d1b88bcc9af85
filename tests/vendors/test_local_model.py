"""The real server with the real model: answers, refusals, and that it never outlives who started it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batchwright.core.failures import FailureKind
from batchwright.fabric.system import SystemClock
from batchwright.http.open import open_http_client
from batchwright.ports.http import Timeouts
from batchwright.ports.vendor import Answer
from batchwright.vendors.llama_server import KEY_VARIABLE
from batchwright.vendors.local_model import DEFAULT_CONTEXT_TOKENS, SERVER_PROGRAM, start_local_server
from batchwright.vendors.openai import OpenAIVendor
from batchwright.vendors.profiles import find_profile
from batchwright.wire.answer_values import find_value
from batchwright.wire.schema_check import SchemaCheck
from batchwright.wire.schema_shape import format_fields
from support.local_server import ENDS_WITHIN_S, RunningServer, wait_until_gone

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = {
    "model": "local/smollm2",
    "messages": [{"role": "user", "content": "Hello!"}],
    "temperature": 0,
    "max_tokens": 4,
}
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
WHILE_IT_STARTS = {FailureKind.NETWORK, FailureKind.UNREACHABLE, FailureKind.OVERLOADED}
"""Dropped with the server; refused; 503 while the model is loaded. Each is sent again."""
LEAST_RIGHT = 26
"""Of the 40 tickets. Chance is 14; 36 to 38 were seen."""


def post(server: RunningServer, body: dict[str, Any], *, key: str | None = None) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{server.base_url}/chat/completions", data=json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {server.key if key is None else key}")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_it_answers(local_server: RunningServer) -> None:
    status, answer = post(local_server, QUESTION)
    assert status == 200
    assert answer["model"] == "local/smollm2"  # no path of this machine
    assert answer["choices"][0]["message"]["content"]
    assert 1 <= answer["usage"]["completion_tokens"] <= 4


def test_it_is_held_to_a_schema(local_server: RunningServer) -> None:
    """As the profile says: the request states it, and even this model's answer to a greeting matches."""
    schema = {
        "type": "object",
        "properties": {"mood": {"enum": ["good", "bad"]}, "sure": {"type": "boolean"}},
        "required": ["mood", "sure"],
        "additionalProperties": False,
    }
    fields = format_fields(json.dumps(schema), "/chat/completions")
    stated = {name: json.loads(bytes(value)) for name, value in fields.items()}
    status, answer = post(local_server, QUESTION | {"max_tokens": 40} | stated)
    assert status == 200
    found = find_value(answer["choices"][0]["message"]["content"])
    assert SchemaCheck(json.dumps(schema)).findings(found.value) == []


def test_another_key_is_refused(local_server: RunningServer) -> None:
    status, answer = post(local_server, QUESTION, key="another")
    assert status == 401
    assert answer["error"]["type"] == "authentication_error"


@linux
def test_the_key_is_in_no_argument(local_server: RunningServer) -> None:
    assert local_server.key.encode() not in Path(f"/proc/{local_server.pid}/cmdline").read_bytes()


def test_the_example_is_mostly_right(local_server: RunningServer) -> None:
    rows = [json.loads(line) for line in (EXAMPLES / "tickets.jsonl").read_text().splitlines()]
    labels = (EXAMPLES / "tickets.labels").read_text().split()
    assert len(rows) == len(labels) == 40
    with ThreadPoolExecutor(local_server.slots) as pool:
        answers = list(pool.map(lambda row: post(local_server, row["body"]), rows))
    given = [json.loads(answer["choices"][0]["message"]["content"])["sentiment"] for _, answer in answers]
    assert sum(one == label for one, label in zip(given, labels, strict=True)) >= LEAST_RIGHT


async def ask(vendor: OpenAIVendor, body: dict[str, Any]) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    vendor.send("/chat/completions", json.dumps(body).encode(), answered.set_result)
    return await answered


@asynccontextmanager
async def connected(base_url: str, key: str) -> AsyncIterator[OpenAIVendor]:
    http = open_http_client(Timeouts(), environ={})
    profile = find_profile("llamacpp", "")
    try:
        yield OpenAIVendor(http, base_url=base_url, key=key, profile=profile, clock=SystemClock(), agent="tests")
    finally:
        await http.close()


def test_a_prompt_above_the_context_is_that_rows_failure_alone(local_server: RunningServer) -> None:
    async def main() -> None:
        async with connected(local_server.base_url, local_server.key) as vendor:
            too_long = {**QUESTION, "messages": [{"role": "user", "content": "word " * 3000}]}
            refused, answered = await asyncio.gather(ask(vendor, too_long), ask(vendor, QUESTION))
            assert (refused.kind, refused.http_status) == (FailureKind.CONTEXT_TOO_LONG, 400)
            assert str(DEFAULT_CONTEXT_TOKENS) in refused.message  # what is allowed
            assert answered.kind is None

    asyncio.run(main())


@linux
def test_a_server_that_was_killed_is_started_again(model_file: Path) -> None:
    async def main() -> None:
        server = await start_local_server(model_file=model_file, environ=os.environ)
        first = server.pid
        async with connected(server.base_url, server.key) as vendor, asyncio.timeout(ENDS_WITHIN_S):
            assert (await ask(vendor, QUESTION)).kind is None
            os.kill(first, signal.SIGKILL)
            while (answer := await ask(vendor, QUESTION)).kind is not None:
                assert answer.kind in WHILE_IT_STARTS
        last = server.pid
        assert last != first
        await server.close()
        await server.close()
        assert wait_until_gone(last)

    asyncio.run(main())


STARTS_AND_WAITS = """
import asyncio, os, sys
from pathlib import Path
from batchwright.vendors.local_model import start_local_server

async def main():
    server = await start_local_server(model_file=Path(sys.argv[1]), environ=os.environ)
    print(server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@linux
def test_it_ends_when_its_parent_is_killed(model_file: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_AND_WAITS, model_file], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        parent.kill()
    assert wait_until_gone(server)


def server_command(model_file: Path, parent: int) -> list[str]:
    options = {"--model": model_file, "--alias": "a", "--slots": 1, "--context-tokens": 64, "--threads": 1, "--port": 0}
    return [*SERVER_PROGRAM, *(str(word) for pair in options.items() for word in pair), "--parent", str(parent)]


def test_it_ends_with_its_standard_input(model_file: Path) -> None:
    command = server_command(model_file, os.getpid())
    environ = {**os.environ, KEY_VARIABLE: "key"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline().startswith(b'{"base_url": "http://127.0.0.1:')
        server.stdin.close()
        assert server.wait(ENDS_WITHIN_S) == 0


HANDS_ON_ITS_INPUT = """
import os, subprocess, sys

command = [*sys.argv[1:-1], "--parent", str(os.getpid())]
server = subprocess.Popen(command, stdin=int(sys.argv[-1]), stdout=subprocess.PIPE)
server.stdout.readline()
print(server.pid, flush=True)
server.wait()
"""


@linux
def test_it_ends_with_its_parent_even_if_its_input_does_not(model_file: Path) -> None:
    reading, writing = os.pipe()
    command = server_command(model_file, 0)[:-2]
    environ = {**os.environ, KEY_VARIABLE: "key"}
    try:
        with subprocess.Popen(
            [sys.executable, "-c", HANDS_ON_ITS_INPUT, *command, str(reading)],
            stdout=subprocess.PIPE,
            pass_fds=[reading],
            env=environ,
        ) as parent:
            assert parent.stdout is not None
            server = int(parent.stdout.readline())
            parent.kill()
        assert wait_until_gone(server)
    finally:
        os.close(reading)
        os.close(writing)
