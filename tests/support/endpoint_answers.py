"""The scripted vendor's chat answers in the shapes of other endpoints."""

from __future__ import annotations

import json
from typing import Any


def in_shape_of(path: str, body: bytes) -> bytes:
    """A scripted chat answer as that path would give it; whatever is none stays as it is."""
    try:
        whole: dict[str, Any] = json.loads(body)
        choice = whole["choices"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        return body
    if path.endswith("/responses"):
        return json.dumps(_response(whole, choice)).encode()
    if path.endswith("/completions") and not path.endswith("/chat/completions"):
        text = choice["message"]["content"]
        choices = [{"index": 0, "text": text, "logprobs": None, "finish_reason": choice["finish_reason"]}]
        return json.dumps(whole | {"object": "text_completion", "choices": choices}).encode()
    if path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}] if choice["message"]["content"] else []
        counts = {"prompt_tokens": 10, "total_tokens": 10}
        usage = {"usage": counts} if "usage" in whole else {}
        return json.dumps({"object": "list", "model": whole["model"], "data": data, **usage}).encode()
    return body


def _response(whole: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = reasons.get(choice["finish_reason"])
    refusal = message.get("refusal")
    part = {"type": "refusal", "refusal": refusal} if refusal else {"type": "output_text", "text": message["content"]}
    body: dict[str, Any] = {
        "object": "response",
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "model": whole["model"],
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [part]},
        ],
    }
    if "usage" in whole:
        body["usage"] = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 12,
        }
    return body
