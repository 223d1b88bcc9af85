"""The real llama.cpp server with the real model, once a test session."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchwright.vendors.local_model import LocalServer, start_local_server
from batchwright.vendors.model_files import find_model

ENDS_WITHIN_S = 30
"""A bound for what should take milliseconds: a test that meets it has failed."""


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    base_url: str
    key: str
    slots: int
    pid: int


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_model(explicit=None, environ={}, cache=tmp_path_factory.mktemp("model-cache"))


@pytest.fixture(scope="session")
def local_server(model_file: Path) -> Iterator[RunningServer]:
    """In a loop of its own, in a thread that lives as long: the server ends with the thread that started it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="local-server-loop")
    thread.start()

    try:
        start = start_local_server(model_file=model_file, environ=os.environ)
        server: LocalServer = asyncio.run_coroutine_threadsafe(start, loop).result()
        try:
            yield RunningServer(base_url=server.base_url, key=server.key, slots=server.slots, pid=server.pid)
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def wait_until_gone(pid: int) -> bool:
    """True once the process has ended, whoever its parent is; False if it still runs after 30 s. Linux."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([handle], [], [], ENDS_WITHIN_S)
        return bool(readable)
    finally:
        os.close(handle)
