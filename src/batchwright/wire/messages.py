"""What a row of columns becomes: the messages of a chat, from `--prompt` and `--system`, or from a template file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from batchwright.core.errors import UsageError
from batchwright.core.row_options import RowOptions
from batchwright.wire.json_text import string
from batchwright.wire.template import Template

if TYPE_CHECKING:
    from batchwright.wire.jinja_template import JinjaTemplate


class MessageMaker:
    """For rows that have these columns. Raises UsageError for a template that names another one."""

    def __init__(self, options: RowOptions, columns: Sequence[str], jinja: JinjaTemplate | None) -> None:
        self._jinja = jinja
        self._prompt = Template(options.prompt, columns) if jinja is None else None
        self._system = Template(options.system, columns, option="--system", constant=True) if options.system else None
        if jinja is not None:
            jinja.check(columns)

    def make(self, columns: Mapping[str, str], values: Mapping[str, object]) -> bytes:
        """A JSON array. `values` are what the columns are before they are text. Raises Unfillable."""
        system = self._system.fill(columns) if self._system is not None else ""
        if self._jinja is not None:
            filled = self._jinja.fill(values)
            return messages(filled.user, filled.system or system)
        assert self._prompt is not None
        return messages(self._prompt.fill(columns), system)


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


def messages(prompt: str, system: str) -> bytes:
    head = b'{"role":"system","content":' + string(system) + b"}," if system else b""
    return b"[" + head + b'{"role":"user","content":' + string(prompt) + b"}]"
