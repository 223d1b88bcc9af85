"""Prompts in, answers out, by Infrai's batch API: nothing but `requests`, and not a word of batchwright in it.

    export INFRAI_BASE_URL=http://127.0.0.1:8080     # `batchwright serve`; https://api.infrai.cc is Infrai itself
    export INFRAI_API_KEY=...
    pip install requests
    python infrai_batch.py prompts.txt answers.jsonl [MODEL]

One prompt a line. What it does is what users of that API do: submit, poll until a terminal state, page through the
results, sum up what they cost, submit the failed rows again, and save the export of each batch.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import requests

TERMINAL = {"completed", "partial", "failed", "expired", "cancelled"}
PAGE = 100
ATTEMPTS = 3
FIRST_POLL_S, LONGEST_POLL_S = 0.2, 10.0


class Api:
    def __init__(self, base_url: str, key: str) -> None:
        self._base = base_url.rstrip("/") + "/v1/ai/batch"
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {key}"

    def call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """`data` of the envelope. The envelope is read before the HTTP status: a refusal has one too."""
        answer = self._session.request(method, f"{self._base}/{path}", timeout=180, **options)
        envelope = answer.json(parse_float=Decimal)
        if not envelope["ok"]:
            error = envelope["error"]
            raise SystemExit(f"{error['code']}: {error.get('hint') or error['message']}")
        return envelope["data"]


def run_batch(api: Api, bodies: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The batch's id and one result item a body, once it has ended."""
    submitted = api.call(
        "POST",
        "submit",
        json={"requests": bodies, "batch_timeout": 1800, "metadata": {"job": "example"}, "store": True},
        headers={"Idempotency-Key": str(uuid.uuid4())},
    )
    batch_id, state, wait_s = submitted["batch_id"], submitted["state"], FIRST_POLL_S
    while state not in TERMINAL:
        time.sleep(wait_s)
        wait_s = min(wait_s * 1.5, LONGEST_POLL_S)
        status = api.call("GET", f"status/{batch_id}")
        state = status["state"]
        print(f"{batch_id} {state}: {status['completed_count']} of {status['total_count']}", file=sys.stderr)
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = api.call("GET", f"results/{batch_id}", params={"limit": PAGE, "cursor": cursor})
        items += page["items"]
        cursor = page.get("next_cursor")
        if cursor is None:
            return batch_id, items


def main() -> int:
    """0: every prompt was answered."""
    if len(sys.argv) not in (3, 4):
        print("usage: python infrai_batch.py PROMPTS.txt ANSWERS.jsonl [MODEL]", file=sys.stderr)
        return 2
    if "INFRAI_API_KEY" not in os.environ:
        print("set INFRAI_API_KEY to a key of the service at INFRAI_BASE_URL", file=sys.stderr)
        return 2
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    model = sys.argv[3] if len(sys.argv) > 3 else "auto"
    api = Api(os.environ.get("INFRAI_BASE_URL", "http://127.0.0.1:8080"), os.environ["INFRAI_API_KEY"])
    prompts = [line for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    bodies = [
        {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 200} for prompt in prompts
    ]
    last: dict[int, dict[str, Any]] = {}
    spent, unpriced = Decimal(0), 0
    waiting = list(range(len(bodies)))
    for attempt in range(1, ATTEMPTS + 1):
        batch_id, items = run_batch(api, [bodies[index] for index in waiting])
        for item in items:
            # `request_index` counts within this batch; the prompt's own place is where it stood in what was submitted.
            last[waiting[item["request_index"]]] = item
            spent += item["cost_usd"] or 0
            unpriced += item["cost_usd"] is None
        export = api.call("POST", f"export/{batch_id}", json={})
        target.with_suffix(f".{attempt}.jsonl").write_text(export["content"], encoding="utf-8")
        waiting = [index for index in waiting if not last[index]["ok"]]
        if not waiting:
            break
    with target.open("w", encoding="utf-8") as out:
        for index, prompt in enumerate(prompts):
            item = last[index]
            answer = item["result"]["content"] if item["ok"] else None
            error = None if item["ok"] else item["error"]["message"]
            out.write(json.dumps({"prompt": prompt, "answer": answer, "error": error}, ensure_ascii=False) + "\n")
    unknown = f", and {unpriced} of unknown cost" if unpriced else ""
    print(f"{len(prompts) - len(waiting)} of {len(prompts)} ok, ${spent:f}{unknown}")
    if waiting:
        error = last[waiting[0]]["error"]
        print(f"prompt {waiting[0] + 1}: {error['code']}: {error['message']}", file=sys.stderr)
    return 1 if waiting else 0


if __name__ == "__main__":
    sys.exit(main())
