"""`batchwright check`: real servers on loopback that answer, refuse, hang or lie, and what a person is told of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from batchwright.assemble import checking
from batchwright.assemble.checking import CheckRequest, check
from batchwright.core.checkup import Checked, Verdict
from support.cli_machine import Invoke
from support.patience import PATIENCE_S
from support.raw_server import CA_FILE, Peer, RawServer, free_port, raw_server
from support.scripted_vendor import ScriptedVendor
from support.settings_places import Places

KEY = "sk-secret-of-the-house-1234"
LIST = json.dumps({"object": "list", "data": [{"id": "house-small"}, {"id": "models/house-large"}]}).encode()
ANSWER = json.dumps({"choices": [{"message": {"content": "h"}, "finish_reason": "length"}]}).encode()
Answers = Mapping[str, bytes]
"""By the request's path below /v1; another path gets a bare 404."""


def http(status: int, body: bytes, *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


NOT_FOUND = http(404, b"page not found")
LISTS = {"/models": http(200, LIST)}


@contextlib.asynccontextmanager
async def vendor(answers: Answers, *, certificate: str = "") -> AsyncIterator[RawServer]:
    running: list[RawServer] = []

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request()
            path = running[0].requests[-1][1].split(b" ")[1].decode().removeprefix("/v1")
            await peer.send(answers.get(path, NOT_FOUND))

    async with raw_server(script, certificate=certificate) as server:
        running.append(server)
        yield server


async def hangs(peer: Peer) -> None:
    await peer.wait_gone()


def house(url: str, *more: str) -> str:
    return "\n".join(["[vendors.house]", f'base_url = "{url}"', 'api_key_env = "HOUSE_KEY"', *more, ""])


async def looked(
    folder: Path, settings: str, *, asks: bool = False, timeout_s: float = PATIENCE_S, **environment: str
) -> list[Checked]:
    """Of what stands in the user's file, with the key in the environment. Whatever is said, the key is not."""
    given = {"BATCHWRIGHT_HOME": str(folder / "state"), "HOUSE_KEY": KEY, **environment}
    places = Places(folder, user=settings, environment=given)
    found = await check(places.load(), CheckRequest(timeout_s=timeout_s, asks=asks))
    assert KEY not in repr(found)
    return found


def about(findings: list[Checked], subject: str) -> Checked:
    """The first finding of this subject."""
    return next(finding for finding in findings if finding.subject == subject)


@pytest.fixture(autouse=True)
def without_the_local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its extra is installed here must not matter to what is said of other vendors."""
    monkeypatch.setattr(checking, "_has_package", lambda: False)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_an_empty_list_of_models_proves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor({"/models": http(200, b'{"object": "list", "data": []}')}) as server:
            table = house(server.url("/v1"), 'models = ["a-*"]')
            findings = await looked(tmp_path, f"model = 'house/any'\n{table}")
        assert not [finding for finding in findings if finding.verdict is Verdict.ERROR], findings
        assert about(findings, "vendor house").verdict is Verdict.WARNING
        assert "lists no model" in about(findings, "vendor house").found

    run(test)


@pytest.mark.parametrize(
    ("more", "verdict", "found", "remedy"),
    [
        ('models = ["house-small"]', Verdict.OK, "it lists no model", ""),
        ('models = ["odd"]', Verdict.WARNING, "lists no model", "none has answered"),
        ("", Verdict.WARNING, "lists no model", "Name a model for --ask"),
    ],
)
def test_what_was_asked_is_not_told_to_ask(
    tmp_path: Path, more: str, verdict: Verdict, found: str, remedy: str
) -> None:
    async def test() -> None:
        answers = {"/models": http(200, b'{"object": "list", "data": []}')}
        answers |= {"/chat/completions": http(200, ANSWER)} if "house-small" in more else {}
        async with vendor(answers) as server:
            finding = about(await looked(tmp_path, house(server.url("/v1"), more), asks=True), "vendor house")
        assert (finding.verdict, found in finding.found, remedy in finding.remedy) == (verdict, True, True), finding
        assert "--ask sends" not in finding.remedy

    run(test)


# ------------------------------------------------------------------------------------------------------- one that works


def test_a_vendor_that_lists_its_models(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor(LISTS) as server:
            settings = house(server.url("/v1"), 'models = ["house-small", "house-large", "house-*"]', "rpm = 3000")
            found = await looked(tmp_path, settings)
            (request,) = [text for _, text in server.requests]
        assert request.startswith(b"GET /v1/models HTTP/1.1\r\n")
        assert f"authorization: Bearer {KEY}".encode() in request
        assert b"content-type" not in request
        told = about(found, "vendor house")
        assert told.verdict is Verdict.OK
        assert told.found.endswith("/v1 (the key in HOUSE_KEY was not refused) lists 2 models")
        assert about(found, "model house/house-small").verdict is Verdict.OK
        assert about(found, "model house/house-large").verdict is Verdict.OK, (
            "Gemini's prefix belongs to the list alone"
        )
        assert "limits: 3,000 requests a minute" in [finding.found for finding in found]
        assert not [finding for finding in found if finding.verdict is Verdict.ERROR]

    run(test)


@pytest.mark.parametrize(
    "body", [b'[{"id": "house-small"}]', b'{"models": [{"name": "house-small:latest"}]}'], ids=["bare", "ollama"]
)
def test_other_shapes_of_a_list(tmp_path: Path, body: bytes) -> None:
    async def test() -> None:
        async with vendor({"/models": http(200, body)}) as server:
            found = await looked(tmp_path, house(server.url("/v1"), 'models = ["house-small"]'))
        assert about(found, "model house/house-small").verdict is Verdict.OK

    run(test)


def test_a_model_that_is_not_listed_has_its_nearest_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor(LISTS) as server:
            found = await looked(tmp_path, house(server.url("/v1"), 'models = ["house-smal", "big-*"]'))
        told = about(found, "model house/house-smal")
        assert told.verdict is Verdict.ERROR
        assert "Did you mean house-small?" in told.remedy
        (pattern,) = [finding for finding in found if "'big-*'" in finding.found]
        assert pattern.verdict is Verdict.WARNING

    run(test)


# --------------------------------------------------------------------------------------------------- what may be wrong


def test_a_base_url_without_its_version_is_told_the_one_that_was_meant(tmp_path: Path) -> None:
    async def test() -> None:
        running: list[RawServer] = []

        async def script(peer: Peer) -> None:
            while True:
                await peer.read_request()
                asked = running[0].requests[-1][1]
                await peer.send(LISTS["/models"] if asked.startswith(b"GET /v1/models ") else NOT_FOUND)

        async with raw_server(script) as server:
            running.append(server)
            found = await looked(tmp_path, house(server.url(""), 'models = ["house-small"]'))
            meant = server.url("/v1")
        told = about(found, "vendor house")
        assert told.verdict is Verdict.ERROR
        assert f"{meant} has" in told.found
        assert told.remedy == f'Correct base_url: "{meant}"'

    run(test)


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (
            http(401, b'{"error": {"message": "no such key: %s"}}' % KEY.encode()),
            Verdict.ERROR,
            "HTTP 401: no such key",
        ),
        (http(403, b""), Verdict.ERROR, "HTTP 403"),
        (http(402, b'{"error": {"message": "pay first"}}'), Verdict.ERROR, "pay first"),
        (http(503, b"busy"), Verdict.ERROR, "HTTP 503"),
        (http(301, b"", "location: https://llm.example.com/v2"), Verdict.ERROR, "llm.example.com"),
        (http(200, b"<html>welcome</html>"), Verdict.ERROR, "without a JSON object"),
        (http(200, b""), Verdict.ERROR, "empty body"),
        (NOT_FOUND, Verdict.WARNING, "does not list its models: HTTP 404"),
        (http(405, b'{"detail": "Method Not Allowed"}'), Verdict.WARNING, "does not list its models"),
        (http(429, b'{"error": {"message": "slow down"}}'), Verdict.WARNING, "slow down"),
        (http(200, b'{"status": "ok"}'), Verdict.WARNING, "holds no list of models"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", Verdict.ERROR, "answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Verdict.ERROR, "the answer is not"),
    ],
)
def test_answers_that_are_no_list(tmp_path: Path, answer: bytes, verdict: Verdict, words: str) -> None:
    async def test() -> None:
        async def script(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(answer)

        async with raw_server(script) as server:
            found = await looked(tmp_path, house(server.url("/v1"), 'models = ["house-small"]'))
        told = about(found, "vendor house")
        assert (told.verdict, words in told.found) == (verdict, True), told
        assert told.expected
        assert told.remedy
        assert not [finding for finding in found if "list" in finding.found and finding.subject.startswith("model")]

    run(test)


def test_a_refused_key_is_named_by_its_variable(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor({"/models": http(401, b"{}")}) as server:
            told = about(await looked(tmp_path, house(server.url("/v1"))), "vendor house")
            assert (told.expected, told.remedy) == ("the key in HOUSE_KEY to be taken", "Set HOUSE_KEY anew")
            keyless = f'[vendors.house]\nbase_url = "{server.url("/v1")}"\n'
            assert "api_key_env" in about(await looked(tmp_path, keyless), "vendor house").remedy

    run(test)


def test_nobody_listens(tmp_path: Path) -> None:
    async def test() -> None:
        told = about(await looked(tmp_path, house(f"http://127.0.0.1:{free_port()}/v1")), "vendor house")
        assert told.verdict is Verdict.ERROR
        assert told.found.endswith("connection refused")

    run(test)


@pytest.mark.parametrize(
    ("certificate", "words"),
    [("stranger", "certificate verify failed"), ("expired", "expired"), ("other-host", "certificate verify failed")],
)
def test_a_certificate_that_cannot_be_believed(tmp_path: Path, certificate: str, words: str) -> None:
    async def test() -> None:
        async with vendor(LISTS, certificate=certificate) as server:
            found = await looked(tmp_path, house(server.url("/v1")), SSL_CERT_FILE=CA_FILE)
            assert server.requests == []
        told = about(found, "vendor house")
        assert told.verdict is Verdict.ERROR
        assert words in told.found
        assert "SSL_CERT_FILE" in told.remedy

    run(test)


def test_a_certificate_that_can(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor(LISTS, certificate="localhost") as server:
            found = await looked(tmp_path, house(server.url("/v1")), SSL_CERT_FILE=CA_FILE)
        assert about(found, "vendor house").verdict is Verdict.OK

    run(test)


def test_one_that_hangs_is_told_of(tmp_path: Path) -> None:
    async def test() -> None:
        async with raw_server(hangs) as silent, vendor(LISTS) as server:
            settings = house(server.url("/v1")) + f'[vendors.silent]\nbase_url = "{silent.url("/v1")}"\n'
            found = await looked(tmp_path, settings, timeout_s=0.5)
        assert about(found, "vendor house").verdict is Verdict.OK
        told = about(found, "vendor silent")
        assert told.verdict is Verdict.ERROR
        assert "within 0.5 s" in told.found or "timeout" in told.found

    run(test)


def test_all_are_asked_at_once(tmp_path: Path) -> None:
    """Nobody is answered before everybody has asked."""

    async def test() -> None:
        everybody = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.read_request()
            if peer.number == 19:
                everybody.set()
            await everybody.wait()
            await peer.send(LISTS["/models"])

        async with raw_server(script) as server:
            url = server.url("/v1")
            settings = "".join(f'[vendors.v{number}]\nbase_url = "{url}"\n' for number in range(20))
            found = await looked(tmp_path, settings)
        assert [about(found, f"vendor v{number}").verdict for number in range(20)] == [Verdict.OK] * 20

    run(test)


def test_a_key_that_is_not_set_or_is_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor(LISTS) as server:
            missing = about(await looked(tmp_path, house(server.url("/v1")), HOUSE_KEY=""), "vendor house")
            assert "set HOUSE_KEY" in missing.found
            broken = about(await looked(tmp_path, house(server.url("/v1")), HOUSE_KEY="two words"), "vendor house")
            assert "is no key" in broken.found
            assert "two words" not in repr(broken)
            assert (missing.verdict, broken.verdict) == (Verdict.ERROR, Verdict.ERROR)
            assert server.requests == []

    run(test)


def test_an_address_that_may_not_have_the_key_says_what_to_write_where(tmp_path: Path) -> None:
    async def test() -> None:
        places = Places(tmp_path, project=house("https://llm.example.com/v1"), environment={"HOUSE_KEY": KEY})
        places.environment["BATCHWRIGHT_HOME"] = str(tmp_path / "state")
        found = await check(places.load(), CheckRequest(timeout_s=1, asks=False))
        told = about(found, "vendor house")
        assert told.verdict is Verdict.ERROR
        assert '    base_url = "https://llm.example.com/v1"\n' in told.remedy

    run(test)


# ---------------------------------------------------------------------------------------------------------------- --ask


def test_asking_proves_what_a_missing_list_cannot(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor({"/chat/completions": http(200, ANSWER)}) as server:
            settings = house(server.url("/v1"), 'models = ["house-small"]')
            assert about(await looked(tmp_path, settings), "vendor house").verdict is Verdict.WARNING
            assert all(b"/models" in request for _, request in server.requests), "nothing that costs, unasked"
            found = await looked(tmp_path, settings, asks=True)
            (asked,) = [request for _, request in server.requests if b"POST /v1/chat/completions" in request]
        body = json.loads(asked.partition(b"\r\n\r\n")[2])
        assert (body["model"], body["max_tokens"]) == ("house-small", 1)
        assert about(found, "vendor house").verdict is Verdict.OK
        assert about(found, "model house/house-small").found == "answers (HTTP 200)"

    run(test)


def test_asking_finds_a_model_that_is_not_there_and_one_that_is_not_listed(tmp_path: Path) -> None:
    async def test() -> None:
        refused = b'{"error": {"code": "model_not_found", "message": "no such model"}}'
        settings = 'models = ["unlisted"]'
        async with vendor({**LISTS, "/chat/completions": http(404, refused)}) as server:
            found = await looked(tmp_path, house(server.url("/v1"), settings), asks=True)
            told = about(found, "model house/unlisted")
            assert (told.verdict, told.found) == (Verdict.ERROR, "no such model")
        async with vendor({**LISTS, "/chat/completions": http(200, ANSWER)}) as server:
            found = await looked(tmp_path, house(server.url("/v1"), settings), asks=True)
            assert about(found, "model house/unlisted").verdict is Verdict.OK
        async with vendor({**LISTS, "/chat/completions": http(400, b'{"error": {"message": "no chat"}}')}) as server:
            found = await looked(tmp_path, house(server.url("/v1"), settings), asks=True)
            assert about(found, "model house/unlisted").verdict is Verdict.WARNING

    run(test)


# ------------------------------------------------------------------------------------- routes, prices, this machine


def test_routes_lead_somewhere_or_are_told_of(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor(LISTS) as server:
            url = server.url("/v1")
            settings = house(url) + (
                f'[vendors.odd]\nbase_url = "{url}"\nprofile = "none-such"\n'
                '[routes.good]\nto = ["house/house-small"]\n'
                '[routes.half]\nto = ["odd/x", "house/nothing"]\n'
                '[routes.gone]\nto = ["odd/x"]\n'
            )
            found = await looked(tmp_path, settings)
        assert about(found, "route good").verdict is Verdict.OK
        assert about(found, "route half").verdict is Verdict.WARNING
        gone = about(found, "route gone")
        assert gone.verdict is Verdict.ERROR
        assert gone.found == "'gone' leads nowhere: odd cannot be used", "why is said of the vendor, once"
        assert gone.remedy == "See what is said of its vendors"
        assert "none-such" in about(found, "vendor odd").found
        assert about(found, "model house/nothing").verdict is Verdict.ERROR, "what a route names is looked for too"

    run(test)


@pytest.mark.parametrize(
    ("key", "more", "why"),
    [
        ("", "", "its key is not set: OPENAI_API_KEY is neither in the environment nor in a .env"),
        ("sk-x", "base_url = 'http://127.0.0.1:1/v1'\n", "stands in the place of OpenAI's address"),
        ("sk-x", "api_key_env = 'HOUSE_KEY'\n", "api_key_env names another variable"),
    ],
)
def test_a_choice_at_openai_without_its_key_says_so(tmp_path: Path, key: str, more: str, why: str) -> None:
    async def test() -> None:
        async with vendor(LISTS) as server:
            routes = (
                '[routes.fast]\nto = ["house/house-small", "openai/gpt-4o-mini"]\n'
                '[routes.gone]\nto = ["openai/gpt-4o-mini"]\n'
            )
            found = await looked(tmp_path, more + house(server.url("/v1")) + routes, OPENAI_API_KEY=key)
        assert "1 of its 2 choices cannot be used: openai/gpt-4o-mini" in about(found, "route fast").found
        assert about(found, "route gone").found == "'gone' leads nowhere: openai cannot be used"
        openai = about(found, "vendor openai")
        assert openai.verdict is Verdict.ERROR
        assert why in openai.found
        assert "[vendors.openai]" in openai.remedy

    run(test)


def test_prices_are_known_or_missed(tmp_path: Path) -> None:
    async def test() -> None:
        table = tmp_path / "prices.toml"
        table.write_text('[[price]]\nvendor = "house"\npattern = "house-small"\ninput = "1"\noutput = "2"\n')
        async with vendor(LISTS) as server:
            models = house(server.url("/v1"), 'models = ["house-small", "house-large"]')
            found = await looked(tmp_path, models, BATCHWRIGHT_PRICES=str(table))
            table.write_text("[[price]]\nnonsense = 1\n")
            broken = await looked(tmp_path, models, BATCHWRIGHT_PRICES=str(table))
        (missed,) = [finding for finding in found if finding.found == "no price is known"]
        assert (missed.subject, missed.verdict) == ("model house/house-large", Verdict.WARNING)
        assert about(found, "price table").verdict is Verdict.OK
        assert about(broken, "price table").verdict is Verdict.ERROR

    run(test)


@pytest.mark.parametrize(("offset_s", "verdict"), [(0, Verdict.OK), (-7200, Verdict.WARNING)])
def test_the_clock_is_held_against_a_vendors(tmp_path: Path, offset_s: int, verdict: Verdict) -> None:
    async def test() -> None:
        date = f"date: {formatdate(time.time() + offset_s, usegmt=True)}"
        async with vendor({"/models": http(200, LIST, date)}) as server:
            found = await looked(tmp_path, house(server.url("/v1")))
        assert about(found, "clock").verdict is verdict
        cached = {"/models": http(200, LIST, date, "age: 7000")}
        async with vendor(cached) as server:
            found = await looked(tmp_path, house(server.url("/v1")))
        assert "clock" not in [finding.subject for finding in found], "a cache's date is an old one"

    run(test)


def test_the_state_folder_is_looked_at_and_not_made(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor(LISTS) as server:
            settings = house(server.url("/v1"))
            fresh = about(await looked(tmp_path, settings), "state folder")
            assert (fresh.verdict, "is made at the first use" in fresh.found) == (Verdict.OK, True)
            assert not (tmp_path / "state").exists()
            (tmp_path / "state").write_text("a file")
            assert about(await looked(tmp_path, settings), "state folder").verdict is Verdict.ERROR

    run(test)


def test_a_lane_that_a_person_has_closed_is_told_of(invoke: Invoke) -> None:
    with ScriptedVendor() as server:
        asked = ["check", "--base-url", server.base_url, "--api-key-env", ""]
        assert invoke("lanes", "pause", "local/smollm2", "--reason", "wrong answers").exit_code == 0
        (closed,) = [line.split("\t") for line in invoke(*asked).stdout.splitlines() if "\tlane " in line]
        assert closed[:2] == ["warning", "lane local/smollm2"]
        assert "wrong answers" in closed[2]
        assert invoke(*closed[4].split()[1:]).exit_code == 0
        assert "\tlane " not in invoke(*asked).stdout


@pytest.mark.skipif(os.name == "nt", reason="no modes there")
def test_a_file_of_keys_that_others_can_read(tmp_path: Path) -> None:
    async def test() -> None:
        async with vendor(LISTS) as server:
            environment = {"BATCHWRIGHT_HOME": str(tmp_path / "state")}
            places = Places(tmp_path, user=house(server.url("/v1")), dotenv=f"HOUSE_KEY={KEY}\n")
            places.environment.update(environment)
            settings = places.load()
            dotenv = places.project_folder / ".env"
            for mode, expected in ((0o644, ["file of keys"]), (0o600, [])):
                dotenv.chmod(mode)
                found = await check(settings, CheckRequest(timeout_s=20, asks=False))
                assert [one.subject for one in found if one.verdict is Verdict.ERROR] == expected

    run(test)


# ---------------------------------------------------------------------------------------------------------- the command


def test_the_command_and_its_codes(invoke: Invoke, tmp_path: Path) -> None:
    with ScriptedVendor() as server:
        asked = ["check", "--base-url", server.base_url, "--api-key-env", "", "-m", "m"]
        warned = invoke(*asked)
        assert warned.exit_code == 0, "warnings fail nothing"
        rows = [line.split("\t") for line in warned.stdout.splitlines()]
        assert {len(row) for row in rows} == {5}
        assert rows[0][:2] == ["ok", "state folder"]
        assert ["warning", f"vendor 127.0.0.1:{server.port}"] in [row[:2] for row in rows]
        assert warned.stderr.endswith("warnings.\n")
        proved = invoke(*asked, "--ask", "--json")
        page = json.loads(proved.stdout)
        assert (page["ok"], page["errors"]) == (True, 0)
        assert {"verdict", "subject", "found", "expected", "remedy"} == set(page["findings"][0])
        (tmp_path / "state").write_text("a file")
        assert invoke(*asked).exit_code == 1
        (tmp_path / "state").unlink()
    assert invoke(*asked).exit_code == 3, "nobody listens any more"
    refused = invoke("check", "--vendor", "none-such")
    assert refused.exit_code == 2
    assert "there is no vendor 'none-such'" in refused.stderr
    assert invoke("check", "--timeout", "soon").exit_code == 2
    assert invoke("check", "--simulate").exit_code == 0


def test_nowhere_to_go_names_the_ways(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "local_problem_of", lambda *_, **__: "it is not installed")
    told = invoke("check")
    assert told.exit_code == 3
    assert "--simulate" in told.stdout
