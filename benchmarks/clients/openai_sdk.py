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


async def main(rows, output, base_url, concurrency):
    with open(rows, "rb") as source, open(output, "w") as target:
        async with AsyncOpenAI(api_key="none", base_url=base_url, http_client=DefaultAioHttpClient()) as client:
            lines = enumerate(source)
            await asyncio.gather(*(work(client, lines, target) for _ in range(concurrency)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
