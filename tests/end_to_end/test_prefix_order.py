"""The order of sending by prompts' beginnings, with the real command: what the vendor sees, and what the file has."""

from __future__ import annotations

from support.command_line import CommandLine, content
from support.scripted_vendor import ScriptedVendor

SETTINGS = """[vendors.house]
base_url = "{url}"
profile = "{profile}"
models = ["m"]
"""


def seen(command: CommandLine, vendor: ScriptedVendor, *options: str, profile: str) -> list[str]:
    """The rules of each request, in the order in which they came."""
    (command.folder / "batchwright.toml").write_text(SETTINGS.format(url=vendor.base_url, profile=profile))
    before = len(vendor.hits)
    ended = command(
        *("run", "rows.jsonl", "-o", "out.jsonl", "-c", "1", "--no-gate", "--fresh", "--progress", "none", *options)
    )
    assert ended.code == 0, ended.err
    assert [content(line) for line in command.lines()] == [f"word{row}" for row in range(30)]
    return [hit.body.decode().split("rules ")[1][0] for hit in vendor.hits[before:]]


def test_rows_with_the_same_rules_go_one_after_another(command: CommandLine, vendor: ScriptedVendor) -> None:
    rows = [
        {"body": {"model": "m", "messages": [{"role": "system", "content": f"rules {'bca'[row % 3]} " * 9},
                                             {"role": "user", "content": f"say word{row}"}]}}
        for row in range(30)
    ]  # fmt: skip
    command.write("rows.jsonl", rows)
    mixed, grouped = list("bca" * 10), list("a" * 10 + "b" * 10 + "c" * 10)
    assert seen(command, vendor, profile="general") == mixed
    assert seen(command, vendor, "--group-prefix", profile="general") == grouped
    assert seen(command, vendor, profile="llamacpp") == grouped
    assert seen(command, vendor, "--no-group-prefix", profile="llamacpp") == mixed
