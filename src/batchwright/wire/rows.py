"""One line of a rows file -> a `SourceRow`: what is to be sent, or everything that is wrong with it.

The shapes that are understood, by what stands at the top of the object:

    body                 an OpenAI batch line (custom_id, method, url, body) or an item of Infrai's batch API
                         (capability, body); only the body is a must
    messages             a chat body on its own; a custom_id in it is ours and is taken out
    prompt (a string)    a chat body whose messages are written as `prompt`, and `system` if there is one; whatever else
                         it has belongs to the body
    with --prompt, or    any object without messages or body: its fields are the template's columns, and nothing else of
    --template-file      it is sent

A line that is none of these but has a field that could be meant (`text`, `question`, ...) is refused with the
`--prompt` that would do it: guessing which field is the question would spend money on a misunderstanding.

A body is forwarded byte for byte unless something has to change in it: a model or a parameter that it lacks is filled
in, a vendor's prefix is taken off its model name, our custom_id is taken out of a flat body. Then the body is written
anew from its fields, each with the bytes it had. Half surrogates become U+FFFD.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from batchwright.core.column_names import clip, listed
from batchwright.core.endpoints import CHAT, BadEndpoint, normal_endpoint
from batchwright.core.errors import Finding, UsageError
from batchwright.core.records import InputRow, RowFile
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import LeftOut, SourceRow
from batchwright.core.where import Where
from batchwright.wire.endpoint_bodies import BODIES, OTHER
from batchwright.wire.json_text import BOM, kind_of, mend_surrogates, read_value
from batchwright.wire.messages import MessageMaker, Unfillable, messages, open_template, pictures
from batchwright.wire.problems import Problem, nested_too_deeply
from batchwright.wire.row_checks import BodyFacts, explain_body, read_body
from batchwright.wire.row_shapes import (
    MAX_CUSTOM_ID_CHARS,
    Parts,
    as_text,
    encode,
    long_custom_id,
    open_object,
    read_custom_id,
    read_fields,
    read_string,
    take_apart,
    text_field,
    without,
)
from batchwright.wire.row_targets import Targets
from batchwright.wire.schema_fields import SchemaFields

KEPT_LINE_BYTES = 4096
"""So much of a refused line is kept, for people to recognise it."""
_MAX_TEMPLATES = 10_000
"""Remembered, by a row's columns; a file with more distinct ones only pays for making them again."""

_ABSENT = Raw(b"")
_BRACE = ord("{")
_BACKSLASH = ord("\\")
_BODY = b'"body":'
_BLANKS = b" \t\r\n"


class _Line(msgspec.Struct, gc=False):
    """The top of a line, whatever its shape. `Raw | None` would refuse strings, hence the marker."""

    body: Raw = _ABSENT
    custom_id: str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | None = None
    url: str | None = None
    capability: Raw = _ABSENT
    messages: Raw = _ABSENT
    prompt: Raw = _ABSENT


_read_line = msgspec.json.Decoder(_Line).decode


class RowDecoder:
    """Decodes the lines of one file. Keeps the endpoint of its first row, which later rows must share.

    Raises UsageError when it is made, if the options cannot be right for any row.
    """

    def __init__(self, options: RowOptions) -> None:
        params = dict(options.params)
        stream = params.get("stream")
        if stream is not None and stream is not False:
            raise UsageError(f"--param stream={stream}: rows of a batch are answered whole; leave it out")
        if "messages" in params:
            raise UsageError("--param cannot set messages; use --prompt and --system, or write them in the rows")
        if (options.where or options.select or options.images) and not options.makes_prompts:
            raise UsageError(
                "--where, --select and --image are for columns, and these rows are requests as they are; "
                "give --prompt or --template-file, which make requests of columns"
            )
        model = params.pop("model", "")
        if not isinstance(model, str):
            raise UsageError(f"--param model must be a name, got {model!r}")
        for option, text in (("-m", options.model), ("--prompt", options.prompt), ("--system", options.system)):
            _check_utf8(option, text)
        self._needs_ids = bool(options.attached)
        self._options = options
        self._from_columns = options.makes_prompts
        self._templated = self._from_columns or bool(options.system)
        self._jinja = open_template(options)
        self._model = options.model or model
        self._params: dict[str, Raw] = {name: _param(name, value) for name, value in params.items()}
        self._endpoint_params: dict[str, dict[str, Raw]] = {}
        """As they are called at an endpoint; filled as rows name it."""
        self._targets = Targets(options.destinations, options.routes)
        self._where = Where(options.where) if options.where else None
        self._typed = self._jinja is not None or self._where is not None
        """Values that are no text are asked for."""
        self._makers: dict[tuple[str, ...], MessageMaker] = {}
        self._schema = SchemaFields(options) if options.answers is not None else None
        self._url = ""
        self._url_endpoint = ""
        self.endpoint = ""
        """The first row's; empty before there is one."""

    def decode(self, line: bytes, number: int) -> SourceRow:
        """One line, without its line end. Never raises: what cannot be read is a finding."""
        if not line.isascii():
            line = line.removeprefix(BOM)
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return self.refuse(line, number, [_not_utf8(line, error)])
        line = line.strip()
        if self._from_columns:
            return self._decode_columns(line, number)
        if line.endswith(b"}}") and not self._templated:
            row = self._decode_in_two(line, number)
            if row is not None:
                return row
        try:
            top = _read_line(line)
        except (msgspec.DecodeError, RecursionError):
            mended = mend_surrogates(line)
            return self.decode(mended, number) if mended != line else self._explain(line, number)
        body = bytes(top.body)
        if not body:
            return self._decode_flat(line, number, top)
        endpoint = self._endpoint_of(top)
        if body[0] != _BRACE or not endpoint or self._templated:
            return self._explain(line, number)
        return self._build(Parts(body, top.custom_id or None, endpoint), number, line)

    def fill_template(
        self,
        columns: Mapping[str, str],
        number: int,
        custom_id: str | None = None,
        *,
        values: Mapping[str, object] | None = None,
    ) -> SourceRow:
        """A row of a table: the templates filled from its columns, which are kept beside it. `values`: what these are
        before they are text, where they are more (JSON's numbers, lists, null), for a template file.

        Raises UsageError for a template or a condition that names a column which is not there.
        """
        maker = self.find_templates(tuple(columns))
        if self._where is not None:
            holds = self._where.holds(columns if values is None else values, texts=values is None)
            if not holds:
                number = number if self._options.in_lines else 0
                why = LeftOut.UNKNOWN if holds is None else LeftOut.UNTRUE
                return SourceRow(row=InputRow(body=b"", line=number), left_out=why)
        urls: list[str] = []
        files: tuple[RowFile, ...] = ()
        try:
            if self._options.images is not None:
                urls, files = pictures(self._options.images, columns)
            made = maker.make(columns, columns if values is None else values, urls)
        except Unfillable as error:
            kept = self.kept(columns)
            return self.refuse(kept, number, [error.problem], custom_id=custom_id, columns=kept)
        body = b'{"messages":' + made + b"}"
        source = self._build(Parts(body, custom_id, CHAT, self.kept(columns)), number, body)
        if files and source.finding is None:
            source.row.files = files
            if source.row.sent_bytes > self._options.max_row_bytes:
                problem = _too_large(source.row.sent_bytes, self._options.max_row_bytes)
                return self.refuse(body, number, [problem], custom_id=custom_id, columns=source.row.columns)
        return source

    def kept(self, columns: Mapping[str, str]) -> bytes:
        """The columns as they stay beside the row: all of them, or those of --select."""
        select = self._options.select
        return encode({name: columns[name] for name in select if name in columns} if select else columns)

    def check_columns(self, names: tuple[str, ...]) -> None:
        """Raises UsageError where something names a column that is none of these, and no row has another."""
        if self._where is not None:
            self._where.check(names, all_there=True)
        self.check_select(names)
        self.find_templates(names)

    def check_select(self, names: tuple[str, ...]) -> None:
        """Raises UsageError for a selected column that is none of these."""
        for name in self._options.select:
            if name not in names:
                raise UsageError(f"--select: there is no column {clip(name)!r}; the input has {listed(names)}")

    def find_templates(self, names: tuple[str, ...]) -> MessageMaker:
        """What makes the messages of rows with these columns. Raises UsageError for a name that such a row lacks."""
        found = self._makers.get(names)
        if found is None:
            if self._where is not None:
                self._where.check(names, all_there=False)
            found = MessageMaker(self._options, names, self._jinja)
            if len(self._makers) >= _MAX_TEMPLATES:
                self._makers.clear()
            self._makers[names] = found
        return found

    def refuse(
        self,
        line: bytes,
        number: int,
        problems: list[Problem],
        *,
        custom_id: str | None = None,
        columns: bytes = b"",
    ) -> SourceRow:
        """A row that cannot be sent, for at least one reason."""
        number = number if self._options.in_lines else 0
        findings = [
            Finding(line=number, code=problem.code, message=problem.message, param=problem.param)
            for problem in problems
        ]
        row = InputRow(body=line[:KEPT_LINE_BYTES], custom_id=custom_id, columns=columns, line=number)
        return SourceRow(row=row, finding=findings[0], also=tuple(findings[1:]))

    # ------------------------------------------------------------------------------------------------- the shapes

    def _decode_in_two(self, line: bytes, number: int) -> SourceRow | None:
        """A sound line whose last field is the body, as nearly all are; None for any other, to be decoded as a whole.

        Decoding the whole reads the body twice: to find its end, and for its facts. Here what stands before the body is
        decoded, with null in the body's place, then the body. Both are checked fully, and together they are the line:
        an unescaped `"body":` after which `null}` completes an object is a key of that very object.
        """
        at = line.find(_BODY)
        if at < 0 or line[at - 1] == _BACKSLASH:
            return None
        start = at + len(_BODY)
        try:
            top = _read_line(line[:start] + b"null}")
        except (msgspec.DecodeError, RecursionError):
            return None
        endpoint = self._endpoint_of(top)
        if not endpoint:
            return None
        body = line[start:-1].strip(_BLANKS)
        facts = read_body(body, endpoint)
        if facts is None:
            return None
        return self._build(Parts(body, top.custom_id or None, endpoint, facts=facts), number, line)

    def _endpoint_of(self, top: _Line) -> str:
        """Empty: that has to be looked at slowly, or cannot be sent."""
        if top.capability is not _ABSENT or (top.method is not None and top.method != "POST"):
            return ""
        if top.url is None:
            return CHAT
        return self._url_endpoint if top.url == self._url else self._read_url(top.url)

    def _decode_flat(self, line: bytes, number: int, top: _Line) -> SourceRow:
        """No body inside: the line is the body, or is to become one."""
        if top.url is not None or top.method is not None or bytes(top.capability):
            return self._explain(line, number)
        if bytes(top.messages):
            if self._templated:
                return self._explain(line, number)
            body = line if top.custom_id is msgspec.UNSET else without(line, "custom_id")
            return self._build(Parts(body, top.custom_id or None), number, line)
        if bytes(top.prompt)[:1] != b'"':
            return self._explain(line, number)
        fields = read_fields(line)
        fields.pop("custom_id", None)
        system = self._options.system
        if kind_of(bytes(fields.get("system", b""))) == "string":
            system = text_field(fields, "system")
            del fields["system"]
        asked = Raw(messages(read_string(fields.pop("prompt")), system))
        return self._build(Parts(encode({"messages": asked} | fields), top.custom_id or None), number, line)

    def _decode_columns(self, line: bytes, number: int) -> SourceRow:
        """With --prompt or --template-file: an object whose fields are the template's columns."""
        fields, problem = open_object(line)
        if problem is not None:
            mended = mend_surrogates(line)
            return self._decode_columns(mended, number) if mended != line else self.refuse(line, number, [problem])
        if kind_of(bytes(fields.get("body", b""))) == "object" or "messages" in fields:
            return self._explain(line, number)
        problems: list[Problem] = []
        custom_id = read_custom_id(fields, problems)
        columns = {name: as_text(value) for name, value in fields.items()}
        if not problems:
            try:
                values = {name: read_value(value) for name, value in fields.items()} if self._typed else None
                return self.fill_template(columns, number, custom_id, values=values)
            except UsageError as error:
                problems.append(Problem("missing_column", str(error)))
            except RecursionError:
                problems.append(nested_too_deeply(""))
        return self.refuse(line, number, problems, custom_id=custom_id, columns=self.kept(columns))

    def _explain(self, line: bytes, number: int) -> SourceRow:
        """Every fault of a line, or its row after all where the shape is merely rare."""
        parts, problems = take_apart(line)
        if parts.body and self._templated:
            problems.append(_not_applicable())
        if not problems:
            return self._build(parts, number, line)
        if parts.body and parts.endpoint:
            facts, more = explain_body(parts.body, parts.endpoint)
            problems += more + self._check_endpoint(parts.endpoint)
            if self._targets.find(facts.model or self._model, number) is None:
                problems.append(self._targets.unroutable(facts.model or self._model))
        return self.refuse(line, number, problems, custom_id=parts.custom_id)

    # ------------------------------------------------------------------------------------------------ building a row

    def _build(self, parts: Parts, number: int, line: bytes) -> SourceRow:
        problems: list[Problem] = []
        body, endpoint, custom_id = parts.body, parts.endpoint, parts.custom_id
        facts = parts.facts or read_body(body, endpoint)
        if facts is None:
            facts, problems = explain_body(body, endpoint)
        if self._needs_ids and custom_id is None:
            problems.append(
                Problem("missing_custom_id", "the row has no custom_id, by which its answer would be found")
            )
        model = facts.model or self._model
        target = self._targets.find(model, number)
        if target is None:
            problems.append(self._targets.unroutable(model))
        elif not problems and (self._params or target.model != facts.model):
            body, facts = self._fill(body, target.model, facts, endpoint)
        if self._schema is not None and target is not None and not problems:
            body, problems = self._schema.add(body, endpoint, target)
        if self.endpoint != endpoint:
            problems += self._check_endpoint(endpoint)
        if custom_id is not None and len(custom_id) > MAX_CUSTOM_ID_CHARS:
            problems.append(long_custom_id(custom_id))
            custom_id = custom_id[:MAX_CUSTOM_ID_CHARS]
        if problems or target is None:
            return self.refuse(line, number, problems, custom_id=custom_id, columns=parts.columns)
        row = InputRow(
            body=body,
            custom_id=custom_id,
            model=target.model,
            endpoint=endpoint,
            output_tokens=facts.output_tokens,
            columns=parts.columns,
            line=number if self._options.in_lines else 0,
            model_prefix=target.prefix,
            route=target.route,
        )
        return SourceRow(row=row, lane=target.lane)

    def _fill(self, body: bytes, model: str, facts: BodyFacts, endpoint: str) -> tuple[bytes, BodyFacts]:
        """The body with what it lacks. Its own fields keep their bytes; nothing it has is replaced but a prefix."""
        fields = read_fields(body)
        missing = {name: value for name, value in self._params_at(endpoint).items() if not _has(fields, name)}
        if model != facts.model:
            missing["model"] = Raw(encode(model))
        if not missing:
            return body, facts
        body = encode(fields | missing)
        return body, read_body(body, endpoint) or explain_body(body, endpoint)[0]

    def _params_at(self, endpoint: str) -> dict[str, Raw]:
        """The bound of output has another name at some endpoints, and none where there is no output to bound."""
        found = self._endpoint_params.get(endpoint)
        if found is None:
            name = BODIES.get(endpoint, OTHER).bound_name
            found = {name if given == OTHER.bound_name else given: value for given, value in self._params.items()}
            found.pop("", None)
            self._endpoint_params[endpoint] = found
        return found

    def _read_url(self, url: str) -> str:
        """Empty for what is no endpoint."""
        try:
            endpoint = normal_endpoint(url)
        except BadEndpoint:
            return ""
        self._url, self._url_endpoint = url, endpoint
        return endpoint

    def _check_endpoint(self, endpoint: str) -> list[Problem]:
        if not self.endpoint:
            self.endpoint = endpoint
        if endpoint == self.endpoint or self._options.mixed_endpoints:
            return []
        return [
            Problem(
                "url_mismatch",
                f"endpoint '{endpoint}', but the first row's is '{self.endpoint}'; "
                "one file has one endpoint unless --mixed-endpoints is given",
                "url",
            )
        ]


def _check_utf8(option: str, text: str) -> None:
    """Raises UsageError for bytes of a command line that are no text: no body can hold them."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{option}: expected text in UTF-8, found another byte at position {error.start + 1} of {text!r}"
        ) from None


def _param(name: str, value: object) -> Raw:
    _check_utf8("--param", name)
    try:
        return Raw(encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"--param {name}: {value!r} cannot be written as JSON in UTF-8: {error}") from None


_SAME_BOUND = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})


def _has(fields: dict[str, Raw], name: str) -> bool:
    """Whether a body has a parameter; the names of the output bound are one, and no vendor takes two of them."""
    return name in fields or (name in _SAME_BOUND and not _SAME_BOUND.isdisjoint(fields))


def _too_large(size: int, most: int) -> Problem:
    return Problem("row_too_large", f"with its pictures the row has {size:,} bytes; a row may have at most {most:,}")


def _not_applicable() -> Problem:
    return Problem(
        "template_not_applicable",
        "the row has messages or a body of its own; --prompt, --template-file and --system are for tables and rows of "
        "plain columns",
    )


def _not_utf8(line: bytes, error: UnicodeDecodeError) -> Problem:
    return Problem(
        "invalid_utf8",
        f"not UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1}; "
        "save the file as UTF-8 (iconv -f WINDOWS-1252 -t UTF-8)",
    )
