"""A vendor with a batch API that takes its time, and live rows beside it: real HTTP, real seconds.

    with SlowBatchVendor(rows_per_s=50) as vendor:
        ... vendor.batched, vendor.live ...      # how often each row was done, by its last word

Rows of a batch are done in a shuffled order, so many a second; a cancelled batch gives what was done by then.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter

from support.batch_vendor import BatchVendor, Call, Json, Reply, as_json, chat_answer

KEY = "sk-scripted-key"


class SlowBatchVendor(BatchVendor):
    def __init__(self, rows_per_s: float = math.inf) -> None:
        super().__init__()
        self.rows_per_s = rows_per_s
        self.batched: Counter[str] = Counter()
        self.live: Counter[str] = Counter()
        self._made_s: dict[str, float] = {}

    def handle(self, method: str, path: str, query: dict[str, str], call: Call) -> Reply:
        if (method, path) == ("POST", "/chat/completions"):
            word = json.loads(call.body)["messages"][-1]["content"]
            self.live[word] += 1
            return as_json(chat_answer(word))
        return super().handle(method, path, query, call)

    def create(self, asked: Json) -> Reply:
        super().create(asked)
        batch_id = next(reversed(self.batches))
        self._made_s[batch_id] = time.monotonic()
        self.batches[batch_id] |= {"status": "in_progress", "created_at": int(time.time())}
        return as_json(self.batches[batch_id])

    def of_batch(self, batch_id: str, *, cancel: bool) -> Reply:
        batch = self.batches.get(batch_id)
        if batch is not None and batch["status"] == "in_progress":
            rows = self.input_rows(batch_id)
            random.Random(batch_id).shuffle(rows)
            elapsed_s = time.monotonic() - self._made_s[batch_id]
            done = int(min(len(rows), elapsed_s * self.rows_per_s))
            batch["request_counts"] = {"total": len(rows), "completed": done, "failed": 0}
            if cancel or done == len(rows):
                self._close(batch_id, rows[:done], "cancelled" if cancel else "completed")
        return (
            super().of_batch(batch_id, cancel=False) if batch is not None else super().of_batch(batch_id, cancel=cancel)
        )

    def _close(self, batch_id: str, rows: list[Json], state: str) -> None:
        lines = []
        for row in rows:
            word = row["body"]["messages"][-1]["content"]
            self.batched[word] += 1
            lines.append(json.dumps(self.output_line(row["custom_id"], word)).encode())
        output = self.add_file(b"\n".join(lines) + b"\n") if lines else None
        self.batches[batch_id] |= {"status": state, "output_file_id": output}

    def done(self) -> Counter[str]:
        """How often each row was done, one way or the other."""
        return self.batched + self.live
