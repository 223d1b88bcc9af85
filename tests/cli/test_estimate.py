"""`estimate` without asking: what is told of rows, tokens, prices and bounds, and what of the state folder helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchwright.core.token_guess import guess_tokens
from batchwright.wire.prompt_text import guess_prompt
from support.cli_machine import Invoke
from support.scripted_vendor import ScriptedVendor

PRICED = """
[[price]]
pattern = "m-*"
input = "1"
output = "2"
"""
ENGLISH = (
    "The parcel was promised for Tuesday and had not come by Friday evening. I have written to the support team twice "
    "and nobody has answered yet. Please tell me whether it was lost, and if so, how I get my money back."
)
"""44 words: 42 to 46 tokens by tokenizers of today."""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> Any:
    (tmp_path / "prices.toml").write_text(PRICED)
    monkeypatch.setenv("BATCHWRIGHT_PRICES", str(tmp_path / "prices.toml"))

    def write(rows: list[dict[str, Any]], name: str = "rows.jsonl") -> str:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return name

    return write


def estimate(invoke: Invoke, *words: str) -> dict[str, Any]:
    ended = invoke("estimate", *words, "--json")
    assert ended.exit_code == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


HERE = ("--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "")


def test_bounds_make_the_range_and_nothing_is_sent(write: Any, invoke: Invoke) -> None:
    file = write([{"model": "m-1", "prompt": ENGLISH, "max_tokens": 50} for _ in range(10)])
    found = estimate(invoke, file, *HERE)
    tokens, out, cost = found["tokens_in"], found["tokens_out"], found["cost_usd"]
    assert tokens["low"] <= 10 * 52 <= tokens["high"]
    assert (out["low"], out["likely"], out["high"]) == (10, 500, 500)
    assert cost["low"] < cost["likely"] < cost["high"]
    assert cost["likely"] == pytest.approx((tokens["likely"] + 2 * 500) / 10**6, rel=0.01)
    assert (found["rows_without_price"], found["rows_without_bound"], found["sample"]) == (0, 0, None)
    assert found["batch_cost_usd"] is None, "the user's own price says nothing of a batch price"


def test_what_is_not_known_is_told_and_is_no_zero(write: Any, invoke: Invoke) -> None:
    rows = [{"model": "m-1", "prompt": "a"}, {"model": "strange", "prompt": "b", "max_tokens": 5}]
    file = write(rows)
    found = estimate(invoke, file, *HERE)
    assert found["cost_usd"]["high"] is None
    assert found["cost_usd"]["low"] > 0
    assert (found["rows_without_price"], found["rows_without_bound"]) == (1, 1)
    by_model = {lane["model"]: lane for lane in found["lanes"]}
    assert by_model["strange"]["cost_usd"] is None
    shown = invoke("estimate", file, *HERE)
    assert "1 row without a price (strange)" in shown.stderr
    assert "1 row without a bound" in shown.stderr
    assert "Nothing was sent" in shown.stderr
    assert shown.stdout.splitlines()[-1].startswith("127.0.0.1:9\tstrange\t1\t")


def test_a_batch_price_stands_beside_only_where_the_data_has_one(write: Any, invoke: Invoke) -> None:
    there = ("--base-url", "https://api.openai.com/v1", "--api-key-env", "")
    row = {"prompt": "a", "max_tokens": 100}
    with_one = write([{"model": "gpt-4o-mini", **row}])
    found = estimate(invoke, with_one, *there)
    assert found["batch_cost_usd"]["high"] == pytest.approx(found["cost_usd"]["high"] / 2, rel=0.01)
    mixed = write([{"model": "gpt-4o-mini", **row}, {"model": "m-1", **row}])
    found = estimate(invoke, mixed, *there)
    assert found["batch_cost_usd"] is None, "a sum of both kinds would be no batch price"
    assert [lane["batch_cost_usd"] is None for lane in found["lanes"]].count(False) == 1


def test_embeddings_have_no_output_and_need_no_bound(write: Any, invoke: Invoke) -> None:
    file = write(
        [{"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m-e", "input": "hi"}}]
    )
    found = estimate(invoke, file, *HERE)
    assert found["tokens_out"] == {"low": 0, "likely": 0, "high": 0}
    assert found["rows_without_bound"] == 0
    assert found["cost_usd"]["high"] > 0


def test_refused_rows_refuse_as_a_run_does(write: Any, invoke: Invoke) -> None:
    file = write([{"model": "m-1", "prompt": "a"}, {"model": "m-1", "messages": "no list"}])
    ended = invoke("estimate", file, *HERE)
    assert ended.exit_code == 2
    assert "1 of 2 rows cannot be sent" in ended.stderr
    assert estimate(invoke, file, *HERE, "--skip-invalid")["refused"] == 1


def test_options_that_need_a_sample_or_a_file_say_so(write: Any, invoke: Invoke) -> None:
    file = write([{"model": "m-1", "prompt": "a"}])
    assert "--seed says which rows a sample asks" in invoke("estimate", file, *HERE, "--seed", "1").stderr
    asked = invoke("estimate", "-", *HERE, "--sample", "5", input='{"model":"m-1","prompt":"a"}\n')
    assert asked.exit_code == 2
    assert "which standard input cannot be" in asked.stderr


def test_earlier_answers_of_the_model_mend_the_guess(write: Any, invoke: Invoke) -> None:
    text = "[[usage=000200,000007]] " + "word " * 40
    rows = [{"model": "m-1", "prompt": f"{text}{number:03}"} for number in range(40)]
    with ScriptedVendor() as vendor:
        there = ("--base-url", vendor.base_url, "--api-key-env", "")
        before = estimate(invoke, write(rows), *there)
        assert not before["tokens_in"]["low"] <= 40 * 200 <= before["tokens_in"]["high"], "a strange tokenizer"
        ran = invoke("run", write(rows[:30], "some.jsonl"), "-o", "out.jsonl", *there, "--progress", "none")
        assert ran.exit_code == 0, ran.stderr
        asked = len(vendor.hits)
        after = estimate(invoke, "rows.jsonl", *there)
        assert len(vendor.hits) == asked
    assert after["tokens_in"]["low"] <= 40 * 200 <= after["tokens_in"]["high"]
    assert after["tokens_out"]["likely"] == 40 * 7
    assert after["lanes"][0]["learned_from"] == 30


def test_a_guess_by_kinds_of_text_is_within_its_own_bounds() -> None:
    """Counts of today's tokenizers, of texts of several kinds, about which the page's ratios must be right."""
    for text, least, most in (
        (ENGLISH, 42, 46),
        ("Привет, как дела? Посылка не пришла, и никто не отвечает.", 16, 26),
        ("包裹还没有到请告诉我在哪里。", 9, 16),
        ('{"id": 17, "tags": ["a", "b"], "price": 12.50, "ok": true}', 24, 32),
    ):
        guess = guess_tokens(text.encode())
        assert guess.low <= most, text
        assert guess.high >= least, text
        assert guess.low < guess.likely < guess.high


def test_names_of_fields_and_images_are_no_text() -> None:
    plain = guess_prompt(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello there"}]}).encode())
    parts = [{"type": "text", "text": "hello there"}, {"type": "image_url", "image_url": {"url": "data:" + "A" * 9999}}]
    shown = guess_prompt(json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode())
    assert plain.likely < 10
    assert plain.likely + 700 < shown.likely < plain.likely + 800
    assert guess_prompt(b"no json").likely == 0
    assert guess_prompt(b'{"input": [[1, 2, 3], [4, 5]]}').likely == pytest.approx(5 + 4)
