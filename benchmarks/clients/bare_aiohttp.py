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


async def main(rows, output, base_url, concurrency):
    connector = aiohttp.TCPConnector(limit=concurrency)
    with open(rows, "rb") as source, open(output, "w") as target:
        async with aiohttp.ClientSession(connector=connector) as session:
            lines = enumerate(source)
            url = f"{base_url}/chat/completions"
            await asyncio.gather(*(work(session, url, lines, target) for _ in range(concurrency)))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
