"""The script one writes by hand: aiohttp on uvloop, as many workers as rows in flight, answers written as they come.
It keeps nothing durable, retries nothing and knows no order.

python bare_aiohttp.py ROWS OUTPUT BASE_URL CONCURRENCY
"""

import asyncio
import json
import sys

import aiohttp
import uvloop


async def work(session, url, lines, output):
    for index, line in lines:
        body = json.dumps(json.loads(line)["body"]).encode()
        async with session.post(url, data=body, headers={"content-type": "application/json"}) as response:
            answer = json.loads(await response.read())
        output.write(json.dumps([index, None, answer]) + "\n")


async def main(source, target, base_url, concurrency):
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        lines = enumerate(source)
        url = f"{base_url}/chat/completions"
        await asyncio.gather(*(work(session, url, lines, target) for _ in range(concurrency)))


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as rows, open(sys.argv[2], "w") as answers:
        uvloop.run(main(rows, answers, sys.argv[3], int(sys.argv[4])))
