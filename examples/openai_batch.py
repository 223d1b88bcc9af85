"""A batch through the stock `openai` package: upload a file, wait for its batch, download the answers.

    pip install openai
    batchwright serve --simulate                       # prints its address, and once a first key
    export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=bw_...
    python examples/openai_batch.py examples/tickets.jsonl

Nothing in it is Batchwright's: with OpenAI's address and key the same lines run there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import openai

POLL_S = 0.5
ENDED = ("completed", "failed", "expired", "cancelled")


def main(path: Path) -> int:
    client = openai.OpenAI()
    file = client.files.create(file=path, purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"source": path.name},
    )
    while batch.status not in ENDED:
        time.sleep(POLL_S)
        batch = client.batches.retrieve(batch.id)

    if batch.status == "failed":
        for error in (batch.errors and batch.errors.data) or []:
            print(f"line {error.line}: {error.code}: {error.message}", file=sys.stderr)
        return 1

    # Both may be missing: nothing succeeded, or nothing failed.
    for file_id in (batch.output_file_id, batch.error_file_id):
        if not file_id:
            continue
        for line in client.files.content(file_id).text.splitlines():
            answer = json.loads(line)
            if answer["response"] and answer["response"]["status_code"] == 200:
                print(answer["custom_id"], answer["response"]["body"]["choices"][0]["message"]["content"])
            else:
                print(answer["custom_id"], "FAILED", answer["error"] or answer["response"]["body"]["error"])

    counts = batch.request_counts
    print(f"{batch.id} {batch.status}: {counts and counts.completed} of {counts and counts.total} ok", file=sys.stderr)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python openai_batch.py ROWS.jsonl")
    sys.exit(main(Path(sys.argv[1])))
