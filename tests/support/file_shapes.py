"""Input files as people make them, in our own words: the shapes of real batch files, and what is odd about each.

`SHAPES` has one maker a shape. A maker returns the file's bytes; everything is deterministic.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`rows` and `endpoint` are what the file must be read as."""

    make: Callable[[], bytes]
    rows: int
    endpoint: str = "/chat/completions"


def line(custom_id: str, body: object, *, url: str = "/v1/chat/completions", compact: bool = False) -> str:
    """One OpenAI batch line; raw characters, not escapes."""
    separators = (",", ":") if compact else (", ", ": ")
    row = {"custom_id": custom_id, "method": "POST", "url": url, "body": body}
    return json.dumps(row, ensure_ascii=False, separators=separators)


def chat(model: str, user: object, *, system: str = "", **params: object) -> dict[str, object]:
    messages: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    return {"model": model, "messages": [*messages, {"role": "user", "content": user}], **params}


def _file(lines: list[str], *, end: str = "\n") -> bytes:
    return ("\n".join(lines) + end).encode("utf-8")


def many_short_chinese() -> bytes:
    """Set 1 (F04): many short rows, a Chinese system prompt, requests a vendor is likely to refuse."""
    system = "你是一个谨慎的助手,请先判断问题是否合适,再作回答。"
    wishes = ("open a locked door", "draw a quiet lake", "forge a school report", "name three rivers")
    return _file(
        [
            line(f"id_{i}", chat("m-small", f"Please {wishes[i % 4]}, variant {i}", system=system, max_tokens=1000))
            for i in range(2500)
        ]
    )


def repeated_instruction() -> bytes:
    """Set 2 (F02): the same long instruction in each row, for a model that takes neither bound nor temperature;
    some inputs hold broken bits of other JSON."""
    rule = "Sort the note into one of our nine drawers and answer as JSON with the single key drawer. " * 39
    notes = ('kettle leaks","input":"', '{"half": ', "ordinary note about a lamp", "ends in a backslash \\")
    return _file(
        [
            line(
                f"sample_{i}",
                chat(
                    "m-reasoner",
                    f"{notes[i % 4]} {i}",
                    system=rule,
                    max_tokens=20,
                    temperature=0.0,
                    response_format={"type": "json_object"},
                ),
            )
            for i in range(500)
        ]
    )


def raw_hangul() -> bytes:
    """Set 3 (F03): 5 KB of Hangul a row, written raw, one letter asked back."""
    law = "제삼조 주전자는 매일 아침 깨끗이 씻어야 하며 물은 절반만 채운다. "
    return _file([line(f"test_{i}", chat("m-small", f"{law * 50}\n정답은? {i}", max_tokens=10)) for i in range(200)])


def schema_cyrillic() -> bytes:
    """Set 4 (F05): a JSON schema with enums in each row, raw Cyrillic, identical prompts under different ids."""
    schema = {
        "type": "json_schema",
        "json_schema": {
            "name": "tea",
            "strict": False,
            "schema": {
                "type": "object",
                "properties": {
                    f"field_{n}": {"type": "string", "enum": ["чёрный", "зелёный", "белый", "травяной"]}
                    for n in range(20)
                },
            },
        },
    }
    return _file(
        [
            line(f"chunk-{i:06d}", chat("m-nano", f"Опиши чайник номер {i // 3}.", response_format=schema))
            for i in range(200)
        ]
    )


def unsorted_digits() -> bytes:
    """Set 5 (F06): ids are numbers as text, in an order that is not theirs."""
    ids = [str(first + 60 * step) for first in range(60) for step in range(5)]
    return _file([line(custom_id, chat("m-small", f"Case {custom_id}")) for custom_id in ids])


def latex_and_html() -> bytes:
    """Set 6 (F07, F11, F01): LaTeX, HTML, tabs, entities, backslashes, doubly escaped line breaks, curly quotes."""
    system = (
        "\\begin{align}\n\ta &= \\frac{1}{2} \\\\ \\nabla b\n\\end{align}\n"
        "<table>\t<tr><td>&nbsp;\u00b1 5 %</td></tr></table>\r\nfirst\\nsecond \u201cquoted\u201d \u2018text\u2019\n"
    ) * 25
    return _file(
        [
            line(
                f"T10{i:02d}.0{i % 9}_iteration_{i}",
                chat("m-small", f'\tint x = {i}; // "a\\b"', system=system, max_tokens=1000),
            )
            for i in range(120)
        ]
    )


def responses_input() -> bytes:
    """Set 7 (F12): the responses endpoint with `input` as a string that holds JSON."""
    return _file(
        [
            line(
                f"patient_{i}",
                {
                    "model": "m-large",
                    "input": json.dumps({"age": 30 + i, "note": "invented; sleeps well"}),
                    "max_output_tokens": 300,
                    "temperature": 0.7,
                },
                url="/v1/responses",
            )
            for i in range(50)
        ]
    )


def vision_by_url() -> bytes:
    """Set 8 (F13): pictures by address, the picture first; another version in the url; no newline at the end."""
    return _file(
        [
            line(
                f"image_00{i}",
                chat(
                    "m-vision",
                    [
                        {"type": "image_url", "image_url": {"url": f"https://pictures.invalid/{i}.jpg"}},
                        {"type": "text", "text": "What stands on the table?"},
                    ],
                    thinking={"type": "disabled"},
                ),
                url="/v4/chat/completions",
            )
            for i in range(1, 5)
        ],
        end="",
    )


def vision_inline() -> bytes:
    """Set 8b: three rows of 5 MB with the picture inside."""
    picture = base64.b64encode(bytes(range(256)) * 14_648).decode()
    content = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}]
    return _file([line(f"inline-{i}", chat("m-vision", content)) for i in range(3)])


def uneven_blanks() -> bytes:
    """F01: put together by hand from strings, so blanks stand anywhere."""
    return b"".join(
        b'{ "custom_id" :"T%d",  "method": "POST" ,"url": "/v1/chat/completions","body" : {"model":"m-small",'
        b' "messages" : [ {"role" :"user" , "content": "note %d"} ] ,"max_tokens": 128,"temperature":1.2 } }\n' % (i, i)
        for i in range(50)
    )


def compact_bound_first() -> bytes:
    """F08: no blanks at all, the bound before the messages, ids with a UUID, `\\r\\n` and `\\n` mixed in strings."""
    lines = []
    for i in range(40):
        body = {"max_tokens": 1000, **chat("m-small", f"one\r\ntwo\nthree \u2013 \u201cfour\u201d {i}")}
        lines.append(line(f"request-0000{i:04d}-aaaa-4bbb-8ccc-dddddddddddd", body, compact=True))
    return _file(lines)


def developer_role() -> bytes:
    """F10: role developer, `\\u` escapes instead of raw characters, some rows nearly empty."""
    return b"".join(
        json.dumps(
            {
                "custom_id": f"drug{i % 7}_article{900 - i}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {
                    "model": "m-large",
                    "max_tokens": 1000,
                    "messages": [
                        {"role": "developer", "content": "Sum up \u2013 shortly: \u03b4"},
                        {"role": "user", "content": "Not given." if i % 5 == 0 else f"Text {i} \U0001f375"},
                    ],
                },
            }
        ).encode()
        + b"\n"
        for i in range(100)
    )


def slashed_models() -> bytes:
    """F14, F09: another service's model names, parameters that differ by row."""
    return _file(
        [
            line(
                f"request-{i}", chat("some-lab/Model-7B-Instruct", f"Tale {i}", temperature=0.2 * i, max_tokens=10 * i)
            )
            for i in range(1, 4)
        ]
    )


def smallest() -> bytes:
    """F15: the smallest rows there are, and no newline at the end."""
    return _file([line(f"req-{i}", chat("m", "hi"), compact=True) for i in range(1, 4)], end="")


SHAPES: dict[str, Shape] = {
    "many_short_chinese": Shape(make=many_short_chinese, rows=2500),
    "repeated_instruction": Shape(make=repeated_instruction, rows=500),
    "raw_hangul": Shape(make=raw_hangul, rows=200),
    "schema_cyrillic": Shape(make=schema_cyrillic, rows=200),
    "unsorted_digits": Shape(make=unsorted_digits, rows=300),
    "latex_and_html": Shape(make=latex_and_html, rows=120),
    "responses_input": Shape(make=responses_input, rows=50, endpoint="/responses"),
    "vision_by_url": Shape(make=vision_by_url, rows=4),
    "vision_inline": Shape(make=vision_inline, rows=3),
    "uneven_blanks": Shape(make=uneven_blanks, rows=50),
    "compact_bound_first": Shape(make=compact_bound_first, rows=40),
    "developer_role": Shape(make=developer_role, rows=100),
    "slashed_models": Shape(make=slashed_models, rows=3),
    "smallest": Shape(make=smallest, rows=3),
}
