"""A vendor that fails now and then, in a process of its own: what nginx cannot do, above all hanging up.

    python benchmarks/faulty_vendor.py 0.02 [--delay-ms 50]

Of all requests the given share is answered 429, as many 500, and as many with a closed connection after the request
was read; the rest with a chat completion after the delay. It prints its base URL and ends with its standard input.
With a share of 0 it is the clean vendor to compare with: the same code, the same speed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from typing import cast

import httptools
import uvloop

ANSWER = (
    b'{"id":"chatcmpl-%016x","object":"chat.completion","created":1790000000,"model":"gpt-4o-mini-2024-07-18",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"positive %x","refusal":null},"logprobs":null,'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":210,"completion_tokens":12,"total_tokens":222}}'
)
ERROR = b'{"error":{"message":"%b","type":"%b","param":null,"code":null}}'


class Peer(asyncio.Protocol):
    """One connection; a client waits for its answer before it asks again."""

    def __init__(self, share: float, delay_s: float, chance: random.Random) -> None:
        self._share = share
        self._delay_s = delay_s
        self._chance = chance
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is no subclass

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._loop.call_later(self._delay_s, self._answer)

    def _answer(self) -> None:
        if self._transport.is_closing():
            return
        drawn = self._chance.random()
        if drawn < self._share:
            self._reply(b"429 Too Many Requests", ERROR % (b"Rate limit reached", b"rate_limit_error"))
        elif drawn < 2 * self._share:
            self._reply(b"500 Internal Server Error", ERROR % (b"The server had an error", b"server_error"))
        elif drawn < 3 * self._share:
            self._transport.close()
        else:
            self._reply(b"200 OK", ANSWER % (self._chance.getrandbits(63), self._chance.getrandbits(64)))

    def _reply(self, status: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self._transport.write(head + body)


async def serve(share: float, delay_s: float) -> None:
    chance = random.Random(7)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Peer(share, delay_s, chance), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description="a vendor that fails now and then")
    parser.add_argument("share", type=float)
    parser.add_argument("--delay-ms", type=float, default=50)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.share, arguments.delay_ms / 1000))


if __name__ == "__main__":
    main()
