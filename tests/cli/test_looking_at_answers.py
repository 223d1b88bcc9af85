"""`sample`, `stats` and `diff` over real runs and over files of every shape that is written."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchwright.core.spread import Spread
from batchwright.runner import pairing
from support.cli_machine import Invoke
from support.scripted_vendor import ScriptedVendor

ROWS = 60


@pytest.fixture(scope="module")
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


class Asked:
    """A file of rows, sent to the vendor; each answer is its row's last word."""

    def __init__(self, invoke: Invoke, vendor: ScriptedVendor, folder: Path) -> None:
        self.invoke, self.folder = invoke, folder
        self.endpoint = ("--base-url", vendor.base_url, "--api-key-env", "", "--progress", "none", "-m", "m")

    def run(self, texts: list[str], name: str = "one.jsonl", *, ids: bool = True, code: int = 0) -> str:
        """Returns the batch's id."""
        rows = [{"prompt": text} | ({"custom_id": f"r{place}"} if ids else {}) for place, text in enumerate(texts)]
        (self.folder / f"rows-{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
        ended = self.invoke("run", f"rows-{name}", "-o", name, *self.endpoint, "--json", "--no-gate")
        assert ended.exit_code == code, ended.stderr
        return str(json.loads(ended.stdout)["batch_id"])

    def json(self, *words: str, code: int = 0) -> Any:
        ended = self.invoke(*words, "--json")
        assert ended.exit_code == code, ended.stderr
        return json.loads(ended.stdout)

    def lines(self, *words: str) -> list[list[str]]:
        ended = self.invoke(*words)
        assert ended.exit_code == 0, ended.stderr
        return [line.split("\t") for line in ended.stdout.splitlines()]


@pytest.fixture
def asked(invoke: Invoke, vendor: ScriptedVendor, tmp_path: Path) -> Asked:
    return Asked(invoke, vendor, tmp_path)


def labelled(rows: int = ROWS) -> list[str]:
    return [f"{number} {'positive' if number % 3 else 'negative'}" for number in range(rows)]


# ---------------------------------------------------------------------------------------------------------- sample


def test_a_sample_is_drawn_over_the_whole_batch_and_by_its_seed(asked: Asked) -> None:
    asked.run(labelled())
    first = asked.lines("sample", "-n", "20")
    indexes = [int(line[0]) for line in first]
    assert len(set(indexes)) == 20
    assert indexes == sorted(indexes)
    assert indexes != list(range(20))
    assert asked.lines("sample", "@last", "-n", "20") == first
    assert asked.lines("sample", "-n", "20", "--seed", "1") != first
    assert [int(line[0]) for line in asked.lines("sample", "-n", "20", "--outcome", "ok")] == indexes, "filtered: alike"
    assert [int(line[0]) for line in asked.lines("sample", "one.jsonl", "-n", "20")] == indexes, "of the file: alike"
    assert len(asked.lines("sample", "-n", "500")) == ROWS
    shown = asked.invoke("sample", "-n", "2", "--json")
    assert [json.loads(line)["ok"] for line in shown.stdout.splitlines()] == [True, True]


def test_a_sample_keeps_to_its_filters(asked: Asked) -> None:
    texts = [f"[[status=400 code=bad]] {n}" if n % 4 == 0 else f"[[finish=length]] w{n}" for n in range(ROWS)]
    asked.run(texts, code=3)
    failed = asked.lines("sample", "-n", "5", "--outcome", "failed")
    assert {line[2] for line in failed} == {"invalid_request"}
    assert {line[2] for line in asked.lines("sample", "one.jsonl", "-n", "5", "--kind", "invalid_request")} == {
        "invalid_request"
    }
    assert {line[2] for line in asked.lines("sample", "-n", "5", "--flag", "truncated")} == {"ok, truncated"}
    assert {line[2] for line in asked.lines("sample", "one.jsonl", "-n", "5", "--flag", "truncated")} == {"truncated"}
    nothing = asked.invoke("sample", "--flag", "refused")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "No row fits." in nothing.stderr


# ----------------------------------------------------------------------------------------------------------- stats


def test_stats_of_labels(asked: Asked) -> None:
    texts = labelled()
    texts[0] = "[[status=400 code=bad]] x"
    texts[1] = "[[finish=length]] 1 positive"
    asked.run(texts, code=3)
    stats = asked.json("stats")
    assert stats["rows"] == ROWS
    assert stats["outcomes"] == {"ok": ROWS - 2, "truncated": 1, "invalid_request": 1}
    assert stats["finish_reasons"] == {"stop": ROWS - 2, "length": 1}
    assert {each["answer"]: each["rows"] for each in stats["answers"]} == {"positive": 40, "negative": 19}
    assert stats["output_tokens"] == {"least": 2, "p50": 2, "p90": 2, "p99": 2, "most": 2, "mean": 2}
    assert stats["answer_chars"]["most"] == 8
    assert stats["latency_ms"]["most"] >= stats["latency_ms"]["p50"] >= stats["latency_ms"]["least"] >= 0
    (model,) = stats["models"]
    assert (model["model"], model["rows"], model["ok"], model["prompt_tokens"]) == ("m", ROWS, ROWS - 1, 590)
    assert (model["cost_usd"], model["rows_without_cost"]) == (None, ROWS - 1), "what has no price is no zero"
    shown = asked.lines("stats", "--answers", "1")
    assert ["answer", "positive", "40"] in shown
    assert not any(line[:2] == ["answer", "negative"] for line in shown)


def test_answers_that_are_no_labels_are_not_listed(asked: Asked) -> None:
    asked.run([f"w{number}" for number in range(ROWS)])
    assert not any(line[0] == "answer" for line in asked.lines("stats"))
    assert asked.json("stats")["answers_distinct"] == ROWS


def test_a_spread_is_exact_for_small_numbers_and_within_its_bound_for_large_ones() -> None:
    spread = Spread()
    for number in range(1, 1_001):
        spread.add(number * 977)
    assert (spread.count, spread.least, spread.most) == (1_000, 977, 977_000)
    for share in (0.5, 0.9, 0.99):
        assert spread.quantile(share) == pytest.approx(share * 977_000, rel=0.004)
    assert len(spread.counts) < 1_000
    small = Spread()
    for number in (3, 1, 2, 200):
        small.add(number)
    assert [small.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [1, 2, 3, 200]
    assert Spread().quantile(0.5) == 0


# ------------------------------------------------------------------------------------------------------------ diff


def test_the_same_answers_in_every_shape(asked: Asked) -> None:
    texts = labelled()
    texts[3], texts[4] = "[[status=400 code=bad]] x", "[[finish=length]] 4 positive"
    texts[5], texts[6], texts[7] = "[[content=blank]] 5", "[[refusal]] 6", "[[toolcall]] 7"
    batch = asked.run(texts, code=3)
    for name, more in (("two.csv", ()), ("three.jsonl.gz", ()), ("four.jsonl", ("--format", "openai"))):
        assert asked.invoke("export", batch, "-o", name, *more).exit_code == 3
    assert asked.json("diff", "one.jsonl", batch)["same"] == ROWS
    assert asked.json("diff", "one.jsonl", "three.jsonl.gz")["same"] == ROWS
    table = asked.json("diff", "one.jsonl", "two.csv")
    assert (table["same"], table["changed"]) == (ROWS, 0)
    assert table["one"] == table["two"]
    openai = asked.json("diff", "one.jsonl", "four.jsonl", code=3)
    assert (openai["changed"], openai["only_in_one"]) == (1, 0), "of a refusal OpenAI's lines have the status alone"


def test_what_changed_is_counted_and_shown(asked: Asked) -> None:
    one = asked.run(labelled())
    changed = labelled()
    changed[6], changed[7] = "6 positive", "[[status=400 code=bad]] x"
    changed += ["60 positive"]
    two = asked.run(changed, "two.jsonl", code=3)
    found = asked.json("diff", one, two, code=3)
    assert (found["same"], found["changed"], found["outcomes_changed"]) == (ROWS - 2, 2, 1)
    assert (found["only_in_one"], found["only_in_two"], found["other_request"]) == (0, 1, 2)
    matrix = {(each["one"], each["two"]): each["rows"] for each in found["answers"]}
    assert matrix == {("positive", "positive"): 39, ("negative", "negative"): 19, ("negative", "positive"): 1}
    assert [row["custom_id"] for row in found["rows"]] == ["r6", "r7", "r60"]
    shown = asked.invoke("diff", "one.jsonl", "two.jsonl")
    assert shown.exit_code == 3
    assert [line.split("\t")[:4] for line in shown.stdout.splitlines()] == [
        ["6", "r6", "ok", "ok"],
        ["7", "r7", "ok", "invalid_request"],
        ["60", "r60", "-", "ok"],
    ]
    assert "60 rows in both: 58 the same, 2 changed." in shown.stderr
    assert "1 row only in two.jsonl." in shown.stderr
    assert "1 'negative' -> 'positive'" in shown.stderr
    assert "tokens: 600 in, 120 out -> 590 in, 118 out" in shown.stderr
    assert "The first 1 of 3 rows" in asked.invoke("diff", one, two, "--limit", "1").stderr


def test_rows_without_ids_go_by_their_index_and_rows_with_them_by_no_place(asked: Asked, tmp_path: Path) -> None:
    asked.run(labelled(), ids=False)
    lines = (tmp_path / "one.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "shuffled.jsonl").write_bytes(b"".join(reversed(lines)))
    assert asked.json("diff", "one.jsonl", "shuffled.jsonl")["same"] == ROWS
    (tmp_path / "fewer.jsonl").write_bytes(b"".join(lines[5:]))
    found = asked.json("diff", "one.jsonl", "fewer.jsonl", code=3)
    assert (found["same"], found["only_in_one"]) == (ROWS - 5, 5)


@pytest.mark.parametrize("order", ["reversed", "halves"])
def test_more_rows_than_may_wait_are_paired_by_way_of_files(asked: Asked, tmp_path: Path, order: str) -> None:
    count = pairing.WAITING_MAX * 2
    with (tmp_path / "many.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["custom_id", "answer", "error_kind", "flag", "cost_usd"])
        writer.writerows([f"id{number}", f"w{number}", "", "", "0.5"] for number in range(count))
    places = list(range(count))
    places = places[::-1] if order == "reversed" else places[count // 2 :] + places[: count // 2]
    with gzip.open(tmp_path / "moved.jsonl.gz", "wt") as moved:
        for number in places:
            answer = "changed" if number == 77 else f"w{number}"
            moved.write(f'{{"ok":true,"custom_id":"id{number}","cost_usd":0.25,"result":{{"content":"{answer}"}}}}\n')
    found = asked.json("diff", "many.csv", "moved.jsonl.gz", code=3)
    assert (found["same"], found["changed"], found["only_in_one"], found["only_in_two"]) == (count - 1, 1, 0, 0)
    assert [row["custom_id"] for row in found["rows"]] == ["id77"]
    assert (found["one"]["cost_usd"], found["two"]["cost_usd"]) == (count / 2, count / 4)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("broken.jsonl", '{"ok": true}\n{"ok": tru', "broken.jsonl: line 2: no line of answers"),
        ("rows.jsonl", '{"prompt": "a"}\n', "rows.jsonl: line 1: neither `ok`"),
        ("table.csv", "a,b\n1,2\n", "no table of answers: expected columns answer and error_kind, found a, b"),
        ("none.jsonl", None, "none.jsonl: there is no such file"),
    ],
)
def test_what_is_no_file_of_answers_is_named(
    asked: Asked, tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    (tmp_path / "good.jsonl").write_text('{"ok":true,"request_index":0,"result":{"content":"a"}}\n')
    if text is not None:
        (tmp_path / name).write_text(text)
    for words in (("diff", "good.jsonl", name), ("sample", name)):
        ended = asked.invoke(*words)
        assert (ended.exit_code, said in ended.stderr) == (2, True), ended.stderr


def test_a_table_with_columns_of_those_names_keeps_them_apart(asked: Asked, tmp_path: Path) -> None:
    """The input's own column `answer` is not what came of the row."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["question", "answer"], ["1 yes", "no"], ["2 =cmd()", "no"]])
    (tmp_path / "in.csv").write_text(text.getvalue())
    ended = asked.invoke("run", "in.csv", "-o", "out.csv", "-t", "{question}", *asked.endpoint)
    assert ended.exit_code == 0, ended.stderr
    assert asked.invoke("export", "@last", "-o", "out.jsonl").exit_code == 0
    assert asked.json("diff", "out.csv", "out.jsonl")["same"] == 2
