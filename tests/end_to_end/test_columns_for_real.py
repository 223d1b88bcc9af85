"""Requests made of columns: the command with real files against a vendor on loopback, which keeps what it was sent."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchwright
from batchwright.core.errors import UsageError
from support.command_line import CommandLine, Ended
from support.scripted_vendor import ScriptedVendor
from support.service import serving

TICKETS = 'id,text,stars,lang\na1,The parcel never came,2,de\na2,"Great, thank you",5,en\na3,It is fine,,de\n'
CHAT = """{% block system %}You label tickets in {{ lang }}.{% endblock %}
{% block user %}
{% if stars and stars|int > 3 %}
Praise?
{% endif %}
{% include "parts/ask.txt" %} {{ text }}
{% endblock %}
"""


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


class Case:
    def __init__(self, command: CommandLine, vendor: ScriptedVendor) -> None:
        self.command, self.vendor, self.folder = command, vendor, command.folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def to(self) -> tuple[str, ...]:
        return ("--base-url", self.vendor.base_url, "--api-key-env", "", "-m", "m")

    def run(self, *arguments: str) -> Ended:
        return self.command("run", *arguments, *self.to(), "--progress", "none")

    def sent(self) -> list[list[dict[str, Any]]]:
        """The messages of every request, in order of their text."""
        return sorted((json.loads(hit.body)["messages"] for hit in self.vendor.hits), key=str)


@pytest.fixture
def case(command: CommandLine, vendor: ScriptedVendor) -> Case:
    case = Case(command, vendor)
    case.write("tickets.csv", TICKETS)
    return case


class TestTemplateFile:
    def test_a_table_through_a_template_with_both_messages(self, case: Case) -> None:
        case.write("prompts/chat.jinja", CHAT)
        case.write("prompts/parts/ask.txt", "One word:\n")
        ended = case.run("tickets.csv", "-o", "out.csv", "--template-file", "prompts/chat.jinja")
        assert ended.code == 0, ended.err
        assert [[message["content"] for message in messages] for messages in case.sent()] == [
            ["You label tickets in de.", "One word: It is fine"],
            ["You label tickets in de.", "One word: The parcel never came"],
            ["You label tickets in en.", "Praise?\nOne word: Great, thank you"],
        ]
        table = (case.folder / "out.csv").read_text().splitlines()
        assert table[0].startswith("id,text,stars,lang,answer,")
        assert [line.split(",")[0] for line in table[1:]] == ["a1", "a2", "a3"]

    def test_the_content_is_the_batchs_identity_and_the_name_is_not(self, case: Case) -> None:
        case.write("one.jinja", "Say {{ text }}{% include 'tail.txt' %}")
        case.write("tail.txt", "!")
        assert case.run("tickets.csv", "-o", "out.jsonl", "--template-file", "one.jinja").code == 0
        (case.folder / "one.jinja").rename(case.folder / "two.jinja")
        again = case.run("tickets.csv", "-o", "out.jsonl", "--template-file", "two.jinja")
        assert "is complete; nothing is sent" in again.err
        assert len(case.vendor.hits) == 3
        case.write("tail.txt", "?")
        other = case.run("tickets.csv", "-o", "out.jsonl", "--template-file", "two.jinja")
        assert "--template-file is now" in other.err
        assert len(case.vendor.hits) == 6

    def test_lines_of_json_that_lack_a_column_are_findings_with_both_lines(self, case: Case) -> None:
        rows = [{"text": "a", "tags": ["x", "y"]}, {"text": "b"}, {"text": "c", "tags": []}]
        case.command.write("rows.jsonl", rows)
        case.write("p.jinja", "{{ text }}\n{{ tags|join('+') }}")
        refused = case.run("rows.jsonl", "-o", "out.jsonl", "--template-file", "p.jinja")
        assert (refused.code, case.vendor.hits) == (2, [])
        assert "line 2: p.jinja, line 2 names 'tags', which is no column; the input has text" in refused.err
        kept = case.run("rows.jsonl", "-o", "out.jsonl", "--template-file", "p.jinja", "--skip-invalid")
        assert kept.code == 3
        assert [messages[0]["content"] for messages in case.sent()] == ["a\nx+y", "c"]
        assert case.command.lines()[1]["error"]["kind"] == "invalid_row"

    def test_a_name_that_is_no_column_of_a_table_is_said_once(self, case: Case) -> None:
        case.write("p.jinja", "Label:\n{{ txt }}")
        for verb in ("run", "validate"):
            ended = case.command(verb, "tickets.csv", "--template-file", "p.jinja", *case.to())
            assert ended.code == 2
            assert "p.jinja, line 2 names 'txt', which is no column; the input has id, text, stars, lang" in ended.err
        assert case.vendor.hits == []

    def test_a_loop_without_end_refuses_the_row_and_the_command_ends(self, case: Case) -> None:
        case.write("p.jinja", "{{ text }}\n{% for i in range(10**9) %}.{% endfor %}")
        ended = case.run("tickets.csv", "--template-file", "p.jinja")
        assert ended.code == 2
        assert "p.jinja, line 2: more than 1,000,000 steps" in " ".join(ended.err.split())
        assert "template_too_large" in ended.err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--template-file", "none.jinja"), "--template-file none.jinja: there is no such file"),
            (("--template-file", ""), "cannot be read: Is a directory"),
            (("--template-file", "latin.jinja"), "byte 0xe9 at position 13 is not UTF-8"),
            (("--template-file", "up.jinja"), "up.jinja includes '../tickets.csv', which is outside"),
            (("--template-file", "link.jinja"), "link.jinja includes 'away', which is outside"),
            (("--template-file", "dynamic.jinja"), "must be written out"),
            (("--template-file", "p.jinja", "-t", "{text}"), "both say what is asked"),
            (("--template-file", "chat.jinja", "-s", "x"), "--system: chat.jinja has a block called system"),
        ],
    )
    def test_what_is_refused_before_a_row_is_read(
        self, case: Case, tmp_path: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        (case.folder / "latin.jinja").write_bytes("{{ text }} n\u00e9e".encode("latin-1"))
        case.write("up.jinja", "{{ text }}{% include '../tickets.csv' %}")
        case.write("link.jinja", "{{ text }}{% include 'away' %}")
        (case.folder / "away").symlink_to("/etc/hostname")
        case.write("dynamic.jinja", "{% include text %}")
        case.write("p.jinja", "{{ text }}")
        case.write("chat.jinja", "{% block system %}s{% endblock %}{% block user %}{{ text }}{% endblock %}")
        ended = case.run("tickets.csv", *arguments)
        assert ended.code == 2
        assert message in " ".join(ended.err.split())

    def test_from_python(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BATCHWRIGHT_HOME", str(case.command.state))
        to: dict[str, Any] = {"base_url": case.vendor.base_url, "api_key_env": "", "model": "m", "progress": "none"}
        rows = [{"word": "one", "n": 2}, {"word": "two", "n": 1}]
        results = batchwright.run(rows, template="{% for i in range(n) %}{{ word }} {% endfor %}", **to)
        assert sorted(case.vendor.texts()) == ["one one", "two"]
        assert [result.content for result in results] == ["one", "two"]
        path = case.write("same.jinja", "{% for i in range(n) %}{{ word }} {% endfor %}")
        batchwright.run(rows, template_file=path, **to)
        assert len(case.vendor.hits) == 2, "the same content is the same run"
        with pytest.raises(UsageError, match="give one of them"):
            batchwright.run(rows, template="{{ word }}", template_file=path, **to)

    def test_the_example(self, case: Case) -> None:
        example = Path(__file__).parents[2] / "examples" / "label.jinja"
        assert case.run("tickets.csv", "--template-file", str(example)).code == 0
        assert [message["role"] for message in case.sent()[0]] == ["system", "user"]
        assert case.sent()[0][1]["content"].startswith("Ticket a1:\nThe parcel")


class TestWhereAndSelect:
    def test_rows_that_are_left_out_are_told_and_the_others_keep_their_lines(self, case: Case) -> None:
        case.write("tickets.csv", TICKETS + "a4,[[status=400]] no,5,de\n")
        asked = ("tickets.csv", "-t", "{text}", "--where", "lang == 'de' and not stars < 3")
        checked = case.command("validate", *asked, *case.to())
        assert "tickets.csv: 1 row, 0 blank lines, 3 left out; 1 row can be sent" in checked.err
        assert "Of 1 of these it cannot be told whether it holds" in checked.err
        assert "the first is in line 4." in checked.err
        ended = case.run(*asked, "-o", "out.jsonl")
        assert ended.code == 4
        assert "adds up: 4 input lines - 3 left out = 1 rows = 1 failed = 1 written" in ended.err
        assert "rows: those where lang == 'de' and not stars < 3" in ended.err
        assert "row 0, line 5" in ended.err
        (line,) = case.command.lines()
        assert (line["request_index"], line["ok"]) == (0, False)

    def test_selected_columns_stand_in_the_answers_and_the_template_sees_all(self, case: Case) -> None:
        ended = case.run("tickets.csv", "-t", "{lang} {text}", "--select", "stars, id", "-o", "out.csv")
        assert ended.code == 0
        table = [line.split(",")[:3] for line in (case.folder / "out.csv").read_text().splitlines()]
        assert table == [["stars", "id", "answer"], ["2", "a1", "came"], ["5", "a2", "you"], ["", "a3", "fine"]]
        assert "de It is fine" in case.vendor.texts()

    def test_lines_of_json_by_their_own_kinds_of_values(self, case: Case) -> None:
        rows = [{"text": f"t{n}", "n": n, "tags": ["even"] if n % 2 == 0 else []} for n in range(6)]
        case.command.write("rows.jsonl", rows)
        ended = case.run("rows.jsonl", "-t", "{text}", "--where", "n >= 2 and 'even' in tags", "-o", "out.jsonl")
        assert ended.code == 0
        assert sorted(case.vendor.texts()) == ["t2", "t4"]
        assert [line["request_index"] for line in case.command.lines()] == [0, 1]

    def test_a_line_that_lacks_the_column_is_a_finding_unless_it_is_asked_for_null(self, case: Case) -> None:
        case.command.write("rows.jsonl", [{"text": "a", "lang": "de"}, {"text": "b"}])
        refused = case.run("rows.jsonl", "-t", "{text}", "--where", "lang == 'de'")
        assert (refused.code, case.vendor.hits) == (2, [])
        assert "line 2" in refused.err
        assert "there is no column 'lang'; the input has text" in refused.err
        asked = case.run("rows.jsonl", "-t", "{text}", "--where", "lang == 'de' or lang is null", "-o", "out.jsonl")
        assert asked.code == 0
        assert sorted(case.vendor.texts()) == ["a", "b"]

    def test_both_are_part_of_the_batchs_identity(self, case: Case) -> None:
        def run(*arguments: str) -> str:
            ended = case.run("tickets.csv", "-t", "{text}", "-o", "out.csv", *arguments)
            assert ended.code == 0, ended.err
            return ended.err

        run("--where", "stars > 1", "--select", "id")
        assert "nothing is sent" in run("--where", " stars > 1", "--select", "id")
        assert "--where is now not given (was stars > 1)" in run("--select", "id")
        assert "--select is now 'text'" in run("--select", "text")

    def test_an_estimate_is_of_the_rows_that_are_taken(self, case: Case) -> None:
        case.write("p.jinja", "{{ text }}")
        asked = ("estimate", "tickets.csv", "--template-file", "p.jinja", "--where", "lang == 'de'", "--json")
        shown = case.command(*asked, "--simulate")
        assert (shown.code, json.loads(shown.out)["rows"]) == (0, 2), shown.err
        assert "--where takes 2 rows and leaves out 1" in shown.err

    def test_a_kill_leaves_the_same_rows_to_the_same_command(self, case: Case) -> None:
        lines = [f"r{n},t{n},{n}" for n in range(400)]
        case.write("many.csv", "id,text,n\n" + "\n".join(lines) + "\n")
        asked = ("run", "many.csv", "-t", "{text}", "--where", "n >= 100", "-o", "out.csv", *case.to())
        case.vendor.set(hold=True)
        started = case.command.start(*asked, "--progress", "none")
        started.until(case.vendor, lambda vendor: len(vendor.hits) >= 10)
        started.kill()
        started.end()
        case.vendor.set(hold=False)
        case.vendor.release()
        assert case.command(*asked, "--progress", "none").code == 0
        table = [line.split(",") for line in (case.folder / "out.csv").read_text().splitlines()[1:]]
        assert [(row[0], row[3]) for row in table] == [(f"r{n}", f"t{n}") for n in range(100, 400)]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--where", "stars = 4"), "did you mean ==? (at character 7)"),
            (("--where", "score == 4"), "there is no column 'score'; the input has id, text, stars, lang"),
            (("--where", "score is null"), "there is no column 'score'"),
            (("--where", ""), "found the end (at character 1)"),
            (("--where", "stars > 9"), "--where takes 0 rows and leaves out 3"),
            (("--select", "score"), "--select: there is no column 'score'; the input has id, text, stars, lang"),
            (("--select", "id,id"), "named twice"),
            (("--select", ""), "expected the name"),
        ],
    )
    def test_what_is_refused(self, case: Case, arguments: tuple[str, ...], message: str) -> None:
        ended = case.run("tickets.csv", "-t", "{text}", *arguments)
        assert ended.code == 2
        assert message in " ".join(ended.err.split())

    def test_rows_that_are_requests_have_no_columns(self, case: Case) -> None:
        case.command.write("rows.jsonl", [{"messages": [{"role": "user", "content": "x"}]}])
        ended = case.run("rows.jsonl", "--where", "a == 1")
        assert (ended.code, case.vendor.hits) == (2, [])
        assert "--where, --select and --image are for columns" in ended.err

    def test_from_python(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BATCHWRIGHT_HOME", str(case.command.state))
        to: dict[str, Any] = {"base_url": case.vendor.base_url, "api_key_env": "", "model": "m", "progress": "none"}
        rows = [{"word": "one", "n": 2}, {"word": "two", "n": 1}]
        results = batchwright.run(rows, prompt="{word}", where="n == 1", select=["word"], **to)
        assert [(result.index, result.content) for result in results] == [(0, "two")]
        with pytest.raises(UsageError, match="expected a list of texts"):
            batchwright.run(rows, prompt="{word}", **{**to, "select": 3})


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
JPEG = b"\xff\xd8\xff\xe0" + b"jpeg" * 900
GIF = b"GIF89a" + b"gif" * 100
WEBP = b"RIFF\x10\x00\x00\x00WEBPVP8 " + b"webp" * 50
PICTURES = {"one.png": ("image/png", PNG), "two.jpg": ("image/jpeg", JPEG), "three.gif": ("image/gif", GIF)}


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def shop(case: Case) -> Case:
    """A table with pictures, in a folder that is not the one the command is given in."""
    case.write(
        "shop/items.csv", "id,photo,ask\na,one.png,colour?\nb,pics/two.jpg,shape?\nc,https://p.example/x.png,it?\n"
    )
    (case.folder / "shop/pics").mkdir()
    (case.folder / "shop/one.png").write_bytes(PNG)
    (case.folder / "shop/pics/two.jpg").write_bytes(JPEG)
    return case


ITEMS = ("shop/items.csv", "-t", "{ask}", "--image", "photo", "-o", "out.jsonl")


class TestImages:
    def urls(self, case: Case) -> dict[str, list[str]]:
        """By the text beside them, the pictures of each request."""
        found = {}
        for messages in case.sent():
            text, *parts = messages[-1]["content"]
            assert {part["type"] for part in parts} == {"image_url"}
            found[text["text"]] = [part["image_url"]["url"] for part in parts]
        return found

    def test_files_and_urls_arrive_as_parts_of_the_message_and_are_stored_nowhere(self, shop: Case) -> None:
        ended = shop.run(*ITEMS)
        assert ended.code == 0, ended.err
        assert self.urls(shop) == {
            "colour?": [data_url("image/png", PNG)],
            "shape?": [data_url("image/jpeg", JPEG)],
            "it?": ["https://p.example/x.png"],
        }
        stored = b"".join(path.read_bytes() for path in shop.command.state.rglob("*") if path.is_file())
        assert PNG[8:200] not in stored
        assert base64.b64encode(PNG)[:200] not in stored
        shown = shop.command("rows", "@last", "--json").out
        assert len(shown) < 20_000

    def test_several_columns_and_every_kind_of_picture(self, case: Case) -> None:
        for name, (_, data) in PICTURES.items():
            (case.folder / name).write_bytes(data)
        (case.folder / "four.png").write_bytes(WEBP)  # what it is called says nothing
        rows = [
            {"a": "one.png", "b": "two.jpg", "q": "first"},
            {"a": str(case.folder / "three.gif"), "b": "", "q": "second"},
            {"a": None, "b": "four.png", "q": 'third {"url":"batchwright-file:x"}'},
        ]
        case.command.write("rows.jsonl", rows)
        ended = case.run("rows.jsonl", "-t", "{q}", "--image", "a", "--image", "b", "-o", "out.jsonl")
        assert ended.code == 0, ended.err
        assert self.urls(case) == {
            "first": [data_url("image/png", PNG), data_url("image/jpeg", JPEG)],
            "second": [data_url("image/gif", GIF)],
            'third {"url":"batchwright-file:x"}': [data_url("image/webp", WEBP)],
        }

    def test_what_is_no_picture_is_a_finding_of_its_line(self, shop: Case) -> None:
        lines = ["id,photo,ask", "a,gone.png,x", "b,text.png,x", "c,huge.png,x", "d,,x", "e,pics,x", "f,s3://b/x.png,x"]
        shop.write("shop/items.csv", "\n".join([*lines, "g,one.png,x"]) + "\n")
        shop.write("shop/text.png", "hello, I am text")
        with (shop.folder / "shop/huge.png").open("wb") as huge:
            huge.write(PNG)
            huge.truncate(21 * 1024 * 1024)
        checked = shop.command("validate", *ITEMS[:-2], *shop.to())
        found = [line.split("\t") for line in checked.out.splitlines()]
        assert [(int(line), code) for line, code, _ in found] == [(n, "image_unusable") for n in range(2, 8)]
        for (_, _, message), word in zip(
            found,
            ["is not there", "is no PNG", "at most 20,971,520", "no picture", "no file", "an object of a store"],
            strict=True,
        ):
            assert word in message
        assert (shop.run(*ITEMS).code, shop.vendor.hits) == (2, [])
        assert shop.run(*ITEMS, "--skip-invalid").code == 3
        assert self.urls(shop) == {"x": [data_url("image/png", PNG)]}

    def test_a_picture_that_changed_before_it_was_sent_fails_its_row_and_no_other_is_sent(self, shop: Case) -> None:
        assert shop.command("run", *ITEMS, *shop.to(), "-n").code == 0
        shop.vendor.set(hold=True)
        rows = "".join(f"r{n},one.png,ask{n}\n" for n in range(300))
        (shop.folder / "shop/gone.png").write_bytes(PNG + b"gone")
        shop.write("shop/items.csv", "id,photo,ask\n" + rows + "last,pics/two.jpg,last\ngone,gone.png,gone\n")
        started = shop.command.start("run", *ITEMS, *shop.to(), "-c", "4", "--progress", "none")
        started.until(shop.vendor, lambda vendor: len(vendor.hits) >= 1)
        (shop.folder / "shop/pics/two.jpg").write_bytes(JPEG[:-1] + b"X")
        (shop.folder / "shop/gone.png").unlink()
        shop.vendor.set(hold=False)
        shop.vendor.release()
        ended = started.end()
        assert ended.code == 3, ended.err
        assert "300 ok, 2 failed of 302" in ended.err
        said = " ".join(ended.err.split())
        assert "two.jpg has changed since its row came in, so the row was not sent" in said
        assert "gone.png cannot be read on this machine (No such file or directory)" in said
        assert "not sent: 2 attempts that reached no vendor" in said
        assert len(self.urls(shop)) == 300
        errors = [line["error"] for line in shop.command.lines()[300:]]
        assert [(error["kind"], error["cause"]["code"], error["line"]) for error in errors] == [
            ("invalid_row", "file_changed", 302),
            ("invalid_row", "file_missing", 303),
        ]

    def test_the_pictures_are_part_of_the_batchs_identity(self, shop: Case) -> None:
        assert shop.run(*ITEMS).code == 0
        assert "nothing is sent" in shop.run(*ITEMS).err
        (shop.folder / "shop/one.png").write_bytes(PNG + b"more")
        again = shop.run(*ITEMS)
        assert "--image is now photo, files whose digest is" in " ".join(again.err.split())
        assert len(shop.vendor.hits) == 6

    def test_an_interrupted_batch_goes_on_with_its_pictures(self, shop: Case) -> None:
        shop.vendor.set(hold=True)
        started = shop.command.start("run", *ITEMS, *shop.to(), "--progress", "none")
        started.until(shop.vendor, lambda vendor: len(vendor.hits) == 3)
        started.kill()
        started.end()
        shop.vendor.set(hold=False)
        shop.vendor.release()
        assert shop.run(*ITEMS).code == 0
        assert [line["ok"] for line in shop.command.lines()] == [True] * 3

    def test_rows_without_success_are_written_with_their_pictures(self, shop: Case) -> None:
        text = "id,photo,ask\na,one.png,[[status=400]] no\nb,one.png,yes\n"
        shop.write("shop/items.csv", text)
        assert shop.run(*ITEMS, "--failed", "failed.jsonl").code == 3
        (line,) = shop.command.lines("failed.jsonl")
        part = line["body"]["messages"][0]["content"][1]
        assert part["image_url"]["url"] == data_url("image/png", PNG)
        assert shop.command("retry", "@last", "--progress", "none").code == 3
        assert [self.urls(shop)[text] for text in ("[[status=400]] no", "yes")] == [[data_url("image/png", PNG)]] * 2
        assert len(shop.vendor.hits) == 3

    def test_a_cap_counts_what_is_sent(self, shop: Case) -> None:
        where = f'vendor = "127.0.0.1:{shop.vendor.port}"'
        prices = f'[[price]]\n{where}\npattern = "*"\ninput = "1"\noutput = "1"\n'
        shop.write("prices.toml", prices)
        shop.write("shop/items.csv", "id,photo,ask\na,one.png,colour?\n")
        asked = ("run", *ITEMS, *shop.to(), "--max-tokens", "5", "--max-cost", "1", "-n", "--json")
        shown = json.loads(shop.command(*asked, BATCHWRIGHT_PRICES=str(shop.folder / "prices.toml")).out)
        assert shown["cost_at_most_usd"] > len(base64.b64encode(PNG)) * 1e-6

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ("-t", "{ask}", "--image", "picture"),
                "--image: there is no column 'picture'; the input has id, photo, ask",
            ),
            (("-t", "{ask}", "--image", "photo", "--image", "photo"), "each once"),
            (("-t", "{ask}", "--image", ""), "expected the name of a column"),
        ],
    )
    def test_what_is_refused(self, shop: Case, arguments: tuple[str, ...], message: str) -> None:
        ended = shop.run("shop/items.csv", *arguments)
        assert ended.code == 2
        assert message in " ".join(ended.err.split())

    def test_a_template_file_with_pictures_from_python(self, shop: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BATCHWRIGHT_HOME", str(shop.command.state))
        monkeypatch.chdir(shop.folder / "shop")
        to: dict[str, Any] = {"base_url": shop.vendor.base_url, "api_key_env": "", "model": "m", "progress": "none"}
        text = "{% block system %}Look.{% endblock %}{% block user %}{{ what }}?{% endblock %}"
        results = batchwright.run([{"what": "red", "at": "one.png"}], template=text, image=["at"], **to)
        assert results[0].ok
        assert self.urls(shop) == {"red?": [data_url("image/png", PNG)]}
        assert shop.sent()[0][0] == {"role": "system", "content": "Look."}


def test_pictures_through_a_service_and_no_file_of_the_server_by_name(tmp_path: Path) -> None:
    """The file is read where the run is; what a stranger writes that looks like a reference stays text."""
    with ScriptedVendor() as vendor, serving(tmp_path / "service", vendor) as service:
        machine = CommandLine(tmp_path / "machine", BATCHWRIGHT_SERVICE_KEY=service.key)
        (machine.folder / "one.png").write_bytes(PNG)
        reference = f"batchwright-file:{hashlib.sha256(PNG).hexdigest()}"
        part = {"type": "image_url", "image_url": {"url": reference}}
        machine.write("rows.jsonl", [{"ask": "what?", "at": "one.png"}])
        machine.write("other.jsonl", [{"messages": [{"role": "user", "content": [part]}]}])
        to = ("-m", "m", "--service", service.base_url, "-o", "out.jsonl")
        assert machine("run", "rows.jsonl", "-t", "{ask}", "--image", "at", *to).code == 0
        assert machine("run", "other.jsonl", *to).code == 0
        urls = [
            part["image_url"]["url"]
            for hit in vendor.hits
            for part in json.loads(hit.body)["messages"][0]["content"]
            if part["type"] == "image_url"
        ]
        assert urls == [data_url("image/png", PNG), reference]
