"""`batchwright run` through Anthropic's Messages API, as a process, against a scripted service."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.anthropic_vendor import AnthropicService, message, refusal
from support.batch_vendor import Json, Reply, as_json
from support.command_line import CommandLine, chat_row, content

PRICES = """
[[price]]
vendor = "claude"
pattern = "claude-1"
input = "3"
output = "15"
cached = "0.3"
"""


def overloaded_at_first(seen: list[str]) -> Callable[[Json], Reply]:
    """Notes the rows' texts."""

    def answer(params: Json) -> Reply:
        text = params["messages"][-1]["content"][-1]["text"]
        seen.append(text)
        if seen.count(text) == 1 and text == "w3":
            return refusal(529, "overloaded_error", "Overloaded")
        usage = {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 1000}
        return as_json(message(text, usage=usage))

    return answer


def test_rows_go_there_and_come_back(command: CommandLine) -> None:
    seen: list[str] = []
    more: list[Json] = [{"n": 2} if number == 5 else {} for number in range(12)]
    rows = [
        chat_row(f"w{number}", f"id-{number}", model="claude-1", max_tokens=50, **fields)
        for number, fields in enumerate(more)
    ]
    command.write("rows.jsonl", rows)
    (command.folder / "prices.toml").write_text(PRICES)
    with AnthropicService(overloaded_at_first(seen), key="") as service:
        (command.folder / "batchwright.toml").write_text(
            f"prices = 'prices.toml'\n[vendors.claude]\nbase_url = '{service.base_url}'\nprotocol = 'anthropic'\n"
        )
        ended = command("run", "rows.jsonl", "-o", "out.jsonl", "--json")
    assert ended.code == 3, ended.err
    lines = command.lines()
    answered = [line for line in lines if line["ok"]]
    assert [content(line) for line in answered] == [f"w{number}" for number in range(12) if number != 5]
    assert lines[5]["error"]["kind"] == "invalid_request"
    assert "Anthropic has no n" in lines[5]["error"]["message"]
    assert seen.count("w3") == 2
    assert "w5" not in seen
    # 1000 tokens at 3, 1000 at 0.3 from the cache, 100 at 15 USD a million.
    assert {line["cost_usd"] for line in answered} == {0.0048}
    assert json.loads(ended.out)["ok"] == 11


@pytest.mark.parametrize("options", [(), ("--ask",)])
def test_check_asks_it_for_its_models(command: CommandLine, options: tuple[str, ...]) -> None:
    with AnthropicService(key="") as service:
        (command.folder / "batchwright.toml").write_text(
            f"model = 'claude-1'\n[vendors.claude]\nbase_url = '{service.base_url}'\nprotocol = 'anthropic'\n"
        )
        ended = command("check", *options)
    assert ended.code == 0, ended.out + ended.err
    assert "claude-1" in ended.out + ended.err
