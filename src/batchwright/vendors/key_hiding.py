"""Takes our key out of what a vendor sends back: refusals are stored, shown and exported, and calls are answered to
whoever asked."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from batchwright.ports.vendor import Answer

HIDDEN = "[key]"
LEAST_KEY_CHARS = 8
"""A shorter key is a placeholder ("none", "EMPTY"): no secret, and a word that answers may well hold."""
LEFT_OUT = msgspec.json.encode({"error": {"message": "left out: it repeated the key"}})


class KeyHider:
    """Holds the key in methods alone: no attribute that a repr shows. Hides nothing of a key that is no secret."""

    __slots__ = ("_escaped", "_key", "plain")

    def __init__(self, key: str) -> None:
        secret = len(key.encode("latin-1", "replace")) >= LEAST_KEY_CHARS
        self._key = key if secret else ""
        self._escaped = quote(key, safe="")
        self.plain = key.encode("latin-1", "replace") if secret else b""
        """The key's bytes; empty: there is nothing to hide."""

    def hide(self, answer: Answer) -> None:
        """Takes the key out of an answer, from its body and from the words that were read out of it.

        The words are looked at as they are read, so that an escaped key is found too; and since they are cut to a
        length, a beginning of the key at their end counts as the key.
        """
        if not self.plain:
            return
        answer.body = self.body(answer.body)
        answer.message, answer.code = self._text(answer.message), self._text(answer.code)
        answer.param, answer.request_id = self._text(answer.param), self._text(answer.request_id)

    def body(self, body: bytes) -> bytes:
        """The same bytes where they do not hold the key."""
        if not self.plain:
            return body
        if self.plain in body:
            return body.replace(self.plain, HIDDEN.encode())
        return LEFT_OUT if _holds(body, self._key) else body

    def _text(self, text: str) -> str:
        text = text.replace(self._key, HIDDEN).replace(self._escaped, HIDDEN)
        ending = text.rstrip("….")
        for length in range(len(self._key) - 1, LEAST_KEY_CHARS - 1, -1):
            if ending.endswith(self._key[:length]):
                return ending[:-length] + HIDDEN
        return text


class KeyFilter:
    """The same for a body that comes in pieces. What may be the beginning of the key waits for the next piece: that is
    next to never anything."""

    __slots__ = ("_plain", "_waiting")

    def __init__(self, hider: KeyHider) -> None:
        self._plain = hider.plain
        self._waiting = b""

    def feed(self, piece: bytes) -> bytes:
        plain = self._plain
        if not plain:
            return piece
        data = (self._waiting + piece if self._waiting else piece).replace(plain, HIDDEN.encode())
        kept = 0
        for length in range(min(len(plain) - 1, len(data)), 0, -1):
            if data.endswith(plain[:length]):
                kept = length
                break
        self._waiting = data[len(data) - kept :] if kept else b""
        return data[: len(data) - kept] if kept else data

    def end(self) -> bytes:
        """What still waited: it was no key."""
        waiting, self._waiting = self._waiting, b""
        return waiting


def _holds(body: bytes, key: str) -> bool:
    """Whether a body that has escapes spells the key in one of its texts."""
    if b"\\" not in body:
        return False
    try:
        return key in str(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return False
