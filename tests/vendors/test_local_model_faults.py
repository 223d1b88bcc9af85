"""Machines on which the local model cannot run, each with what a person is told to do."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from batchwright.core.errors import VendorUnavailable
from batchwright.vendors import local_model
from batchwright.vendors.local_model import (
    inference_threads,
    require_gguf,
    require_instructions,
    start_local_server,
    usable_cpus,
)
from support.local_server import ENDS_WITHIN_S, wait_until_gone

NO_LIBGOMP = "raise ImportError('libgomp.so.1: cannot open shared object file: No such file or directory')"
ILLEGAL_INSTRUCTION = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
TALKS_AND_ENDS = "import sys; [print('line', number, file=sys.stderr) for number in range(100)]; sys.exit(7)"
IS_NEVER_READY = "echo $$ >&2; exec cat"
IGNORES_THE_END = "echo $$ >&2; exec tail -f /dev/null"
"""Of its standard input, which tells the real one to end."""


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return path


def refusal(model_file: Path, *program: str, ready_within_s: float = 60.0) -> str:
    """What start_local_server says with another program in the server's place."""

    async def main() -> None:
        await start_local_server(
            model_file=model_file, environ=os.environ, program=program, ready_within_s=ready_within_s
        )

    with pytest.raises(VendorUnavailable) as refused:
        asyncio.run(main())
    return str(refused.value)


def test_without_the_package_it_names_the_extra(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # what an import system that lacks it answers
    said = refusal(gguf, sys.executable, "-c", TALKS_AND_ENDS)
    assert "--extra local" in said
    assert 'pip install "batchwright[local]"' in said
    assert "--base-url" in said


def test_without_libgomp_it_names_the_package(gguf: Path) -> None:
    assert "apt-get install libgomp1" in refusal(gguf, sys.executable, "-c", NO_LIBGOMP)


def test_an_illegal_instruction_is_the_processors(gguf: Path) -> None:
    said = refusal(gguf, sys.executable, "-c", ILLEGAL_INSTRUCTION)
    assert "AVX2" in said
    assert "--simulate" in said


def test_an_old_processor_is_told_before_anything_starts() -> None:
    with pytest.raises(VendorUnavailable, match="lacks AVX2, BMI2"):
        require_instructions(frozenset({"fma", "f16c", "sse4_2"}), "x86_64")
    require_instructions(frozenset({"avx2", "fma", "f16c", "bmi2", "avx512f"}), "x86_64")
    require_instructions(frozenset(), "x86_64")  # the system does not tell: tried
    require_instructions(frozenset({"asimd"}), "aarch64")


def test_another_end_shows_its_last_words(gguf: Path) -> None:
    said = refusal(gguf, sys.executable, "-c", TALKS_AND_ENDS)
    assert "code 7" in said
    assert said.splitlines()[1:] == [f"line {number}" for number in range(80, 100)]


@pytest.mark.parametrize("program", [IS_NEVER_READY, IGNORES_THE_END])
def test_one_that_is_never_ready_is_stopped(gguf: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "STOP_WITHIN_S", 0.2)
    said = refusal(gguf, "sh", "-c", program, ready_within_s=0.5)
    assert "not ready within 0.5 s" in said
    assert wait_until_gone(int(said.splitlines()[-1]))


def test_a_broken_model_shows_what_llama_cpp_says(gguf: Path) -> None:
    async def main() -> None:
        await start_local_server(model_file=gguf, environ=os.environ)

    with pytest.raises(VendorUnavailable, match="could not be loaded") as refused:
        asyncio.run(main())
    assert "Traceback" not in str(refused.value)
    assert "gguf" in str(refused.value)


def test_another_kind_of_file_is_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(VendorUnavailable, match="is not a model file"):
        require_gguf(path)
    with pytest.raises(VendorUnavailable, match="there is no model file"):
        require_gguf(tmp_path / "none.gguf")


def test_one_that_keeps_ending_is_given_up(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "MAX_RESTARTS", 2)
    program = """echo '{"base_url": "http://127.0.0.1:9"}'; exec 1>&-; echo enough >&2; exit 3"""

    async def main() -> None:
        server = await start_local_server(model_file=gguf, environ=os.environ, program=("sh", "-c", program))
        async with asyncio.timeout(ENDS_WITHIN_S):
            await asyncio.wait([server._keeper])
        assert "ended while it answered rows (code 3)" in server.failure
        assert server.failure.endswith("enough")
        await server.close()

    asyncio.run(main())


def test_a_start_that_is_cancelled_leaves_nothing(gguf: Path, tmp_path: Path) -> None:
    started = tmp_path / "pid"
    os.mkfifo(started)
    program = f"import os, sys; open({str(started)!r}, 'w').write(str(os.getpid())); sys.stdin.read()"

    async def main() -> int:
        start = asyncio.create_task(
            start_local_server(model_file=gguf, environ=os.environ, program=(sys.executable, "-c", program))
        )
        pid = int(await asyncio.to_thread(started.read_text))  # opens once the program does
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        return pid

    assert wait_until_gone(asyncio.run(main()))


def test_threads_follow_the_processors_there_are(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text("100000 100000\n")
    assert usable_cpus(limit) == 1
    limit.write_text("max 100000\n")
    assert usable_cpus(limit) == len(os.sched_getaffinity(0))
    assert usable_cpus(tmp_path / "none") == len(os.sched_getaffinity(0))
    assert [inference_threads(cpus) for cpus in (1, 2, 4, 64)] == [1, 1, 2, 4]
