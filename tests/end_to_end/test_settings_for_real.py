"""What settings and the state folder do to real processes: vendors without their key, files that are none, a state
folder that goes away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support.command_line import CommandLine, chat_row, content
from support.scripted_vendor import ScriptedVendor

KEYS = {"CORP_KEY": "sk-corp-secret"}
RUN = ("run", "rows.jsonl", "-o", "out.jsonl", "--progress", "plain")
SMALL_FILES = """
import resource, signal
from batchwright.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
main()
"""


def write_project(command: CommandLine, vendor: ScriptedVendor) -> None:
    """`free` needs no key; `corp` names one of the environment, which a project file's address may not have."""
    (command.folder / "batchwright.toml").write_text(
        f"[vendors.corp]\nbase_url = '{vendor.base_url}'\napi_key_env = 'CORP_KEY'\nmodels = ['corp-*']\n"
        f"[vendors.free]\nbase_url = '{vendor.base_url}'\n"
    )


def write_rows(command: CommandLine, *models: str) -> None:
    command.write("rows.jsonl", [chat_row(f"w{row}", model=model) for row, model in enumerate(models)])


def no_batches(command: CommandLine) -> bool:
    listed = command("list")
    return (listed.code, listed.out) == (0, "")


def test_a_withheld_key_stops_only_the_rows_that_need_it(command: CommandLine, vendor: ScriptedVendor) -> None:
    write_project(command, vendor)
    write_rows(command, "free-1", "m", "free/x")
    ended = command(*RUN, **KEYS)
    assert (ended.code, "CORP_KEY" in ended.err) == (0, False), ended.err
    write_rows(command, "free-1", "corp-1")
    for refused in (command(*RUN, **KEYS), command("validate", "rows.jsonl", **KEYS)):
        assert refused.code == 2
        assert "comes from the environment (CORP_KEY)" in refused.out + refused.err
        assert str(command.folder / "batchwright.toml") in refused.out + refused.err
        assert "--vendor corp --base-url" in refused.err
    assert len(vendor.hits) == 3
    skipped = command(*RUN, "--skip-invalid", **KEYS)
    assert skipped.code == 3, skipped.err
    lines = command.lines()
    assert (content(lines[0]), lines[1]["error"]["kind"]) == ("w0", "unroutable")
    assert "CORP_KEY comes from the environment" in lines[1]["error"]["message"]
    assert not any(b"sk-corp-secret" in file.read_bytes() for file in command.state.rglob("*") if file.is_file())


def test_what_the_message_says_gives_the_vendor_its_key(command: CommandLine, vendor: ScriptedVendor) -> None:
    write_project(command, vendor)
    write_rows(command, "corp-1")
    refused = command(*RUN, **KEYS)
    lines = [line.strip() for line in refused.err.splitlines() if line.startswith("    ")]
    place = Path(next(line for line in refused.err.splitlines() if "put these lines into" in line).split()[-1])
    place.parent.mkdir(parents=True)
    place.write_text("\n".join(lines))
    assert place.is_relative_to(command.folder)
    ended = command(*RUN, **KEYS)
    assert (ended.code, len(vendor.hits)) == (0, 1), ended.err
    assert vendor.hits[0].headers["authorization"] == "Bearer sk-corp-secret"


def test_two_batches_whose_vendors_are_called_alike_keep_to_their_own_addresses(command: CommandLine) -> None:
    """Left open by two projects, and worked on by one worker afterwards."""
    with ScriptedVendor() as first, ScriptedVendor() as second:
        for name, vendor in (("a", first), ("b", second)):
            vendor.set(hold=True)
            (command.folder / "batchwright.toml").write_text(f"[vendors.house]\nbase_url = '{vendor.base_url}'\n")
            command.write(f"{name}.jsonl", [chat_row(f"{name} {row}", model="house/m") for row in range(30)])
            run = command.start("run", f"{name}.jsonl", "-o", f"{name}.out", "-c", "4", "--progress", "none")
            run.until(vendor, lambda vendor: vendor.in_flight == 4)
            run.kill()
            run.end()
            vendor.set(hold=False)
        worked = command("work", "--until-idle", "--progress", "none")
        assert worked.code == 0, worked.err
        for name, vendor in (("a", first), ("b", second)):
            assert {hit.text for hit in vendor.hits} == {f"{name} {row}" for row in range(30)}


def test_a_vendor_that_no_row_uses_does_not_begin_anew(command: CommandLine, vendor: ScriptedVendor) -> None:
    write_rows(command, "m", "m")
    (command.folder / "batchwright.toml").write_text(f"[vendors.free]\nbase_url = '{vendor.base_url}'\n")
    assert command(*RUN).code == 0
    write_project(command, vendor)
    for again in (command(*RUN), command(*RUN, **KEYS), command(*RUN, OPENAI_API_KEY="sk-other")):
        assert (again.code, "is complete; nothing is sent" in again.err) == (0, True), again.err
    assert len(vendor.hits) == 2
    (command.folder / "batchwright.toml").write_text(f"[vendors.other]\nbase_url = '{vendor.base_url}'\n")
    other = command(*RUN)
    assert "rows of the model m now go to other http" in other.err
    assert (other.code, len(vendor.hits)) == (0, 4)


def test_an_address_from_a_dotenv_never_gets_a_key_of_the_environment(
    command: CommandLine, vendor: ScriptedVendor
) -> None:
    """Also not later, by a worker elsewhere: the batch remembers whose address it is."""
    dotenv = command.folder / ".env"
    address = f"OPENAI_BASE_URL={vendor.base_url}\n"
    dotenv.write_text(address)
    write_rows(command, "m", "m")
    withheld = command(*RUN, OPENAI_API_KEY="sk-environment")
    assert (withheld.code, vendor.hits) == (2, [])
    assert f"from {dotenv} (OPENAI_BASE_URL)" in withheld.err
    dotenv.write_text(address + "OPENAI_API_KEY=sk-dotenv\n")
    vendor.set(hold=True)
    started = command.start(*RUN, "-c", "1", OPENAI_API_KEY="sk-environment")
    started.until(vendor, lambda vendor: vendor.in_flight == 1)
    started.interrupt()
    started.wait_for("stopping")
    vendor.release()
    assert started.end().code == 130
    vendor.set(hold=False)
    elsewhere = CommandLine(command.folder / "elsewhere", BATCHWRIGHT_HOME=str(command.state))
    (elsewhere.folder / ".env").write_text("OPENAI_API_KEY=sk-elsewhere\n")
    work = ("work", "--until-idle", "--progress", "plain")
    for worked in (elsewhere(*work), elsewhere("resume", "@last", "--progress", "plain")):
        assert f"OPENAI_API_KEY (of {dotenv} alone" in worked.err
    dotenv.rename(command.folder / "kept")
    assert f"OPENAI_API_KEY (of {dotenv} alone" in command(*work, OPENAI_API_KEY="sk-environment").err
    assert [hit.headers["authorization"] for hit in vendor.hits] == ["Bearer sk-dotenv"]
    (command.folder / "kept").rename(dotenv)
    assert command(*work, OPENAI_API_KEY="sk-environment").code == 0
    assert [hit.headers["authorization"] for hit in vendor.hits] == ["Bearer sk-dotenv"] * 2


@pytest.mark.parametrize("name", ["none.gguf", ".", "rows.jsonl"])
def test_a_model_file_that_is_none_is_refused_before_anything_is_stored(command: CommandLine, name: str) -> None:
    write_rows(command, "m")
    ended = command(*RUN, "--gguf", name)
    assert (ended.code, command.state.exists()) == (2, False), ended.err
    assert f"{command.folder / name} (from the command line (--gguf))" in ended.err
    write_rows(command, "local/x")
    named = command(*RUN, BATCHWRIGHT_MODEL_FILE=name)
    assert (named.code, "(from the environment (BATCHWRIGHT_MODEL_FILE))" in named.err) == (2, True), named.err
    assert no_batches(command)


def test_a_price_table_that_is_none_stops_what_needs_prices_alone(command: CommandLine) -> None:
    write_rows(command, "m")
    prices = {"BATCHWRIGHT_PRICES": "none.toml"}
    for line in ((*RUN, "--simulate"), (*RUN, "--simulate", "-n"), ("work", "--until-idle")):
        ended = command(*line, **prices)
        assert (ended.code, "none.toml: cannot be read: No such file" in ended.err) == (2, True), ended.err
    assert command("list", **prices).code == 0
    assert no_batches(command)


# --------------------------------------------------------------------------------------------------- the state folder


@pytest.mark.parametrize("gone", ["folder", "file"])
def test_a_state_that_is_deleted_while_it_runs(command: CommandLine, vendor: ScriptedVendor, gone: str) -> None:
    write_rows(command, *["m"] * 40)
    vendor.set(hold=True)
    line = (*RUN, "--base-url", vendor.base_url)
    started = command.start(*line, "-c", "4")
    started.until(vendor, lambda vendor: vendor.in_flight == 4)
    kept = command.folder / "kept"
    if gone == "folder":
        command.state.rename(kept)
    else:
        kept.mkdir()
        for file in command.state.glob("batchwright.sqlite*"):
            file.rename(kept / file.name)
    vendor.set(hold=False)
    vendor.release()
    ended = started.end()
    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith(
        f"Error: The state file {command.state / 'batchwright.sqlite'} is not there any more"
    )
    assert "Traceback" not in ended.err
    assert not (command.folder / "out.jsonl").exists()
    assert not (command.state / "batchwright.sqlite").exists(), "no empty file under its name"
    if gone == "folder":
        assert not command.state.exists()
    shutil.copytree(kept, command.state, dirs_exist_ok=True)
    again = command(*line)
    assert (again.code, [content(found) for found in command.lines()]) == (0, [f"w{row}" for row in range(40)])


def test_a_disk_that_fills_while_rows_are_taken_in(command: CommandLine, vendor: ScriptedVendor) -> None:
    """By a limit on the size of files. Nothing is sent, and nothing of the batch stays."""
    rows = [chat_row(os.urandom(200_000).hex()) for _ in range(40)]
    command.write("rows.jsonl", rows)
    line = (*RUN, "--base-url", vendor.base_url)
    ended = command.start(*line, program=("-c", SMALL_FILES)).end()
    assert (ended.code, vendor.hits) == (1, []), ended.err
    assert str(command.state) in ended.err
    assert "Traceback" not in ended.err
    assert no_batches(command)
    again = command(*line)
    assert (again.code, len(vendor.hits)) == (0, 40), again.err


@pytest.mark.parametrize("place", ["rows.jsonl", "rows.jsonl/state"])
def test_a_state_folder_that_is_a_file(command: CommandLine, place: str) -> None:
    write_rows(command, "m")
    for line in ((*RUN, "--simulate"), ("list",)):
        ended = command(*line, BATCHWRIGHT_HOME=str(command.folder / place))
        assert (ended.code, "is a file" in ended.err) == (1, True), ended.err
        assert "BATCHWRIGHT_HOME" in ended.err


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the super-user may write everywhere")
def test_a_state_folder_that_may_not_be_written_to(command: CommandLine) -> None:
    write_rows(command, "m")
    assert command(*RUN, "--simulate").code == 0
    command.state.chmod(0o500)
    (command.state / "locks").chmod(0o500)
    (command.state / "batchwright.sqlite").chmod(0o400)
    try:
        for line in ((*RUN, "--simulate", "--fresh"), ("list",)):
            ended = command(*line)
            assert (ended.code, str(command.state) in ended.err) == (1, True), ended.err
            assert "Check that the folder belongs to you" in ended.err
    finally:
        command.state.chmod(0o700)


def test_who_works_on_all_batches_goes_by_its_settings(command: CommandLine, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    command.write("rows.jsonl", [chat_row(f"w{row}", model="m") for row in range(30)])
    run = command.start(*RUN, "--base-url", vendor.base_url, "--api-key-env", "")
    run.until(vendor, lambda vendor: vendor.in_flight > 0)
    run.kill()
    run.end()
    vendor.set(hold=False, latency_s=0.02)
    vendor.peak = 0
    worked = command("work", "--until-idle", "--progress", "none", BATCHWRIGHT_CONCURRENCY="2")
    assert (worked.code, vendor.peak) == (0, 2), worked.err


def test_large_rows_of_a_vendor_that_is_out_keep_nobody_elses_out(command: CommandLine, vendor: ScriptedVendor) -> None:
    """However many there are: what may be held in memory is not theirs alone."""
    with ScriptedVendor() as away:
        away.set(refuse=True)
        (command.folder / "batchwright.toml").write_text(
            f"[vendors.away]\nbase_url = '{away.base_url}'\n[vendors.free]\nbase_url = '{vendor.base_url}'\n"
        )
        large = [chat_row("long " * 200_000, model="away/m") for _ in range(100)]
        command.write("rows.jsonl", [*large, *(chat_row(f"w{row}", model="free/m") for row in range(300))])
        run = command.start(*RUN)
        run.until(vendor, lambda vendor: len(vendor.hits) == 300)
        away.set(refuse=False)
        assert run.end().code == 0, run.said
    lines = command.lines()
    assert len(lines) == 400
    assert all(line["ok"] for line in lines)
