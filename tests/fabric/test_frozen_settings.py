"""Settings for another process: what was resolved goes along, secrets do not."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from batchwright.assemble.hosting import WorkerOrder
from batchwright.settings import load
from batchwright.settings.frozen import freeze, without_password
from support.command_line import CommandLine

SECRETS = ("sk-of-the-environment", "sk-of-the-dotenv", "hunter2")
DATABASE = "postgresql://me:hunter2@db.example.com/batches?sslmode=require"
BUILT_THERE = """
import pickle, sys
settings = pickle.load(sys.stdin.buffer).settings.thaw()
print(settings.key("GROQ_API_KEY"), settings.key("OPENAI_API_KEY"), settings.database, settings.concurrency)
"""


def order(folder: Path, environment: dict[str, str]) -> WorkerOrder:
    (folder / ".env").write_text("GROQ_API_KEY=sk-of-the-dotenv")
    (folder / ".env").chmod(0o600)
    settings = load({"concurrency": "7"}, environment=environment, folder=folder, user_settings=folder / "none.toml")
    return WorkerOrder(settings=freeze(settings), sweeps=True)


def test_a_fresh_process_has_what_was_resolved_and_its_own_secrets(tmp_path: Path) -> None:
    command = CommandLine(tmp_path, BATCHWRIGHT_DATABASE=DATABASE, OPENAI_API_KEY="sk-of-the-environment")
    packed = pickle.dumps(order(tmp_path, command.environment))
    assert not any(secret.encode() in packed for secret in SECRETS)
    there = {**command.environment, "OPENAI_API_KEY": "sk-of-the-node"}
    program = [sys.executable, "-c", BUILT_THERE]
    built = subprocess.run(program, input=packed, env=there, capture_output=True, check=True)
    assert built.stdout.decode().split() == ["sk-of-the-dotenv", "sk-of-the-node", DATABASE, "7"]
    del there["BATCHWRIGHT_DATABASE"], there["OPENAI_API_KEY"]
    built = subprocess.run(program, input=packed, env=there, capture_output=True, check=True)
    bare = "postgresql://me@db.example.com/batches?sslmode=require"
    assert built.stdout.decode().split(" ") == ["sk-of-the-dotenv", "", bare, "7\n"]


def test_a_password_of_another_database_is_not_taken(tmp_path: Path) -> None:
    frozen = order(tmp_path, {"BATCHWRIGHT_DATABASE": DATABASE}).settings
    other = {"BATCHWRIGHT_DATABASE": "postgresql://me:else@db.example.com/others", "HOME": str(tmp_path)}
    assert frozen.thaw(other).database == "postgresql://me@db.example.com/batches?sslmode=require"


def test_the_folder_of_locks_is_that_of_the_node_where_batches_are_in_a_database(tmp_path: Path) -> None:
    node = {"BATCHWRIGHT_HOME": str(tmp_path / "node"), "HOME": str(tmp_path)}
    here = {"BATCHWRIGHT_HOME": str(tmp_path / "here")}
    in_folder = order(tmp_path, here).settings
    assert in_folder.thaw(node).state_dir == tmp_path / "here"
    in_database = order(tmp_path, here | {"BATCHWRIGHT_DATABASE": DATABASE}).settings
    assert in_database.thaw(node).state_dir == tmp_path / "node"


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("", ""),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://me@h:5/d?a=b%20c", "postgresql://me@h:5/d?a=b%20c"),
        ("postgresql://me:pw@h:5/d", "postgresql://me@h:5/d"),
        ("postgresql://m%40e:p%40w@[::1]:5/d", "postgresql://m%40e@[::1]:5/d"),
        ("postgresql://h/d?password=pw&sslmode=require", "postgresql://h/d?sslmode=require"),
        ("postgresql://h/d?sslpassword=pw&options=-csearch_path%3Dx", "postgresql://h/d?options=-csearch_path%3Dx"),
    ],
)
def test_a_url_without_its_password(url: str, bare: str) -> None:
    assert without_password(url) == bare
