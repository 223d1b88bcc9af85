"""What of a request's body becomes input tokens: its texts, how many messages and images, tokens given as numbers.

Of chat bodies (and Anthropic's), responses, completions and embeddings; what is around the texts (names of fields,
parameters) is no input of the model. Of any other body all texts count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from batchwright.core.token_guess import NOTHING, TokenGuess, exactly, guess_around, guess_tokens

TEXT_FIELDS = ("system", "messages", "instructions", "input", "prompt")
SPEC_FIELDS = ("tools", "functions", "response_format")
"""Go to the model as JSON, about as they stand."""
SKIPPED_KEYS = frozenset({"role", "type", "id", "tool_call_id", "detail", "cache_control", "media_type"})
IMAGE_KEYS = frozenset({"image_url", "source", "input_audio", "file", "file_data"})
MAX_DEPTH = 50


@dataclass(slots=True)
class _Found:
    texts: list[str] = field(default_factory=list)
    messages: int = 0
    images: int = 0
    tokens: int = 0


def guess_prompt(body: bytes) -> TokenGuess:
    """Never raises: of what is no JSON object nothing is known."""
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return NOTHING
    if not isinstance(request, dict):
        return NOTHING
    found = _Found()
    for name in TEXT_FIELDS:
        if (value := request.get(name)) is not None:
            _walk(value, found, 0)
    for name in SPEC_FIELDS:
        if (value := request.get(name)) is not None:
            found.texts.append(msgspec.json.encode(value).decode())
    messages = request.get("messages")
    found.messages = len(messages) if isinstance(messages, list) else 1
    guess = guess_around(found.messages, found.images).plus(exactly(found.tokens))
    for text in found.texts:
        guess = guess.plus(guess_tokens(text.encode("utf-8", "replace")))
    return guess


def _walk(value: Any, found: _Found, depth: int) -> None:
    if isinstance(value, str):
        found.texts.append(value)
    elif isinstance(value, int):
        found.tokens += 1
    elif isinstance(value, list) and depth < MAX_DEPTH:
        for each in value:
            _walk(each, found, depth + 1)
    elif isinstance(value, dict) and depth < MAX_DEPTH:
        for name, each in value.items():
            if name in IMAGE_KEYS:
                found.images += 1
            elif name not in SKIPPED_KEYS:
                _walk(each, found, depth + 1)
