"""`run`: every option arrives in the request, and what cannot be right is refused before anything is read or sent."""

from __future__ import annotations

import gzip
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from batchwright.cli.params import read_params
from batchwright.core.doubt import OnUncertain
from batchwright.core.errors import UsageError
from batchwright.runner.request import Delivery, Pace, RunRequest
from batchwright.settings import Settings, Transport
from support.cli_machine import Invoke, Machine

ROW = '{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5}\n'


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(ROW * 3)
    return path


def asked_of(machine: Machine) -> tuple[Settings, RunRequest]:
    ((name, asked),) = machine.asked
    assert name == "run"
    return asked["settings"], asked["arguments"][0]


def test_every_option_arrives(machine: Machine, invoke: Invoke, rows: Path) -> None:
    words = shlex.split(
        """run rows.jsonl -o out.csv --failed failed.jsonl --format openai -m gpt --base-url https://h/v1
        -t {text} -s system --param top_p=0.5 --max-tokens 7 --temperature 0.25 --strict --fresh -c 9 --rpm 60
        --tpm 9000 --timeout 2m --max-retries 2 --limit 10 --max-cost 1.50 --allow-unpriced --deadline 2h
        --on-uncertain fail --no-gate --mixed-endpoints --skip-invalid --transport curl --progress none --json"""
    )
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr
    settings, request = asked_of(machine)
    assert request == RunRequest(
        source="rows.jsonl",
        delivery=Delivery(
            output=Path("out.csv"),
            output_format="openai",
            failed_output=Path("failed.jsonl"),
            strict=True,
            command=("batchwright", *words),
        ),
        pace=Pace(concurrency=9, rpm=60, tpm=9000, timeout_s=120.0),
        rows=request.rows,
        asked_for="h",
        skip_invalid=True,
        fresh=True,
        max_attempts=3,
        max_cost_picousd=1_500_000_000_000,
        allow_unpriced=True,
        deadline_s=7200.0,
        on_uncertain=OnUncertain.FAIL,
        gate=False,
    )
    assert (request.rows.model, request.rows.prompt, request.rows.system) == ("gpt", "{text}", "system")
    assert request.rows.params == {"top_p": 0.5, "max_tokens": 7, "temperature": 0.25}
    assert (request.rows.mixed_endpoints, request.rows.limit) == (True, 10)
    assert request.rows.destinations[0].base_url == "https://h/v1"
    assert settings.transport is Transport.CURL


def test_nothing_typed_is_the_default(machine: Machine, invoke: Invoke, rows: Path) -> None:
    assert invoke("run", "rows.jsonl").exit_code == 0
    _, request = asked_of(machine)
    assert (request.delivery.output, request.gate, request.max_attempts) == (None, True, 5)
    assert request.delivery.strict is False
    assert request.rows.destinations == ()


def test_words_on_stderr_report_on_stdout(machine: Machine, invoke: Invoke, rows: Path) -> None:
    result = invoke("run", "rows.jsonl", "-o", "out.jsonl")
    assert (result.stdout, result.stderr) == ("", "done\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json"], "--json puts the report on standard output"),
        (["--json", "-o", "-"], "--json puts the report on standard output"),
        (["--failed", "-"], "--failed: expected a file, found '-'"),
        (["--max-attempts", "3", "--max-retries", "3"], "--max-retries 3 means --max-attempts 4"),
        (["--max-attempts", "0"], "--max-attempts: expected a whole number of at least 1, found '0'"),
        (["--timeout", "fast"], "--timeout: expected a time above 0"),
        (["--param", "stream=true"], "answers are never streamed"),
        (["--api-key-env", "sk-secret"], "--api-key-env: expected the NAME"),
        (["--vendor", "nobody"], "there is no vendor 'nobody'; there are: local, simulated"),
        (["--simulate", "--base-url", "https://h/v1"], "--base-url would do nothing"),
        (["--on-uncertain", "perhaps"], "Invalid value for '--on-uncertain'"),
        (["--limit", "0"], "Invalid value for '--limit'"),
        (["--modle", "x"], "Did you mean '--model'?"),
        (["extra"], "expected one FILE, found 2 (rows.jsonl, extra)"),
    ],
)
def test_what_cannot_be_right_is_refused(
    machine: Machine, invoke: Invoke, rows: Path, arguments: list[str], message: str
) -> None:
    result = invoke("run", "rows.jsonl", *arguments)
    assert (result.exit_code, result.stdout, machine.asked) == (2, "", [])
    assert message in " ".join(result.stderr.split())
    assert "secret" not in result.stderr


def test_a_source_that_is_not_there_or_no_file(machine: Machine, invoke: Invoke, rows: Path, tmp_path: Path) -> None:
    missing = invoke("run", "row.jsonl")
    assert missing.exit_code == 2
    assert "row.jsonl: there is no such file; did you mean rows.jsonl?" in missing.stderr
    assert "is a folder" in invoke("run", str(tmp_path)).stderr
    assert "nor a folder nowhere" in invoke("run", "nowhere/rows.jsonl").stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the super-user may write everywhere")
def test_a_folder_that_may_not_be_written_to(machine: Machine, invoke: Invoke, rows: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "you may not write into the folder closed" in invoke("run", "rows.jsonl", "-o", "closed/out.jsonl").stderr


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere/out.jsonl", "does not exist"),
        (".", "is a folder"),
        ("rows.jsonl", "is the input"),
        ("./deep/../rows.jsonl", "is the input"),
        ("linked.jsonl", "is the input"),
    ],
)
def test_an_output_that_cannot_be_is_refused_by_the_dry_run_too(
    machine: Machine, invoke: Invoke, rows: Path, tmp_path: Path, place: str, message: str
) -> None:
    (tmp_path / "deep").mkdir()
    os.link(rows, tmp_path / "linked.jsonl")
    result = invoke("run", "rows.jsonl", "-n", "-o", place)
    assert result.exit_code == 2
    assert message in result.stderr
    assert rows.read_text() == ROW * 3


def test_dry_run_shows_the_plan_and_sends_nothing(machine: Machine, invoke: Invoke, rows: Path) -> None:
    result = invoke("run", "rows.jsonl", "-n", "--base-url", "https://h/v1", "--api-key-env", "")
    assert (result.exit_code, machine.asked) == (0, [])
    facts = dict(line.split("\t", 1) for line in result.stdout.splitlines())
    assert (facts["rows"], facts["refused"], facts["h"]) == ("3", "0", f"m\tno key\t3\t{3 * (len(ROW) - 1)}\t")
    read = json.loads(invoke("run", "rows.jsonl", "-n", "--json", "--base-url", "https://h/v1").stdout)
    assert (read["valid"], read["rows"], read["rows_without_price"]) == (True, 3, 3), "m has no price"
    assert read["rows_without_bound"] == 0
    assert read["cost_at_most_usd"] is None
    assert [(lane["vendor"], lane["model"], lane["rows"]) for lane in read["lanes"]] == [("h", "m", 3)]


def test_dry_run_bounds_the_cost_where_prices_are_known(machine: Machine, invoke: Invoke, rows: Path) -> None:
    priced = json.loads(invoke("run", "rows.jsonl", "-n", "--json", "--simulate").stdout)
    assert (priced["rows_without_price"], priced["rows_without_bound"]) == (0, 0)
    assert 0 < priced["cost_at_most_usd"] == sum(lane["cost_at_most_usd"] for lane in priced["lanes"]) < 0.01
    rows.write_text(ROW + ROW.replace(',"max_tokens":5', ""))
    lacking = json.loads(invoke("run", "rows.jsonl", "-n", "--json", "--simulate").stdout)
    assert (lacking["rows_without_price"], lacking["rows_without_bound"]) == (0, 1)


def test_dry_run_refuses_under_a_cap_what_the_run_would(machine: Machine, invoke: Invoke, rows: Path) -> None:
    rows.write_text(ROW + ROW.replace(',"max_tokens":5', ""))
    refused = invoke("run", "rows.jsonl", "-n", "--simulate", "--max-cost", "1")
    assert refused.exit_code == 2
    assert "1 row has no upper bound on the cost" in refused.stderr
    assert "no bound on its tokens (it has no max_tokens)" in refused.stderr
    rows.write_text(ROW.replace(',"max_tokens":5', "") * 200)
    many = invoke("run", "rows.jsonl", "-n", "--simulate", "--max-cost", "1")
    assert many.stderr.splitlines()[-1] == "  and 100 more", "a cap is nothing that `validate` knows of"
    assert invoke("run", "rows.jsonl", "-n", "--simulate", "--max-cost", "1", "--allow-unpriced").exit_code == 0


def test_an_empty_file_is_told_of_once(machine: Machine, invoke: Invoke, rows: Path) -> None:
    rows.write_text("")
    refused = invoke("run", "rows.jsonl", "-n", "--simulate")
    assert refused.stderr == "Error: rows.jsonl is empty; expected at least one row\n"


def test_the_simulator_is_no_endpoint_that_rows_should_have_gone_to(
    machine: Machine, invoke: Invoke, rows: Path
) -> None:
    for command in (["validate"], ["run", "-n"]):
        assert " rows go to " not in invoke(*command, "rows.jsonl", "--simulate").stderr, command


def test_dry_run_takes_what_is_free_for_bounded(machine: Machine, invoke: Invoke, rows: Path) -> None:
    rows.write_text(ROW.replace('"m"', '"local/smollm2"').replace(',"max_tokens":5', ""))
    result = invoke("run", "rows.jsonl", "-n", "--json", "--max-cost", "1")
    assert result.exit_code == 0, result.stderr
    read = json.loads(result.stdout)
    assert (read["cost_at_most_usd"], read["rows_without_price"], read["rows_without_bound"]) == (0, 0, 0)


def test_dry_run_of_a_refused_file(machine: Machine, invoke: Invoke, rows: Path) -> None:
    rows.write_text(ROW + "nonsense\n")
    refused = invoke("run", "rows.jsonl", "-n", "--json", "--simulate")
    assert refused.exit_code == 2
    assert "line 2: not valid JSON" in refused.stderr
    assert json.loads(refused.stdout)["valid"] is False
    kept = invoke("run", "rows.jsonl", "-n", "--json", "--simulate", "--skip-invalid")
    assert (kept.exit_code, json.loads(kept.stdout)["refused"]) == (0, 1)


def test_rows_without_anywhere_to_go_are_told_the_three_ways(machine: Machine, invoke: Invoke, rows: Path) -> None:
    for command in (["validate"], ["run", "-n"]):
        result = invoke(*command, "rows.jsonl")
        assert result.exit_code == 2
        for way in ("--base-url https://HOST/v1", "local/smollm2", "--simulate"):
            assert way in result.stderr


def test_a_withheld_key_is_explained_where_rows_need_it_and_only_there(
    machine: Machine, invoke: Invoke, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    (tmp_path / ".env").write_text("OPENAI_BASE_URL=https://stranger.example/v1")
    for command in (["validate"], ["run", "-n"]):
        needs = invoke(*command, "rows.jsonl")
        assert needs.exit_code == 2
        assert "the key OPENAI_API_KEY comes from the environment" in needs.output
        assert ".env (OPENAI_BASE_URL)" in needs.output
        assert needs.output.count("If you trust this address") == 1
        assert "--base-url https://HOST/v1" not in needs.output
    rows.write_text(ROW.replace('"m"', '"local/smollm2"'))
    assert invoke("validate", "rows.jsonl").exit_code == 0


def test_validate_lists_findings_by_line_on_stdout(machine: Machine, invoke: Invoke, rows: Path) -> None:
    rows.write_text(ROW + "nonsense\n" + ROW + "[1]\n")
    result = invoke("validate", "rows.jsonl", "--base-url", "https://h/v1")
    assert result.exit_code == 2
    assert [line.split("\t")[:2] for line in result.stdout.splitlines()] == [
        ["2", "invalid_json_line"],
        ["4", "invalid_type"],
    ]
    assert "4 rows" in result.stderr
    read = json.loads(invoke("validate", "rows.jsonl", "--base-url", "https://h/v1", "--json").stdout)
    assert (read["valid"], read["rows"], read["refused"], read["findings_total"]) == (False, 4, 2, 2)
    assert [finding["line"] for finding in read["findings"]] == [2, 4]


def test_a_good_file_validates(machine: Machine, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress((ROW * 2).encode()))
    result = invoke("validate", "rows.jsonl.gz", "--base-url", "https://h/v1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "2 rows can be sent" in result.stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=0.5", 0.5),
        ('a={"b":[1]}', {"b": [1]}),
        ("a=null", None),
        ("a=low", "low"),
        ('a="two words"', "two words"),
        ("a=gpt-4o.mini", "gpt-4o.mini"),
    ],
)
def test_params(text: str, value: Any) -> None:
    assert read_params([text], None, None) == {"a": value}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a"], "expected KEY=JSON"),
        (["=1"], "expected KEY=JSON"),
        (["a=True"], "JSON writes that a=true"),
        (["a=two words"], "is no JSON value"),
        (["a={"], "is no JSON value"),
        (["a=NaN"], "is no JSON value"),
        (["a=1", "a=2"], "'a' is given twice"),
        (["temperature=1"], "'temperature' is given twice"),
        (["model=x"], "use -m/--model"),
    ],
)
def test_what_is_no_param(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_params(texts, None, 0.5)
    assert message in str(caught.value)


TWO_VENDORS = """
[vendors.corp]
base_url = "https://corp.example/v1"
api_key_env = "CORP_KEY"
models = ["corp-*"]
[vendors.free]
base_url = "https://free.example/v1"
models = ["free-*"]
"""


def test_a_vendor_without_its_key_takes_none_of_the_others_out(
    machine: Machine, invoke: Invoke, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "batchwright.toml").write_text(TWO_VENDORS)
    monkeypatch.setenv("CORP_KEY", "sk-1")
    free, corp = ROW.replace('"m"', '"free-1"'), ROW.replace('"m"', '"corp-1"')
    rows.write_text(free * 3)
    for command in (["validate"], ["run", "-n"]):
        result = invoke(*command, "rows.jsonl")
        assert (result.exit_code, "CORP_KEY" in result.output) == (0, False), result.output
    rows.write_text(free + corp + free)
    for command in (["validate"], ["run", "-n"]):
        result = invoke(*command, "rows.jsonl")
        assert result.exit_code == 2
        for text in (
            "rows of the model 'corp-1' go to 'corp', and nothing can be sent there",
            "comes from the environment (CORP_KEY)",
            "from the project file " + str(tmp_path / "batchwright.toml"),
            '[vendors.corp]\n    base_url = "https://corp.example/v1"\n    api_key_env = "CORP_KEY"',
        ):
            assert text in result.output
    report = json.loads(invoke("validate", "rows.jsonl", "--json").stdout)
    assert (report["findings_by_code"], report["rows_by_lane"]) == ({"unroutable": 1}, {"free||free-1": 2})
    kept = json.loads(invoke("run", "rows.jsonl", "-n", "--json", "--skip-invalid").stdout)
    assert (kept["refused"], [lane["rows"] for lane in kept["lanes"]]) == (1, [2])


@pytest.mark.parametrize("option", [("-m", "m\udcff"), ("--param", 'stop="\udcff"'), ("-t", "{a} \udcff")])
def test_an_option_that_is_no_text(machine: Machine, invoke: Invoke, rows: Path, option: tuple[str, str]) -> None:
    (rows.parent / "t.csv").write_text("a,b\n1,2\n")
    result = invoke("validate", "t.csv" if option[0] == "-t" else "rows.jsonl", "--simulate", *option)
    assert (result.exit_code, "UTF-8" in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("url", ["http://a..b/v1", "http://h/v\udcff", "http://h\x01/v1", "http://h o/v1"])
def test_an_address_that_no_request_can_carry(machine: Machine, invoke: Invoke, rows: Path, url: str) -> None:
    result = invoke("validate", "rows.jsonl", "--base-url", url)
    assert (result.exit_code, "--base-url: expected a URL such as" in result.stderr) == (2, True), result.output


PLACES = [
    ("-o", "", "expected the name of a file"),
    ("--failed", "", "expected the name of a file"),
    ("-o", "x" * 300, "the file's name has 300 bytes"),
    ("-o", "x" * 240, "the file's name has 240 bytes"),
    ("-o", "d/" * 3000 + "x", "cannot be written"),
    ("-o", "loop", "cannot be written"),
    ("-o", "loop/x", "cannot be written"),
    ("--failed", "nowhere/x.jsonl", "does not exist"),
    ("--failed", "rows.jsonl/x.jsonl", "does not exist"),
    ("--failed", "folder", "is a folder"),
    ("--failed", "rows.jsonl", "is the input itself"),
    ("--failed", "out.jsonl", "give each a file of its own"),
    ("--failed", "folder/../out.jsonl", "give each a file of its own"),
]


@pytest.mark.parametrize(("option", "place", "problem"), PLACES, ids=[f"{a} {b[:9]}" for a, b, _ in PLACES])
def test_a_file_that_cannot_be_written(
    machine: Machine, invoke: Invoke, rows: Path, option: str, place: str, problem: str
) -> None:
    (rows.parent / "folder").mkdir()
    (rows.parent / "loop").symlink_to("loop")
    output = () if option == "-o" else ("-o", "out.jsonl")
    for command in (("run", "rows.jsonl", "--simulate"), ("export",)):
        if command == ("export",) and "input" in problem:
            continue
        result = invoke(*command, *output, option, place)
        assert (result.exit_code, machine.asked) == (2, []), result.output
        assert problem in result.stderr
        assert option in result.stderr


@pytest.mark.parametrize(
    ("source", "problem"), [("", "found ''"), ("x" * 300, "cannot be read"), ("loop", "cannot be")]
)
def test_an_input_that_can_be_no_file(machine: Machine, invoke: Invoke, rows: Path, source: str, problem: str) -> None:
    (rows.parent / "loop").symlink_to("loop")
    for command in ("run", "validate"):
        result = invoke(command, source, "--simulate")
        assert (result.exit_code, problem in result.stderr) == (2, True), result.output


def test_an_endpoint_that_no_row_goes_to_is_told_of(machine: Machine, invoke: Invoke, rows: Path) -> None:
    rows.write_text(ROW.replace('"m"', '"local/smollm2"'))
    for command in (("run", "rows.jsonl", "-n"), ("validate", "rows.jsonl")):
        said = invoke(*command, "--base-url", "http://localhost:1/v1", "-m", "qwen3").stderr
        assert "0 of 1 row goes to http://localhost:1/v1" in said
        assert "(1 to local)" in said
