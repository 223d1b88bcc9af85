"""The child program: a llama.cpp server on loopback, for as long as its parent lives.

    python -P -m batchwright.vendors.llama_server --model FILE --parent PID ...

- Its key comes in the environment (`KEY_VARIABLE`): an argument could be read by every user of the machine.
- When it can answer it writes one JSON line, `{"base_url": "http://127.0.0.1:PORT"}`, to standard output and closes it.
- It ends when its standard input ends, and on Linux also by the kernel's hand when its parent dies.

It is a process of its own because llama.cpp answers some faults by ending the process (an instruction that the
processor lacks, a broken model file), and none of these may take the command and its rows along.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

KEY_VARIABLE = "BATCHWRIGHT_LOCAL_SERVER_KEY"
LOG_ERRORS_ONLY = 1
"""llama.cpp writes about eight lines a request otherwise."""
PR_SET_PDEATHSIG = 1
"""`man 2 prctl`: the signal to get when the parent dies."""


def main() -> None:
    options = _read_options()
    announce = _keep_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if sys.platform == "linux":
        _die_with_parent(options.parent)
    watcher = threading.Thread(target=_end_with_stdin, name="stdin-watcher", daemon=True)
    watcher.start()
    # Imported last: on some machines this line, or the first call, is the process's end (module docstring).
    import xllamacpp  # type: ignore[import-untyped, unused-ignore]  # an extra, and without types

    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {options.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.api_keys = [os.environ[KEY_VARIABLE]]
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.context_tokens
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    # One thread a kept-alive connection; with fewer, a connection would wait for another to go idle.
    params.n_threads_http = 2 * options.slots + 4
    # The store of earlier prompts may grow to 8 GiB and gained nothing here: a slot keeps its own last prompt anyway.
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = LOG_ERRORS_ONLY
    try:
        server = xllamacpp.Server(params)  # returns once the model is loaded
    except RuntimeError as error:  # llama.cpp has written what is wrong
        raise SystemExit(f"{options.model} could not be loaded: {error}") from None
    base_url: str = server.listening_address
    _require_health(base_url)
    os.write(announce, json.dumps({"base_url": base_url}).encode() + b"\n")
    os.close(announce)
    watcher.join()


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batchwright.vendors.llama_server")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context-tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--port", type=int, required=True, help="0: any that is free")
    parser.add_argument("--parent", type=int, required=True)
    return parser.parse_args()


def _keep_stdout() -> int:
    """Standard output for the one line alone: whatever llama.cpp prints goes to standard error."""
    announce = os.dup(1)
    os.dup2(2, 1)
    return announce


def _die_with_parent(parent: int) -> None:
    """Covers what standard input does not: a model being loaded, and a write end that another process inherited."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    # At once: rows that are still being answered have nobody left to be answered to.
    os._exit(0)


def _require_health(base_url: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=10)
    try:
        connection.request("GET", "/health")
        reply = connection.getresponse()
        if reply.status != http.client.OK:
            raise SystemExit(f"/health answered {reply.status}: {reply.read(500)!r}")
    finally:
        connection.close()


if __name__ == "__main__":
    main()
