"""`--database`: on every command that has batches to ask for, without a password, and what `db` says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from batchwright.cli.group import COMMANDS, WITHOUT_STORE, batchwright
from support.command_line import CommandLine
from support.postgres import PostgresServer

SECRET = "hunter2"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    found = postgres.empty_database()
    yield found
    postgres.drop(found)


def each_command() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = batchwright.get_command(click.Context(batchwright), name)
        assert command is not None
        yield from command.commands.items() if isinstance(command, click.Group) else ((name, command),)


@pytest.mark.parametrize("option", ["database", "blobs", "blobs_endpoint"])
def test_every_command_that_opens_the_store_has_the_option(option: str) -> None:
    without = {name for name, one in each_command() if all(param.name != option for param in one.params)}
    assert without - {"install"} == {"validate"}
    assert set(WITHOUT_STORE) == {"validate", "model"}


def test_a_run_is_found_by_every_command_on_the_same_database_and_by_no_other(tmp_path: Path, url: str) -> None:
    command, elsewhere = CommandLine(tmp_path / "here"), CommandLine(tmp_path / "elsewhere")
    command.write("rows.jsonl", [{"prompt": f"Say word{row}"} for row in range(20)])
    ended = command("run", "rows.jsonl", "-o", "out.jsonl", "--simulate", "-m", "m", "--database", url)
    assert ended.code == 0, ended.err
    assert len(command.lines()) == 20
    listed = elsewhere("list", BATCHWRIGHT_DATABASE=url)
    assert "20" in listed.out, listed.err
    config = elsewhere.folder / "config" / "batchwright"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f"database = '{url}'")
    assert elsewhere("export", "@last", "-o", "again.jsonl").code == 0
    assert elsewhere.lines("again.jsonl") == command.lines()
    assert not (command.state / "batchwright.sqlite").exists()
    assert "20" not in command("list").out
    backup = elsewhere("backup", "copy.sqlite")
    assert backup.code == 2
    assert "pg_dump" in backup.err


@pytest.mark.parametrize(
    ("file", "text"),
    [("batchwright.toml", "database = 'postgresql://h/d'"), (".env", "BATCHWRIGHT_DATABASE=postgresql://h/d")],
)
def test_a_file_that_may_have_come_with_a_project_names_no_database(tmp_path: Path, file: str, text: str) -> None:
    """It would be asked for its batches, and given the password that the environment holds for another."""
    command = CommandLine(tmp_path)
    (command.folder / file).write_text(text)
    ended = command("list", PGPASSWORD="mine")
    assert ended.code == 2
    assert "your own config.toml: a file that came with a project must not choose which batches" in ended.err


def test_db_says_what_there_is_and_makes_it(tmp_path: Path, url: str) -> None:
    command = CommandLine(tmp_path)
    assert "gets its tables at the first use" in command("db", "check", "--database", url).err
    assert "has the tables of this version now" in command("db", "upgrade", "--database", url).err
    assert "nothing was done" in command("db", "upgrade", "--database", url).err
    assert "has the tables of this version" in command("check", "--database", url, "--simulate").out
    assert command("db", "check", "--database", "postgresql://me@127.0.0.1:1/x").code == 1
    told = command("db", "check").err
    assert told.startswith("This version can work on it: ")
    assert "is made at the first use" in told


@pytest.mark.parametrize("text", [f"postgresql://me:{SECRET}@h/d", f"postgresql://h/d?password={SECRET}"])
def test_a_password_is_refused_on_the_command_line_and_not_repeated(tmp_path: Path, text: str) -> None:
    ended = CommandLine(tmp_path)("list", "--database", text)
    assert ended.code == 2
    assert "a password has no place on the command line" in ended.err
    assert SECRET not in ended.err + ended.out


@pytest.mark.parametrize("text", [f"mysql://me:{SECRET}@h/d", f"postgresql://me:{SECRET}@[h/d"])
def test_what_is_no_database_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    ended = CommandLine(tmp_path)("list", BATCHWRIGHT_DATABASE=text)
    assert ended.code == 2
    assert "expected postgresql://USER@HOST/NAME" in ended.err
    assert SECRET not in ended.err
    line = ("list", "--database", "postgresql://h/d", "--service", "https://s.example.com")
    both = CommandLine(tmp_path)(*line, BATCHWRIGHT_SERVICE_KEY="k")
    assert (both.code, "--database would do nothing" in " ".join(both.err.split())) == (2, True), both.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://me@127.0.0.1:1/x?sslmod=x", 'invalid URI query parameter: "sslmod"'),
        ("postgresql://me@127.0.0.1:1/x?connect_timeout=soon", "connect_timeout"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_in_the_drivers_words(tmp_path: Path, url: str, words: str) -> None:
    for line in (("db", "check"), ("list",)):
        ended = CommandLine(tmp_path)(*line, "--database", url)
        said = " ".join(ended.err.split())
        assert (ended.code, words in said, "postgresql://USER@HOST/NAME" in said) == (2, True, True), said


def test_a_password_in_a_url_that_cannot_be_read_is_not_repeated(tmp_path: Path) -> None:
    ended = CommandLine(tmp_path)("db", "check", BATCHWRIGHT_DATABASE=f"postgresql://me:{SECRET}%zz@h/d")
    assert (ended.code, SECRET in ended.err) == (2, False)
    assert "invalid percent-encoded token" in ended.err


@pytest.mark.parametrize(
    "words", [("list",), ("keys", "list"), ("work", "--progress", "plain"), ("serve", "--no-work")]
)
def test_a_database_that_does_not_answer_is_named_while_it_is_waited_for(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are taken, and nothing is ever said
        place = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/batches"
        command = CommandLine(tmp_path, BATCHWRIGHT_DATABASE=f"{place}?connect_timeout=3")
        ended = command(*words)
    said = " ".join(ended.err.split())
    assert f"Waiting for the database {place}" in said
    assert "to answer: each of its addresses is given 3 s (connect_timeout in the URL)." in said
    assert (ended.code, "timeout expired" in said) == (1, True), said
