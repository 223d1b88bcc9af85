"""Reading one header out of the raw head of an answer: nothing is parsed until somebody asks for a name.

A head is the status line and the header lines as they came, without the blank line that ended them. Only a few answers
are ever asked (429, 5xx, the first of a connection), so a search through the bytes is cheaper than a table of headers
for all.
"""

from __future__ import annotations

LINE_END = b"\r\n"


def header(head: bytes, name: str) -> str | None:
    """The value of the first header called `name` (in any case), without the white space around it; None if absent.

    Values are decoded as latin-1, as HTTP has it, so every byte has a text.
    """
    mark = f"\r\n{name.lower()}:".encode("latin-1")
    found = head.lower().find(mark)
    if found < 0:
        return None
    start = found + len(mark)
    end = head.find(LINE_END, start)
    return head[start : end if end >= 0 else len(head)].decode("latin-1").strip()
