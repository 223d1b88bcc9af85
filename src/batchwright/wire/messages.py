"""What a row of columns becomes: the messages of a chat, from `--prompt` and `--system`, or from a template file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from batchwright.core.column_names import clip, listed
from batchwright.core.errors import UsageError
from batchwright.core.records import RowFile
from batchwright.core.row_options import Images, RowOptions
from batchwright.wire.images import is_url
from batchwright.wire.json_text import string
from batchwright.wire.problems import Problem
from batchwright.wire.template import Template

if TYPE_CHECKING:
    from batchwright.wire.jinja_template import JinjaTemplate


class Unfillable(Exception):
    """A row that no request can be made of."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class MessageMaker:
    """For rows that have these columns. Raises UsageError for a template that names another one."""

    def __init__(self, options: RowOptions, columns: Sequence[str], jinja: JinjaTemplate | None) -> None:
        self._jinja = jinja
        self._prompt = Template(options.prompt, columns) if jinja is None else None
        self._system = Template(options.system, columns, option="--system", constant=True) if options.system else None
        if jinja is not None:
            jinja.check(columns)
        for name in options.images.columns if options.images is not None else ():
            if name not in columns:
                raise UsageError(f"--image: there is no column {clip(name)!r}; the input has {listed(columns)}")

    @property
    def used(self) -> frozenset[str]:
        """The columns that it names; of a template file those that it cannot do without."""
        texts = (self._prompt, self._system)
        found = {name for text in texts if text is not None for name in text.columns}
        return frozenset(found if self._jinja is None else found | self._jinja.used)

    def make(self, columns: Mapping[str, str], values: Mapping[str, object], urls: Sequence[str] = ()) -> bytes:
        """A JSON array. `values` are what the columns are before they are text, `urls` pictures. Raises Unfillable."""
        system = self._system.fill(columns) if self._system is not None else ""
        if self._jinja is not None:
            filled = self._jinja.fill(values)
            return messages(filled.user, filled.system or system, urls)
        assert self._prompt is not None
        return messages(self._prompt.fill(columns), system, urls)


def open_template(options: RowOptions) -> JinjaTemplate | None:
    """The template of these options, compiled. Raises UsageError."""
    if options.template is None:
        return None
    from batchwright.wire.jinja_template import JinjaTemplate  # a tenth of a second, for those who use it

    jinja = JinjaTemplate(options.template, options.max_row_bytes)
    if options.prompt:
        raise UsageError("--prompt and --template-file both say what is asked: give one of them")
    if options.system and jinja.has_system:
        raise UsageError(f"--system: {options.template.name} has a block called system; give one of them")
    return jinja


def pictures(images: Images, columns: Mapping[str, str]) -> tuple[list[str], tuple[RowFile, ...]]:
    """The URLs of a row's pictures, in the order of the columns, and the files that some of them stand for. An empty
    column has none. Raises Unfillable, also where all are empty."""
    urls: list[str] = []
    files: list[RowFile] = []
    for name in images.columns:
        value = columns.get(name, "").strip()
        if not value:
            continue
        if is_url(value):
            urls.append(value)
            continue
        found = images.look(value)
        if isinstance(found, str):
            raise Unfillable(Problem("image_unusable", found, name))
        urls.append(found.reference)
        files.append(found)
    if not urls:
        names = listed(images.columns)
        raise Unfillable(Problem("image_unusable", f"the row has no picture: {names} is empty", images.columns[0]))
    return urls, tuple(files)


def messages(prompt: str, system: str, urls: Sequence[str] = ()) -> bytes:
    head = b'{"role":"system","content":' + string(system) + b"}," if system else b""
    content = string(prompt)
    if urls:
        parts = [b'{"type":"image_url","image_url":{"url":%b}}' % string(url) for url in urls]
        content = b'[{"type":"text","text":%b},%b]' % (content, b",".join(parts))
    return b"[" + head + b'{"role":"user","content":' + content + b"}]"
