"""The official SDK with its aiohttp transport, as many workers as rows in flight, answers written as they come.

python openai_sdk.py ROWS OUTPUT BASE_URL CONCURRENCY
"""

import asyncio
import json
import sys

from openai import AsyncOpenAI, DefaultAioHttpClient


async def work(client, lines, output):
    for index, line in lines:
        answer = await client.chat.completions.create(**json.loads(line)["body"])
        output.write(json.dumps([index, None, answer.model_dump()]) + "\n")


async def main(source, target, base_url, concurrency):
    async with AsyncOpenAI(api_key="none", base_url=base_url, http_client=DefaultAioHttpClient()) as client:
        lines = enumerate(source)
        await asyncio.gather(*(work(client, lines, target) for _ in range(concurrency)))


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as rows, open(sys.argv[2], "w") as answers:
        asyncio.run(main(rows, answers, sys.argv[3], int(sys.argv[4])))
