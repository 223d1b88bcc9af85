"""What a key must look like to be sent: it goes into a header of ASCII text."""

from __future__ import annotations


def can_be_sent(key: str) -> bool:
    """Without the blanks around it, which are no part of it. An empty key is none and can not."""
    text = key.strip()
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
