from __future__ import annotations

import pytest

from batchwright.wire.http_head import header

HEAD = (
    b"HTTP/1.1 429 Too Many\r\nContent-Type: text/plain\r\nRETRY-AFTER:\t 7 \r\n"
    b"x-retry-after: 9\r\nempty:\r\nname: caf\xe9\r\ntwice: 1\r\ntwice: 2\r\nlast: end"
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry-after", "7"),
        ("Retry-After", "7"),
        ("content-type", "text/plain"),
        ("empty", ""),
        ("name", "caf\u00e9"),
        ("twice", "1"),
        ("last", "end"),
        ("after", None),
        ("429", None),
        ("HTTP/1.1 429 Too Many", None),
    ],
)
def test_one_header(name: str, value: str | None) -> None:
    assert header(HEAD, name) == value


def test_a_status_line_alone_has_none() -> None:
    assert header(b"HTTP/1.1 200 OK", "x") is None
