"""`--param KEY=JSON`: body fields for rows that lack them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from batchwright.core.errors import UsageError

BARE_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.:/-]*")
"""`reasoning_effort=low`: a word that is no JSON is a text, since quotes inside a shell's quotes are a nuisance."""
NEAR_JSON = {"True": "true", "False": "false", "None": "null", "TRUE": "true", "FALSE": "false", "NULL": "null"}
NOT_PARAMS = {
    "model": "use -m/--model NAME",
    "messages": "the rows, or -t/--prompt, say what is asked",
    "stream": "answers are never streamed",
    "stream_options": "answers are never streamed",
}


def read_params(texts: Sequence[str], max_tokens: int | None, temperature: float | None) -> dict[str, object]:
    """Raises UsageError for a text that is no `KEY=JSON`, for a field given twice, or one that is none of these."""
    found: dict[str, object] = {}
    given = [("--param", *_read(text)) for text in texts]
    if max_tokens is not None:
        given.append(("--max-tokens", "max_tokens", max_tokens))
    if temperature is not None:
        if not -1e6 < temperature < 1e6:
            raise UsageError(f"--temperature: expected a finite number, found {temperature}")
        given.append(("--temperature", "temperature", temperature))
    for option, key, value in given:
        if key in found:
            raise UsageError(f"{option}: the body field {key!r} is given twice")
        found[key] = value
    return found


def _read(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--param: expected KEY=JSON such as top_p=0.9, found {text!r}")
    key = key.strip()
    if key in NOT_PARAMS:
        raise UsageError(f"--param {key}=...: {NOT_PARAMS[key]}")
    try:
        return key, json.loads(value, parse_constant=_no_constant)
    except ValueError:
        pass
    word = value.strip()
    if word in NEAR_JSON:
        raise UsageError(f"--param {text}: JSON writes that {key}={NEAR_JSON[word]}")
    if BARE_WORD.fullmatch(word) and word not in ("NaN", "Infinity"):
        return key, word
    raise UsageError(
        f"--param {text}: {value!r} is no JSON value; a text with blanks or signs needs quotes: --param '{key}=\"...\"'"
    )


def _no_constant(name: str) -> object:
    raise ValueError(name)
