"""An order of sending in which rows that begin alike follow each other. Pure.

A server that keeps what it has computed of a prompt computes the shared beginning of two prompts once, if the second
comes before something else has taken the first one's place. Results are filed by their rows, whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_PROMPTS = (b'"messages"', b'"prompt"', b'"input"')
"""The field that a prompt stands in. What comes before it in a body (a model, a seed) is no part of the prompt."""
PREFIX_BYTES = 16 * 1024
"""Of a prompt that are looked at: rows that are alike for so long are as good as each other's neighbours."""


def by_prefix(rows: Iterable[int], body_of: Callable[[int], bytes]) -> list[int]:
    """The rows so that those whose prompts have the longest common beginning are neighbours; of equal ones the earlier
    first."""
    return sorted(rows, key=lambda row: (_prompt(body_of(row)), row))


def _prompt(body: bytes) -> bytes:
    for name in _PROMPTS:
        at = body.find(name)
        if at >= 0:
            return body[at : at + PREFIX_BYTES]
    return body[:PREFIX_BYTES]
