"""Bodies read back from the text of the file they came with: the very bytes, whether they stood there so or not."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.batch_spec import Destination
from batchwright.core.endpoints import CHAT
from batchwright.core.records import InputRow, Pieces, SegmentInput
from batchwright.core.row_options import RowOptions
from batchwright.wire.file_bodies import STRETCHES_MAX, FileBodies, FileLine, find_bodies, read_bodies
from batchwright.wire.frames import pack_input_of_file, pack_piece, unpack_input, unpack_rows
from batchwright.wire.openai_input import OpenAILineDecoder

PIECES = Pieces("file-a", 0, 1)
VENDOR = Destination(vendor="openai", base_url="https://example.test/v1", key_env="KEY")


def placed(lines: list[bytes]) -> list[FileLine]:
    found, start = [], 0
    for line in lines:
        found.append(FileLine(start, line))
        start += len(line) + 1
    return found


def found_again(lines: list[bytes], bodies: list[bytes]) -> tuple[FileBodies, list[bytes]]:
    places = find_bodies(PIECES, placed(lines), bodies)
    return places, read_bodies(places, b"\n".join(lines))


LINES = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))


@given(st.lists(st.tuples(LINES, LINES)))
def test_any_body_of_any_line_comes_back(pairs: list[tuple[bytes, bytes]]) -> None:
    bodies = [body for _, body in pairs]
    assert found_again([line for line, _ in pairs], bodies)[1] == bodies


TEXTS = st.text(max_size=120)
FIELDS = st.dictionaries(st.sampled_from(["user", "seed", "metadata", "logit_bias"]), TEXTS | st.integers(), max_size=3)


@st.composite
def written_lines(draw: st.DrawFn) -> bytes:
    """A line as people write them: the model named, prefixed or left out; any fields, any white space, any escapes."""
    model = draw(st.sampled_from([{"model": "m"}, {"model": "openai/m"}, {}]))
    fields = [*model.items(), ("messages", [{"role": "user", "content": draw(TEXTS)}]), *draw(FIELDS).items()]
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    line = {"custom_id": draw(TEXTS), "method": "POST", "url": CHAT, "body": dict(draw(st.permutations(fields)))}
    text = json.dumps(line, ensure_ascii=draw(st.booleans()), separators=separators)
    return text.encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"", b"\r", b"  "]))


@given(st.lists(written_lines(), min_size=1, max_size=5))
def test_bodies_that_are_sent_come_back_as_they_are_sent(lines: list[bytes]) -> None:
    decoder = OpenAILineDecoder(RowOptions(destinations=(VENDOR,), model="filled-in"), CHAT)
    rows = [decoder.decode(line, number).row for number, line in enumerate(lines, 1)]
    assert found_again(lines, [row.body for row in rows])[1] == [row.body for row in rows]


@pytest.mark.parametrize("model", [{}, {"model": "openai/m"}], ids=["none named", "with the vendor's name"])
def test_a_large_text_is_not_kept_again_where_a_model_is_set(model: dict[str, str]) -> None:
    question = {"messages": [{"role": "user", "content": "a long question " * 100}]}
    body = {**question, **model, "max_tokens": 5}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": CHAT, "body": body}).encode()
    decoder = OpenAILineDecoder(RowOptions(destinations=(VENDOR,), model="m"), CHAT)
    row = decoder.decode(line, 1).row
    assert msgspec.json.decode(row.body) == {**question, "model": "m", "max_tokens": 5}
    places, bodies = found_again([line], [row.body])
    assert bodies == [row.body]
    assert len(msgspec.msgpack.encode(places)) < 150


def test_a_segment_of_a_file_is_packed_without_its_bodies() -> None:
    bodies = [b'{"n":%d}' % number for number in range(3)]
    lines = [b'{"custom_id":"%d","body":%s}' % (number, body) for number, body in enumerate(bodies)]
    text = b"\n".join(lines)
    rows = [InputRow(body=body, custom_id=str(number), line=number) for number, body in enumerate(bodies)]
    segment = SegmentInput(lanes=["a|b|c"], rows=rows)
    asked = []

    def read_piece(file_id: str, number: int) -> bytes:
        asked.append((file_id, number))
        return pack_piece((text[:20], text[20:50], text[50:])[number - 7])

    packed = pack_input_of_file(segment, find_bodies(Pieces("file-b", 7, 3), placed(lines), bodies))
    assert unpack_rows(packed).rows == [msgspec.structs.replace(row, body=b"") for row in rows]
    assert asked == []
    assert unpack_input(packed, read_piece) == segment
    assert asked == [("file-b", 7), ("file-b", 8), ("file-b", 9)]


def test_a_body_of_very_many_fields_comes_back() -> None:
    body = {f"field{number}": f"{number:0100}" for number in range(200)} | {"messages": [{"role": "user"}]}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": CHAT, "body": body}).encode()
    row = OpenAILineDecoder(RowOptions(destinations=(VENDOR,), model="m"), CHAT).decode(line, 1).row
    assert msgspec.json.decode(row.body) == body | {"model": "m"}
    places, bodies = found_again([line], [row.body])
    assert bodies == [row.body]
    assert len([part for part in places.changed[0] if not isinstance(part, bytes)]) == STRETCHES_MAX
