"""A vendor's answer as a reader of results wants it: the answer's text and the whole, each as JSON that can be spliced.

Nothing here decides whether an answer is a good one: that was decided once, when it came (`vendors`).
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from batchwright.wire.json_text import mend_surrogates, one_line, string

NULL = b"null"
_NULL = Raw(NULL)
_OUTPUT_TEXT = Raw(b'"output_text"')


class Reply(msgspec.Struct, gc=False):
    """Every field is JSON text in one line, valid UTF-8; `null` where the answer has none.

    What is Raw is a piece of `whole`, not copied: join or decode it, and make `bytes` of it for anything else.
    """

    content: Raw = _NULL
    """The first choice's content, as it is: a string, null, a list of parts. Of embeddings the vector, or a list of
    them in the order of the texts where several were asked for."""
    finish_reason: Raw = _NULL
    model: Raw = _NULL
    usage: Raw = _NULL
    whole: bytes = NULL
    """The answer; a JSON string of its text where it is no JSON."""
    is_json: bool = False


class _Message(msgspec.Struct, gc=False):
    content: Raw = _NULL


class _Choice(msgspec.Struct, gc=False):
    message: _Message | None = None
    finish_reason: Raw = _NULL
    text: Raw = _NULL
    """Of the older completions endpoint."""


class _Answer(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    model: Raw = _NULL
    usage: Raw = _NULL
    output: Raw = _NULL
    """Of the responses endpoint."""
    data: Raw = _NULL
    """Of the embeddings endpoint."""


class _Part(msgspec.Struct, gc=False):
    type: Raw = _NULL
    text: Raw = _NULL


class _Item(msgspec.Struct, gc=False):
    content: Raw = _NULL
    """A list of parts in a message; tools bring items of their own."""


class _Vector(msgspec.Struct, gc=False):
    embedding: Raw = _NULL
    index: int = 0


class _Incomplete(msgspec.Struct, gc=False):
    reason: Raw = _NULL


class _Response(msgspec.Struct, gc=False):
    output: list[_Item]
    status: Raw = _NULL
    incomplete_details: _Incomplete | None = None


_read_answer = msgspec.json.Decoder(_Answer).decode
_read_response = msgspec.json.Decoder(_Response).decode
_read_parts = msgspec.json.Decoder(list[_Part]).decode
_read_data = msgspec.json.Decoder(list[_Vector]).decode
_read_text = msgspec.json.Decoder(str).decode
_read_raw = msgspec.json.Decoder(Raw).decode


def read_reply(body: bytes) -> Reply:
    """Never raises. An empty body gives nulls."""
    if not body:
        return Reply()
    text = one_line(body)
    try:
        answer = _read_answer(text)
    except msgspec.ValidationError:
        return _unknown_shape(text)
    except msgspec.DecodeError:
        mended = mend_surrogates(text)
        return read_reply(mended) if mended != text else Reply(whole=_as_string(body))
    except RecursionError:
        return Reply(whole=_as_string(body))
    reply = Reply(model=answer.model, usage=answer.usage, whole=text, is_json=True)
    if answer.choices:
        first = answer.choices[0]
        reply.content = first.message.content if first.message is not None else first.text
        reply.finish_reason = first.finish_reason
    elif answer.choices is None and answer.output != _NULL:
        _read_output(text, reply)
    elif answer.choices is None and answer.data != _NULL:
        _read_vectors(answer.data, reply)
    return reply


def _unknown_shape(text: bytes) -> Reply:
    """JSON of another shape than a chat answer's. A typed decode stops at the first surprise, so the rest of the syntax
    is looked at here."""
    try:
        _read_raw(text)
    except msgspec.DecodeError:
        mended = mend_surrogates(text)
        return read_reply(mended) if mended != text else Reply(whole=_as_string(text))
    except RecursionError:
        return Reply(whole=_as_string(text))
    return Reply(whole=text.strip(), is_json=True)


def _read_output(text: bytes, reply: Reply) -> None:
    try:
        response = _read_response(text)
    except msgspec.ValidationError:
        return
    texts = [text for item in response.output for text in _texts(item.content)]
    if texts:
        reply.content = Raw(string("".join(texts)))
    details = response.incomplete_details
    reply.finish_reason = details.reason if details is not None else response.status


def _texts(content: Raw) -> list[str]:
    if bytes(content)[:1] != b"[":
        return []
    try:
        parts = _read_parts(content)
    except msgspec.ValidationError:
        return []
    return [_read_text(part.text) for part in parts if part.type == _OUTPUT_TEXT and bytes(part.text)[:1] == b'"']


def _read_vectors(data: Raw, reply: Reply) -> None:
    try:
        vectors = _read_data(data)
    except msgspec.ValidationError:
        return
    vectors.sort(key=lambda vector: vector.index)
    if len(vectors) == 1:
        reply.content = vectors[0].embedding
    elif vectors:
        reply.content = Raw(b"[%b]" % b",".join(vector.embedding for vector in vectors))


def _as_string(body: bytes) -> bytes:
    return string(body.decode("utf-8", "replace"))
