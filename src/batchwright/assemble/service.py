"""`batchwright serve`: the HTTP service over this machine's batches, and a worker beside it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version

import uvicorn

from batchwright.assemble.beside import beside
from batchwright.assemble.connections import bounded_protocol
from batchwright.assemble.files import open_files
from batchwright.assemble.keys import new_key
from batchwright.assemble.local import has_local
from batchwright.assemble.log import ServiceLog
from batchwright.assemble.machine import Machine, open_machine
from batchwright.assemble.reloading import Hangups, Reloaded, check_key_file, hangups_of_process, reloading
from batchwright.assemble.sweeping import swept
from batchwright.assemble.telling import telling_of_pauses, vendor_problems
from batchwright.assemble.tracing import tracing
from batchwright.assemble.vendors import group_seat, open_vendors
from batchwright.assemble.webhooks import delivering, webhook_targets
from batchwright.assemble.workers import build_worker, host_worker, limits_of_pace
from batchwright.core.errors import BatchwrightError, UsageError
from batchwright.core.tenants import LOCAL_ACCOUNT, Scope, Tenant
from batchwright.engine.single_calls import SingleCalls
from batchwright.engine.worker import Worker
from batchwright.fabric.in_process import LoopWorker
from batchwright.fabric.system import SystemClock
from batchwright.ports.calls import CallReply, Calls
from batchwright.ports.file_batches import Files
from batchwright.ports.observer import WorkerFigures
from batchwright.ports.webhooks import Targets
from batchwright.runner.interrupts import CountedInterrupts, interrupts_of_process
from batchwright.server.access import Watched
from batchwright.server.app import build_app
from batchwright.server.auth import Doorkeeper
from batchwright.server.exporting import Exporting
from batchwright.server.insight import Insight
from batchwright.server.new_key import KeyWish
from batchwright.server.recent import Recent
from batchwright.server.row_file import FileIndexes
from batchwright.server.service import Ceilings, Offers, Service
from batchwright.server.watching import Watching
from batchwright.settings import Settings

THREADS = 4
"""Beside the loop that it is to be run on (`fabric.own_process.own_loop`)."""
KEEP_ALIVE_S = 75
BACKLOG = 2048
INTERRUPTED = 130
USES_EVERY_S = 5.0
"""So that a key's last use is known to within some seconds; a key that is not used costs no commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    host: str
    port: int
    """0: any free one."""
    works: bool
    """A worker sends rows in this process too."""
    ceilings: Ceilings


class _CallsOfWorker:
    """Implements `ports.calls.Calls`: those of the worker that is there now."""

    present: Calls

    async def send(self, tenant: Tenant, endpoint: str, body: bytes) -> CallReply:
        return await self.present.send(tenant, endpoint, body)


class _Server(uvicorn.Server):
    """Ends when `should_exit` is set; signals are the caller's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    load: Callable[[], Settings], request: ServeRequest, *, say: Callable[[str], None], show: Callable[[str], None]
) -> int:
    """Serves until the process is interrupted; returns the exit code: 0, for a service ends no other way, or
    INTERRUPTED where a second signal cut the grace short. Raises UsageError for a place it may not serve
    at. `load` reads the settings, again whenever the process is hung up on; `say` takes the log's lines, `show` what is
    for a person and for no log."""
    loop = asyncio.get_running_loop()
    with interrupts_of_process(loop) as interrupts, hangups_of_process(loop, load) as hangups:
        await serve_until(interrupts, load(), request, say=say, show=show, hangups=hangups)
        return INTERRUPTED if interrupts.count > 1 else 0


async def serve_until(
    interrupts: CountedInterrupts,
    settings: Settings,
    request: ServeRequest,
    *,
    say: Callable[[str], None],
    show: Callable[[str], None],
    hangups: Hangups | None = None,
) -> None:
    """Serves until `interrupts` counts one, or the service or its worker ends by itself."""
    log = ServiceLog(settings.serving.log, clock=SystemClock(), write=say, show=show)
    async with (
        open_machine(settings, say=log.say) as machine,
        swept(machine, log.say, retention_s=settings.serving.retention_s),
        AsyncExitStack() as stack,
    ):
        machine.find_price.load()
        _check_place(machine, request.host)
        check_key_file(settings)
        listener = listen_at(request.host, request.port)
        stack.callback(listener.close)
        figures = WorkerFigures()
        opened = open_vendors(
            settings, machine.clock, say=log.say, seat=group_seat(machine), only_simulates=settings.simulates
        )
        vendors = await stack.enter_async_context(opened)
        trace = await stack.enter_async_context(tracing(settings, log.say))
        local = await asyncio.to_thread(has_local, settings)
        offers = Offers(settings.destinations, settings.model, settings.routes, has_local=local)
        calls = _CallsOfWorker()

        def build(standing_by: bool) -> Worker:
            worker = build_worker(
                machine,
                vendors,
                say=log.say,
                asked=limits_of_pace(settings.pace),
                claims=request.works,
                standing_by=standing_by,
                figures=figures,
                trace=trace,
            )
            calls.present = SingleCalls(worker, lambda: (offers.destinations, offers.model, offers.routes))
            return worker

        worker = host_worker(machine, build, say=log.say)
        if request.works:
            machine.batches.claimable = worker.look_again
            machine.batches.flagged = worker.look_at_flags
        doorkeeper = Doorkeeper(machine.store, machine.clock)
        await stack.enter_async_context(_uses_written(machine, doorkeeper, log.say))
        insight = _insight(machine, worker, figures, works=request.works)
        files_of = await stack.enter_async_context(open_files(machine, offers, request.ceilings, log.say))
        targets = stack.enter_context(webhook_targets(settings))
        await stack.enter_async_context(delivering(machine, targets, log.say))
        service = _service(machine, (files_of, calls, targets), offers, request, (insight, log))
        if service.exporting is not None:
            stack.push_async_callback(service.exporting.end)
        reloaded = Reloaded(machine=machine, offers=offers, vendors=vendors, worker=worker, say=log.say)
        await stack.enter_async_context(reloading(hangups, reloaded, settings))
        app = Watched(
            build_app(service, doorkeeper), clock=service.clock, figures=insight.http, tell=log.request, trace=trace
        )
        server = _Server(_config(service, app, grace_s=settings.grace_s))
        for text in vendor_problems(settings, vendors):
            log.say(text)
        if request.works:
            await _tell_of_open(machine, settings, log.say)
        await stack.enter_async_context(telling_of_pauses(machine, log.say))
        log.say(f"Serving on {_address(request.host, listener.getsockname()[1])}; Ctrl-C ends.")
        _show_first_key(machine, log)
        await _until_interrupted(server, listener, worker, interrupts, service.watching, log.say)


def _insight(machine: Machine, worker: LoopWorker, figures: WorkerFigures, *, works: bool) -> Insight:
    store = machine.store
    return Insight(
        read_backlog=store.backlog, read_fleet=store.fleet, view_worker=worker.view, works=works, figures=figures
    )


async def _tell_of_open(machine: Machine, settings: Settings, say: Callable[[str], None]) -> None:
    """Whoever begins a service may not think of the runs that were broken off here."""
    there = (await machine.reader.do(machine.store.backlog)).batches
    count = there.get("open", 0)
    if count:
        batches = "1 batch is" if count == 1 else f"{count} batches are"
        but = " What goes to real vendors is left alone (--simulate)."
        say(f"{batches} open on this machine, and gone on with.{but if settings.simulates else ''}")


async def _until_interrupted(
    server: _Server,
    listener: socket.socket,
    worker: LoopWorker,
    interrupts: CountedInterrupts,
    watching: Watching,
    say: Callable[[str], None],
) -> None:
    """Both end together: a service without its worker would take rows that nobody sends."""
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    working = asyncio.create_task(worker.wait(), name="work")
    interrupted = asyncio.create_task(interrupts.wait(0), name="interrupt")
    await asyncio.wait([serving, working, interrupted], return_when=asyncio.FIRST_COMPLETED)
    if interrupted.done():
        say("Ending: requests are answered and rows in flight may finish; the same signal again ends it at once.")
    server.should_exit = True
    watching.end()
    now = asyncio.create_task(_now(server, worker, interrupts), name="second interrupt")
    try:
        await worker.stop(grace=True)
        await asyncio.wait([serving, working])
    finally:
        now.cancel()
        interrupted.cancel()
    await working  # raises what ended the worker
    await serving


async def _now(server: _Server, worker: LoopWorker, interrupts: CountedInterrupts) -> None:
    await interrupts.wait(1)
    server.force_exit = True
    await worker.stop(grace=False)


@contextlib.asynccontextmanager
async def _uses_written(machine: Machine, doorkeeper: Doorkeeper, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Writes now and then, and at the end, when keys were last used."""

    async def write() -> None:
        try:
            if used := doorkeeper.take_used():
                await machine.writer.do(lambda: machine.store.touch_keys(used))
        except BatchwrightError as error:
            say(f"When keys were last used could not be written: {error}")

    async def go_on() -> None:
        while True:
            await machine.clock.sleep(USES_EVERY_S)
            await write()

    try:
        async with beside("writing of keys' uses", go_on, clock=machine.clock, say=say):
            yield
    finally:
        await write()


def _service(
    machine: Machine,
    given: tuple[Callable[[Tenant], Files], Calls, Targets],
    offers: Offers,
    request: ServeRequest,
    seen: tuple[Insight, ServiceLog],
) -> Service:
    files_of, calls, targets = given
    insight, log = seen
    files = FileIndexes()
    return Service(
        batches_of=machine.batches.of,
        files_of=files_of,
        calls=calls,
        keys=machine.store,
        webhooks=machine.store,
        targets=targets,
        clock=machine.clock,
        chance=machine.chance,
        offers=offers,
        ceilings=request.ceilings,
        watching=Watching(machine.clock),
        files=files,
        exporting=_exporting(machine, files, log),
        recent=Recent(machine.store.changes, machine.clock),
        version=version("batchwright"),
        report=log.say,
        insight=insight,
        open_metrics=machine.settings.serving.open_metrics,
    )


def _exporting(machine: Machine, files: FileIndexes, log: ServiceLog) -> Exporting | None:
    if not machine.settings.blobs:
        return None
    from batchwright.assemble.objects import stored_exports  # only where there is an object store

    exports = stored_exports(machine.settings, machine.store.object_mark())
    return Exporting(exports, files, log.say) if exports is not None else None


def _config(service: Service, app: Watched, *, grace_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="none",
        http=bounded_protocol(service.clock, service.chance),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(grace_s) or 1,
    )


def listen_at(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Before anybody is told of the address: what connects from now on waits for its answer, and is not refused.
        listener.listen(BACKLOG)
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


def _show_first_key(machine: Machine, log: ServiceLog) -> None:
    if machine.store.list_keys():
        return
    text, _ = new_key(machine, KeyWish(account=LOCAL_ACCOUNT, name="first", scopes=frozenset(Scope)))
    log.show(f"The first key, shown this once: {text}")


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
