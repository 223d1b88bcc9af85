"""`batchwright serve`: the HTTP service over this machine's batches, and a worker beside it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version

import uvicorn

from batchwright.assemble import Machine, open_machine, open_vendors, start_worker, swept
from batchwright.assemble.files import open_files
from batchwright.assemble.keys import new_key
from batchwright.core.errors import UsageError
from batchwright.core.tenants import LOCAL_ACCOUNT, Scope, Tenant
from batchwright.engine.worker_settings import LaneLimits
from batchwright.fabric.in_process import LoopWorker
from batchwright.ports.file_batches import Files
from batchwright.runner.interrupts import CountedInterrupts, interrupts_of_process
from batchwright.server.app import build_app
from batchwright.server.service import Ceilings, Service
from batchwright.server.watching import Watching
from batchwright.settings import Settings

READERS = 4
KEEP_ALIVE_S = 75
BACKLOG = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    host: str
    port: int
    """0: any free one."""
    works: bool
    """A worker sends rows in this process too."""
    ceilings: Ceilings


class _Server(uvicorn.Server):
    """Ends when `should_exit` is set; signals are the caller's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings, request: ServeRequest, *, say: Callable[[str], None]) -> int:
    """Serves until the process is interrupted; returns the exit code. Raises UsageError for a place it may not serve
    at."""
    with interrupts_of_process(asyncio.get_running_loop()) as interrupts:
        await serve_until(interrupts, settings, request, say=say)
        return 130 if interrupts.count else 0


async def serve_until(
    interrupts: CountedInterrupts, settings: Settings, request: ServeRequest, *, say: Callable[[str], None]
) -> None:
    """Serves until `interrupts` counts one, or the service or its worker ends by itself."""
    async with open_machine(settings, readers=READERS) as machine, swept(machine, say), AsyncExitStack() as stack:
        machine.find_price.load()
        _check_place(machine, request.host)
        listener = _listen(request.host, request.port)
        stack.callback(listener.close)
        worker = None
        if request.works:
            vendors = await stack.enter_async_context(open_vendors(settings, machine.clock))
            worker = start_worker(machine, vendors, say=say, asked=LaneLimits())
            machine.batches.claimable = worker.look_again
        files_of = await stack.enter_async_context(open_files(machine, request.ceilings, say))
        service = _service(machine, files_of, request.ceilings, say)
        server = _Server(_config(machine, service))
        say(f"Serving on {_address(request.host, listener.getsockname()[1])}; Ctrl-C ends.")
        _say_first_key(machine, say)
        await _until_interrupted(server, listener, worker, interrupts, service.watching)


async def _until_interrupted(
    server: _Server,
    listener: socket.socket,
    worker: LoopWorker | None,
    interrupts: CountedInterrupts,
    watching: Watching,
) -> None:
    """Both end together: a service without its worker would take rows that nobody sends."""
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    working = asyncio.create_task(worker.wait(), name="work") if worker is not None else None
    interrupted = asyncio.create_task(interrupts.wait(0), name="interrupt")
    tasks = [task for task in (serving, working, interrupted) if task is not None]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    watching.end()
    if worker is not None:
        now = asyncio.create_task(_now(worker, interrupts), name="second interrupt")
        await worker.stop(grace=True)
        now.cancel()
    await serving
    interrupted.cancel()
    if working is not None:
        await working  # raises what ended the worker


async def _now(worker: LoopWorker, interrupts: CountedInterrupts) -> None:
    await interrupts.wait(1)
    await worker.stop(grace=False)


def _service(
    machine: Machine, files_of: Callable[[Tenant], Files], ceilings: Ceilings, say: Callable[[str], None]
) -> Service:
    return Service(
        batches_of=machine.batches.of,
        files_of=files_of,
        keys=machine.store,
        clock=machine.clock,
        chance=machine.chance,
        destinations=machine.settings.destinations,
        model=machine.settings.model,
        ceilings=ceilings,
        watching=Watching(machine.clock),
        version=version("batchwright"),
        report=say,
    )


def _config(machine: Machine, service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(service),
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(machine.settings.grace_s) or 1,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{host} port {port} cannot be listened at: {error.strerror or error}. Name another with --host and --port."
        ) from error
    listener.set_inheritable(True)
    return listener


def _check_place(machine: Machine, host: str) -> None:
    """Beyond this machine only with a key that somebody made on purpose."""
    if _is_loopback(host) or any(key.usable(machine.clock.now_ms()) for key in machine.store.list_keys()):
        return
    raise UsageError(
        f"--host {host} can be reached from other machines, and no key was made yet. Make one first with "
        "`batchwright keys create`, or serve on 127.0.0.1."
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _say_first_key(machine: Machine, say: Callable[[str], None]) -> None:
    if machine.store.list_keys():
        return
    text, _ = new_key(machine, account=LOCAL_ACCOUNT, name="first", scopes=frozenset(Scope))
    say(f"The first key, shown this once: {text}")


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
