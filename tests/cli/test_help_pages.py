"""Help, version and mistyped words: complete, true to the code, and quick because they import next to nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from batchwright.cli import exits, options
from batchwright.cli.group import ALIASES, COMMANDS, KEY_OPTION, LazyGroup
from batchwright.cli.group import batchwright as command
from batchwright.core.answer_schema import MAX_REPAIRS, OnMismatch
from batchwright.core.doubt import OnUncertain
from batchwright.core.failures import FailureKind, Flag
from batchwright.runner import report
from batchwright.runner.progress import ProgressKind
from batchwright.settings.table import SETTINGS, Transport
from batchwright.wire.output_lines import OutputFormat

HEAVY = ("sqlalchemy", "rich", "uvloop", "msgspec", "asyncio", "httptools", "pycurl", "zstandard", "platformdirs")
context = click.Context(command)


def all_commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        found = command.get_command(context, name)
        assert found is not None
        yield name, found
        if isinstance(found, click.Group):
            for inner, inner_command in found.commands.items():
                yield f"{name} {inner}", inner_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_static_line_is_the_commands_own(name: str) -> None:
    found = command.get_command(context, name)
    assert found is not None
    assert found.name == name
    assert (found.help or "").splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize(("name", "one"), list(all_commands()))
def test_every_command_has_two_examples_and_every_option_says_its_default(name: str, one: click.Command) -> None:
    _, _, examples = (one.help or "").partition("Examples:")
    lines = [line.strip() for line in examples.strip().splitlines()]
    assert len(lines) == 2
    assert all(line.startswith("batchwright ") for line in lines)
    assert any(line.startswith(f"batchwright {name}") for line in lines)
    for parameter in one.params:
        if isinstance(parameter, click.Option):
            assert "[default: " in (parameter.help or ""), parameter.name


@pytest.mark.parametrize("name", [name for name, one in all_commands() if isinstance(one, click.Group)])
def test_no_summary_of_a_group_s_commands_is_cut(name: str) -> None:
    found = command.get_command(context, name)
    assert found is not None
    page = found.get_help(click.Context(found, info_name=name, terminal_width=80))
    assert "..." not in page.partition("Commands:")[2]


def test_words_written_out_for_speed_are_those_of_the_code() -> None:
    assert tuple(kind.value for kind in FailureKind) == options.KINDS
    assert tuple(flag.value for flag in Flag if flag is not Flag.PLAIN) == options.FLAGS
    assert tuple(form.value for form in OutputFormat) == options.FORMATS
    assert tuple(policy.value for policy in OnUncertain) == options.ON_UNCERTAIN
    assert tuple(way.value for way in OnMismatch) == options.ON_MISMATCH
    assert options.MAX_REPAIRS == MAX_REPAIRS
    assert tuple(transport.value for transport in Transport) == options.TRANSPORTS
    assert tuple(kind.value for kind in ProgressKind) == options.PROGRESS
    assert set(options.SETTING_OPTIONS) <= set(SETTINGS)
    assert (exits.OK, exits.OUR_FAULT, exits.REFUSED) == (report.EXIT_OK, report.EXIT_OUR_FAULT, report.EXIT_REFUSED)
    assert exits.SOME_FAILED == report.EXIT_SOME_FAILED
    assert (exits.PAUSED, exits.INTERRUPTED) == (report.EXIT_PAUSED, report.EXIT_INTERRUPTED)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"], ["rows", "--help"], ["rn"]])
def test_nothing_heavy_is_imported_for_a_help_page(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom batchwright.cli.group import batchwright as command\n"
        f"try: command.main({arguments!r}, prog_name='batchwright')\n"
        f"except SystemExit: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == "[]"


def test_the_module_is_the_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "batchwright", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("batchwright 0.")
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "spelling",
    ["--api-key", "--api-key=sk-1", "--api_key=sk-1", "--apikey", "--API-KEY", "--openai-api-key=sk-1", "-api-key"],
)
def test_a_key_on_the_command_line_is_refused_in_any_spelling(spelling: str) -> None:
    code = f"from batchwright.cli import main; import sys; sys.argv[1:] = ['run', 'x', {spelling!r}, 'sk-2']; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    words = " ".join(ended.stderr.split())
    assert "list of processes" in words
    assert "history" in words
    assert "--api-key-env NAME" in words
    assert "sk-" not in ended.stderr + ended.stdout


@pytest.mark.parametrize("innocent", ["--api-key-env", "--api-key-env=X", "--max-token", "keys.jsonl", "key"])
def test_other_words_are_not_taken_for_a_key(innocent: str) -> None:
    assert KEY_OPTION.fullmatch(innocent) is None


def test_the_group_imports_a_command_by_its_name_only() -> None:
    assert isinstance(command, LazyGroup)
    assert command.get_command(context, "options") is None


@pytest.mark.parametrize(("other", "name"), ALIASES.items())
def test_another_word_for_a_command_shows_its_examples_under_that_word(other: str, name: str) -> None:
    found = command.get_command(context, other)
    assert found is not None
    assert f"batchwright {other} 3f9a" in (found.help or "")
    assert f"batchwright {name}" not in (found.help or "")
    own = command.get_command(context, name)
    assert own is not None
    assert (own.name, f"batchwright {name} 3f9a" in (own.help or "")) == (name, True)
