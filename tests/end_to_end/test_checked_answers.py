"""Answers held against a schema by the command: matched, kept, failed, asked for again, and killed in between."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.settings.answers import schema_vendors
from support.command_line import CommandLine, Ended, chat_row
from support.scripted_vendor import ScriptedVendor
from support.slow_batch_vendor import KEY, SlowBatchVendor

SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["good", "bad"]}, "score": {"type": "integer"}, "answer": {"type": "string"}},
    "required": ["label"],
}
PRICES = '[[price]]\npattern = "*"\ninput = "1"\noutput = "10"\n'
"""USD per million tokens: each answered request costs 0.00003."""
EACH_USD = 3e-5


class Checked:
    def __init__(self, folder: Path, vendor: ScriptedVendor) -> None:
        (folder / "prices.toml").write_text(PRICES)
        (folder / "schema.json").write_text(json.dumps(SCHEMA))
        self.command = CommandLine(folder, BATCHWRIGHT_PRICES=str(folder / "prices.toml"))
        self.vendor = vendor

    def arguments(self, *options: str) -> tuple[str, ...]:
        endpoint = ("--base-url", self.vendor.base_url, "--api-key-env", "", "--progress", "none")
        output = () if "-o" in options else ("-o", "out.jsonl")
        return ("run", "rows.jsonl", *output, "--schema", "schema.json", *endpoint, *options)

    def run(self, rows: list[Any], *options: str) -> Ended:
        self.command.write("rows.jsonl", rows)
        return self.command(*self.arguments(*options))

    def lines(self) -> list[dict[str, Any]]:
        return self.command.lines()


@pytest.fixture
def checked(tmp_path: Path, vendor: ScriptedVendor) -> Checked:
    return Checked(tmp_path, vendor)


def asked_again(vendor: ScriptedVendor) -> list[dict[str, Any]]:
    """Bodies of requests that ask for an answer again."""
    bodies = [json.loads(hit.body) for hit in vendor.hits]
    return [body for body in bodies if len(body.get("messages", [])) > 1]


def parsed(line: dict[str, Any]) -> Any:
    return line["result"]["parsed"]


GOOD = "[[say=\"{'label':'good','score':-3}\"]] one"
FENCED = "[[say=\"Sure:\n```json\n{'label':'bad'}\n```\nThat is it.\"]] two"
WRONG = "[[say=\"{'label':'neither'}\"]] three"
PROSE = '[[say="It is good."]] four'


def test_matched_and_kept(checked: Checked) -> None:
    rows = [chat_row(text, str(number)) for number, text in enumerate((GOOD, FENCED, WRONG, PROSE))]
    rows += [chat_row("[[refusal]] five", "4"), chat_row("[[finish=length say=\"{'label':'go\"]] six", "5")]
    rows += [chat_row("[[finish=length say=\"{'label':'good'}\"]] seven", "6")]
    ended = checked.run(rows)
    assert ended.code == 0, ended.err
    lines = checked.lines()
    assert [parsed(line) for line in lines] == [
        {"label": "good", "score": -3},
        {"label": "bad"},
        *[None] * 4,
        {"label": "good"},
    ]
    assert [line["flags"] for line in lines] == [
        *([], [], ["schema_mismatch"], ["schema_mismatch"], ["refused"], ["schema_mismatch"], ["truncated"]),
    ]
    assert lines[2]["result"]["content"] == '{"label":"neither"}', "it is paid, and kept"
    assert "at $.label: 'neither' is not one of ['good', 'bad']" in lines[2]["result"]["mismatch"]
    assert lines[3]["result"]["mismatch"] == "the answer is no JSON, and holds none"
    assert "cut off" in lines[5]["result"]["mismatch"]
    assert "mismatch" not in lines[0]["result"]
    assert "7 ok (1 truncated, 1 refused, 3 schema_mismatch) of 7" in ended.err
    assert "schema: 3 answers did not match and are kept (for example row 2, line 3, 2: at $.label" in ended.err
    assert "repairs" not in ended.err
    assert len(checked.vendor.hits) == 7, "nothing was asked for again"

    assert checked.command("rows", "@last", "--flag", "schema_mismatch").out.count("\n") == 3
    shown = checked.command("rows", "@last", "--limit", "1", "--json")
    assert parsed(json.loads(shown.out)) == {"label": "good", "score": -3}


def test_columns_of_a_table(checked: Checked) -> None:
    (checked.command.folder / "rows.csv").write_text("id,label\n1,mine\n2,\n")
    prompt = "[[say=\"{{'label':'good','score':-3,'answer':'=1+1'}}\"]] {id}"
    arguments = [("rows.csv" if word == "rows.jsonl" else word) for word in checked.arguments("-o", "out.csv")]
    ended = checked.command(*arguments, "-t", prompt, "-m", "m")
    assert ended.code == 0, ended.err
    with (checked.command.folder / "out.csv").open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    names = ["id", "label", "parsed_label", "score", "parsed_answer", "answer"]
    assert list(first)[:6] == names
    assert [first[name] for name in names] == ["1", "mine", "good", "-3", "'=1+1", first["answer"]]
    assert json.loads(first["answer"])["score"] == -3
    assert second["label"] == ""
    again = checked.command(*arguments, "-t", prompt, "-m", "m")
    assert "nothing is sent" in again.err
    assert "would be lost" not in again.err
    exported = checked.command("export", "@last", "-o", "out.parquet")
    assert exported.code == 0, exported.err
    typed = pq.read_table(checked.command.folder / "out.parquet").to_pylist()[0]
    assert list(typed)[:6] == names
    assert [typed[name] for name in names[:5]] == ["1", "mine", "good", "-3", "=1+1"]


def test_failed_by_option(checked: Checked) -> None:
    rows = [chat_row(text) for text in (GOOD, WRONG, "[[refusal]] five")]
    ended = checked.run(rows, "--on-mismatch", "fail", "--failed", "failed.jsonl")
    assert ended.code == 3, ended.err
    lines = checked.lines()
    assert [line["ok"] for line in lines] == [True, False, False]
    error = lines[1]["error"]
    assert (error["code"], error["kind"], error["retryable"]) == ("SCHEMA_MISMATCH", "schema_failed", True)
    assert "is not one of" in error["message"]
    assert lines[1]["response"]["choices"][0]["message"]["content"] == '{"label":"neither"}'
    assert lines[2]["error"]["message"] == "the answer is refused"
    assert [line["cost_usd"] for line in lines] == [EACH_USD] * 3
    assert len((checked.command.folder / "failed.jsonl").read_text().splitlines()) == 2
    assert checked.command("retry", "@last", "--kind", "schema_failed").code == 3
    assert len(checked.vendor.hits) == 5


def test_repaired_in_the_second_attempt(checked: Checked) -> None:
    rows = [
        chat_row(GOOD),
        chat_row("[[say=\"{'label':'neither'}\" then=\"{'label':'bad'}\"]] a"),
        chat_row("[[say=nothing then=\"{'label':5}|{'label':'good'}\"]] b"),
        chat_row("[[say=\"{'label':6}\" then=\"{'label':7}|{'label':8}|{'label':9}\"]] c"),
    ]
    ended = checked.run(rows, "--repair", "2", "--json")
    assert ended.code == 0, ended.err
    lines = checked.lines()
    assert [parsed(line) and parsed(line)["label"] for line in lines] == ["good", "bad", "good", None]
    assert lines[3]["result"]["content"] == '{"label":8}', "the last answer is the one that is kept"
    assert [line["attempts"] for line in lines] == [1, 2, 3, 3]
    assert [line["cost_usd"] for line in lines] == pytest.approx([EACH_USD * count for count in (1, 2, 3, 3)])
    report = ended.report
    assert report["repairs"] == {"asked": 5, "rows": 3, "mended": 2}
    assert (report["attempts"], report["retries"], report["possible_double_payments"]) == (9, 0, 0)
    assert report["cost"]["known_usd"] == pytest.approx(9 * EACH_USD)
    assert report["tokens"]["prompt"] == 90
    assert report["adds_up"]
    told = checked.command(*checked.arguments("--repair", "2"))
    assert "repairs: 5 answers of 3 rows asked for again; 2 of these rows match now" in told.err
    assert "schema: 1 answer did not match and is kept" in told.err

    first = next(body for body in asked_again(checked.vendor) if body["messages"][0]["content"].endswith("] a"))
    assert [turn["role"] for turn in first["messages"]] == ["user", "assistant", "user"]
    assert first["messages"][1]["content"] == '{"label":"neither"}'
    assert "'neither' is not one of ['good', 'bad']" in first["messages"][2]["content"]
    assert json.dumps(SCHEMA, separators=(",", ":")) in first["messages"][2]["content"]


@pytest.mark.parametrize(("mode", "code"), [("flag", 0), ("fail", 3)])
def test_a_repair_that_fails_leaves_the_answer_before_it(checked: Checked, mode: str, code: int) -> None:
    rows = [
        chat_row(GOOD),
        chat_row('[[say="{}" then="[status=400 code=bad]"]] refused'),
        chat_row("[[say=\"{}\" then=\"[status=500]|{'label':'good'}\"]] tried again"),
        chat_row('[[say="{}" then="[status=500]"]] never'),
    ]
    ended = checked.run(rows, "--repair", "1", "--max-attempts", "2", "--on-mismatch", mode, "--json")
    assert ended.code == code, ended.err
    lines = checked.lines()
    assert [line["ok"] for line in lines] == [True, mode == "flag", True, mode == "flag"]
    assert lines[1]["response"]["choices"][0]["message"]["content"] == "{}"
    assert "'label' is a required property" in json.dumps(lines[1])
    assert parsed(lines[2]) == {"label": "good"}
    assert lines[1]["attempts_met"] == [f"{lines[0]['vendor']}: invalid_request 400"]
    assert [line["attempts"] for line in lines] == [1, 2, 3, 3]
    assert [line["cost_usd"] for line in lines] == pytest.approx([EACH_USD * count for count in (1, 1, 2, 1)])
    report = ended.report
    assert (report["repairs"]["asked"], report["retries"]) == (3, 2)
    assert report["adds_up"]


def test_other_endpoints_are_checked_and_repaired(checked: Checked) -> None:
    text = "[[say=\"{'label':1}\" then=\"{'label':'good'}\"]]"
    rows = [
        {"url": "/v1/responses", "body": {"model": "m", "input": f"{text} r"}},
        {"url": "/v1/responses", "body": {"model": "m", "input": [{"role": "user", "content": f"{text} l"}]}},
        {"url": "/v1/completions", "body": {"model": "m", "prompt": f"{text} c"}},
    ]
    ended = checked.run(rows, "--repair", "1", "--mixed-endpoints")
    assert ended.code == 0, ended.err
    assert [parsed(line) for line in checked.lines()] == [{"label": "good"}] * 3
    refused = checked.run([{"url": "/v1/embeddings", "body": {"model": "m", "input": "x"}}])
    assert refused.code == 2
    assert "answers of /embeddings are no texts" in refused.err


def test_the_schema_goes_along_where_the_vendor_takes_it(checked: Checked) -> None:
    (checked.command.folder / "batchwright.toml").write_text(
        f'[vendors.told]\nbase_url = "{checked.vendor.base_url}"\napi_key_env = ""\nprofile = "vllm"\n'
    )
    own = {"type": "json_object"}
    rows = [chat_row(GOOD, model="told/m"), chat_row(f"{GOOD} own", model="told/m", response_format=own)]
    checked.command.write("rows.jsonl", rows)
    run = ("run", "rows.jsonl", "-o", "out.jsonl", "--schema", "schema.json", "--progress", "none")
    assert checked.command(*run).code == 0
    bodies = {json.loads(hit.body)["messages"][0]["content"]: json.loads(hit.body) for hit in checked.vendor.hits}
    stated = bodies[GOOD]["response_format"]
    assert stated == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert bodies[f"{GOOD} own"]["response_format"] == own
    assert checked.run([chat_row(GOOD)], "--fresh").code == 0
    assert "response_format" not in json.loads(checked.vendor.hits[-1].body), "nobody said that this one takes it"


def test_the_local_model_takes_it_whatever_is_configured() -> None:
    assert schema_vendors([Destination(vendor="a", base_url="https://a.example/v1")]) == {"local"}
    told = [Destination(vendor=name, base_url="https://a.example/v1", profile=name) for name in ("openai", "deepseek")]
    assert schema_vendors(told) == {"local", "openai"}
    service = Destination(vendor="s", base_url="https://api.openai.com/v1", protocol=VendorProtocol.SERVICE)
    assert schema_vendors([service]) == {"local"}


def test_another_schema_is_another_run(checked: Checked) -> None:
    assert checked.run([chat_row(GOOD)]).code == 0
    (checked.command.folder / "schema.json").write_text('{"type": "array"}')
    again = checked.command(*checked.arguments())
    assert "--schema is now" in again.err
    assert checked.lines()[0]["flags"] == ["schema_mismatch"]
    assert len(checked.vendor.hits) == 2


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "expected a JSON schema, an object"),
        ('{"type": "strin"}', "is not valid under any of the given schemas"),
        ('{"$ref": "https://elsewhere.example/schema.json"}', "nothing is fetched"),
        ('{"$ref": "#/$defs/none"}', "leads nowhere"),
        ('{"$schema": "https://elsewhere.example/dialect"}', "no JSON Schema dialect that is known"),
    ],
)
def test_what_is_no_schema_is_refused(checked: Checked, schema: str, words: str) -> None:
    (checked.command.folder / "schema.json").write_text(schema)
    ended = checked.run([chat_row(GOOD)])
    assert (ended.code, words in ended.err) == (2, True), ended.err
    assert checked.vendor.hits == []


def test_options_that_need_a_schema_say_so(checked: Checked) -> None:
    checked.command.write("rows.jsonl", [chat_row(GOOD)])
    without = [word for word in checked.arguments("--repair", "1") if word not in ("--schema", "schema.json")]
    ended = checked.command(*without)
    assert ended.code == 2
    assert "give a schema too" in ended.err


def test_a_kill_in_the_middle_of_a_repair_loses_nothing(checked: Checked) -> None:
    """The first answers are durable, two repairs are out: after the kill the repairs are sent again and counted as
    possible double payments, and no first request is."""
    texts = [f"[[say=\"{{'label':{n}}}\" then=\"[hold]|{{'label':'good'}}\"]] {n}" for n in (1, 2)]
    checked.command.write("rows.jsonl", [*map(chat_row, texts), chat_row(GOOD)])
    running = checked.command.start(*checked.arguments("--repair", "1"))
    running.until(checked.vendor, lambda vendor: len(asked_again(vendor)) == 2)
    running.kill()
    assert running.end().code == -9
    ended = checked.command(*checked.arguments("--repair", "1", "--json"))
    assert ended.code == 0, ended.err
    assert [parsed(line)["label"] for line in checked.lines()] == ["good"] * 3
    assert len(asked_again(checked.vendor)) == 4
    assert len(checked.vendor.hits) - 4 == 3, "the first request of each row went out once"
    report = ended.report
    assert report["repairs"] == {"asked": 2, "rows": 2, "mended": 2}
    assert (report["attempts"], report["possible_double_payments"]) == (7, 2)
    assert report["cost"]["known_usd"] == pytest.approx(5 * EACH_USD)
    assert report["adds_up"]


def test_a_kill_under_fail_ends_the_row_by_its_answer(checked: Checked) -> None:
    text = "[[say=\"{'label':1}\" then=\"[hold]|{'label':'good'}\"]]"
    checked.command.write("rows.jsonl", [chat_row(text)])
    options = ("--repair", "1", "--on-uncertain", "fail")
    running = checked.command.start(*checked.arguments(*options))
    running.until(checked.vendor, lambda vendor: len(asked_again(vendor)) == 1)
    running.kill()
    running.end()
    ended = checked.command(*checked.arguments(*options, "--json"))
    assert ended.code == 0, ended.err
    (line,) = checked.lines()
    assert (line["flags"], line["result"]["content"], line["attempts"]) == (["schema_mismatch"], '{"label":1}', 2)
    assert line["cost_usd"] == EACH_USD
    assert (ended.report["possible_double_payments"], len(checked.vendor.hits)) == (1, 2)


def test_an_answer_that_is_taken_over_has_to_match(checked: Checked) -> None:
    checked.command.write("rows.jsonl", [chat_row(GOOD), chat_row(WRONG)])
    without = [word for word in checked.arguments() if word not in ("--schema", "schema.json")]
    assert checked.command(*without).code == 0
    ended = checked.command(*checked.arguments("--reuse"))
    assert ended.code == 0, ended.err
    first, second = checked.lines()
    assert (first["attempts"], parsed(first)["label"]) == (0, "good")
    assert (second["attempts"], second["flags"]) == (1, ["schema_mismatch"])
    assert len(checked.vendor.hits) == 3


def test_a_cap_holds_for_repairs(checked: Checked) -> None:
    """A repair is a longer request: it is sent only where the cap covers what it may cost."""
    text = '[[say="{}" then="{}"]]'
    checked.command.write("rows.jsonl", [chat_row(text, max_tokens=2)])
    ended = checked.command(*checked.arguments("--repair", "5", "--max-cost", "0.0006", "--json"))
    assert ended.code == 5, ended.err
    sent = len(checked.vendor.hits)
    assert 1 <= sent < 6
    assert ended.report["cost"]["known_usd"] == pytest.approx(sent * EACH_USD)
    more = checked.command(*checked.arguments("--repair", "5", "--max-cost", "1", "--json"))
    assert more.code == 0, more.err
    assert len(checked.vendor.hits) == 6
    assert more.report["cost"]["known_usd"] == pytest.approx(6 * EACH_USD)
    (line,) = checked.lines()
    assert (line["flags"], line["attempts"]) == (["schema_mismatch"], 6)


def test_a_retry_has_repairs_of_its_own_and_never_makes_it_worse(checked: Checked) -> None:
    wrong = "[[say=\"{'label':1}\" then=\"{'label':2}|[status=400 code=bad]|{'label':'good'}\"]]"
    assert checked.run([chat_row(wrong), chat_row(GOOD)], "--repair", "1").code == 0
    assert checked.lines()[0]["result"]["content"] == '{"label":2}'
    again = checked.command("retry", "@last", "--flag", "schema_mismatch", "-o", "out.jsonl", "--json")
    assert again.code == 0, again.err
    line = checked.lines()[0]
    assert (line["result"]["content"], line["flags"], line["attempts"]) == ('{"label":1}', ["schema_mismatch"], 4)
    assert (again.report["repairs"]["asked"], again.report["retries"]) == (2, 0)
    assert checked.command("retry", "@last", "--flag", "schema_mismatch", "-o", "out.jsonl").code == 0
    line = checked.lines()[0]
    assert (parsed(line), line["flags"], line["attempts"]) == ({"label": "good"}, [], 6)
    assert line["cost_usd"] == pytest.approx(5 * EACH_USD)


def test_an_interrupted_run_goes_on_with_its_repairs(checked: Checked) -> None:
    """Ctrl-C lets what is out finish: the repair comes back and does not match; the next one is the next run's."""
    text = "[[say=\"{'label':1}\" then=\"[hold say={'label':2}]|{'label':'good'}\"]]"
    checked.command.write("rows.jsonl", [chat_row(text)])
    running = checked.command.start(*checked.arguments("--repair", "2", "--progress", "plain"))
    running.until(checked.vendor, lambda vendor: len(asked_again(vendor)) == 1)
    running.interrupt()
    running.wait_for("Ctrl-C stops at once")
    checked.vendor.release()
    assert running.end().code == 130
    ended = checked.command(*checked.arguments("--repair", "2", "--json"))
    assert ended.code == 0, ended.err
    (line,) = checked.lines()
    assert (parsed(line), line["attempts"]) == ({"label": "good"}, 3)
    assert (ended.report["repairs"]["asked"], ended.report["possible_double_payments"]) == (2, 0)


def test_through_a_batch_api_repairs_are_a_batch_of_their_own(tmp_path: Path) -> None:
    """This vendor echoes what it is asked: a word, which is no JSON, and then the repair's text, which holds one
    object: the schema."""
    command = CommandLine(tmp_path)
    with SlowBatchVendor() as slow:
        user_file = tmp_path / "config" / "batchwright" / "config.toml"
        user_file.parent.mkdir(parents=True)
        user_file.write_text(
            f'[vendors.slow]\nbase_url = "{slow.base_url}"\napi_key_env = "SLOW_KEY"\nprofile = "openai"\n'
        )
        (tmp_path / "schema.json").write_text('{"type": "object"}')
        command.write("rows.jsonl", [chat_row(f"w{row}", model="m") for row in range(5)])
        run = ("run", "rows.jsonl", "-o", "out.jsonl", "--via", "batch", "--schema", "schema.json", "--repair", "1")
        ended = command(*run, "--json", SLOW_KEY=KEY)
        assert ended.code == 0, ended.err
        assert [parsed(line) for line in command.lines()] == [{"type": "object"}] * 5
        assert {line["attempts"] for line in command.lines()} == {2}
        assert ended.report["repairs"] == {"asked": 5, "rows": 5, "mended": 5}
        assert sum(slow.batched.values()) == 10
        assert not slow.live
        assert len(slow.batches) >= 2
