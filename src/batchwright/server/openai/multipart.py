"""A form with a file in it, read as it arrives: the file's bytes go on to an upload, nothing is kept in memory.

python-multipart's callbacks are called while a piece of the body is parsed; what they note of the file is written to
the upload before the next piece is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from batchwright.ports.file_batches import Upload
from batchwright.server.bodies import BodyLimits, stream_body
from batchwright.server.faults import Fault

if TYPE_CHECKING:  # it exists for type checkers alone
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 32
MAX_VALUE_BYTES = 4096
"""Of a field that is no file."""
MAX_FILENAME_CHARS = 255
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


class Form:
    """What was read of one form."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        """None: no file came."""
        self.ended = False
        self._parts = 0
        self._header_name, self._header_value = bytearray(), bytearray()
        self._name = ""
        self._is_file = False
        self._value = bytearray()
        self._file_data: list[bytes] = []

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_header_field": self._header_field,
            "on_header_value": self._header_text,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_end": self._all,
        }

    def take_file_data(self) -> list[bytes]:
        taken, self._file_data = self._file_data, []
        return taken

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise _bad(f"The form has more than {MAX_PARTS} parts.")
        self._name, self._is_file = "", False
        self._value.clear()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _header_text(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header_end(self) -> None:
        name, value = bytes(self._header_name).lower(), self._header_value.decode("latin-1")
        self._header_name.clear()
        self._header_value.clear()
        if name != b"content-disposition":
            return
        _, options = parse_options_header(value)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        self._is_file = self._name == "file"
        if self._is_file:
            if self.filename is not None:
                raise _bad("The form has two fields named file; expected one.", "file")
            self.filename = _filename(options.get(b"filename", b"").decode("utf-8", "replace"))

    def _headers_end(self) -> None:
        if not self._name:
            raise _bad("A part of the form has no name.")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._file_data.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_VALUE_BYTES:
            raise _bad(f"The field {self._name[:40]!r} has more than {MAX_VALUE_BYTES:,} bytes.", self._name[:40])

    def _end(self) -> None:
        if not self._is_file:
            self.fields[self._name] = self._value.decode("utf-8", "replace")

    def _all(self) -> None:
        self.ended = True


async def read_form(request: Request, upload: Upload, limits: BodyLimits) -> Form:
    """Reads the whole form; its file is in `upload` then. Raises Fault, as `bodies.stream_body`, and for a form that is
    broken or has no file."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data":
        raise Fault(
            "UNSUPPORTED_MEDIA_TYPE", "A file is uploaded as multipart/form-data with the fields file and purpose."
        )
    if not boundary:
        raise _bad("The Content-Type names no boundary.")
    form = Form()
    try:
        parser = MultipartParser(boundary, form.callbacks())
        async for piece in stream_body(request, limits):
            parser.write(piece)
            for data in form.take_file_data():
                await upload.write(data)
        parser.finalize()
    except FormParserError as error:
        raise _bad(f"The form is broken: {error}"[:200]) from None
    if not form.ended:
        raise _bad("The form ends before its last boundary.")
    if form.filename is None:
        raise _bad("The form has no field file.", "file")
    return form


def _filename(text: str) -> str:
    """Without a folder: it is a label, and never becomes a path here."""
    name = _UNPRINTABLE.sub("", re.split(r"[/\\]", text)[-1])[:MAX_FILENAME_CHARS]
    return name or "upload.jsonl"


def _bad(message: str, param: str = "") -> Fault:
    return Fault("INVALID_REQUEST", message, hint="Nothing was kept.", param=param)
