"""Prompts from a template file, in Jinja: `{{ text }}`, `{% if stars < 3 %}`, `{% for item in items %}`.

Names are the row's columns; `row` has all of them, for names that Jinja cannot write: `{{ row["order id"] }}`. The
whole file is the user's message, or its blocks are messages:

    {% block system %}You label tickets.{% endblock %}
    {% block user %}{{ text }}{% endblock %}

Beside such blocks stand only what they use: `set`, `macro`, `import`. A line that holds nothing but a tag leaves no
line behind, and blanks at a message's ends are left out. A name that is no column is an error, never an empty text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batchwright.core.column_names import clip, listed
from batchwright.core.errors import UsageError
from batchwright.core.row_options import RowTemplate
from batchwright.wire.messages import Unfillable
from batchwright.wire.problems import Problem
from batchwright.wire.template_bounds import BoundedEnvironment, TooMuch

ROLES = ("system", "user")
ROW = "row"
MAX_MESSAGE_CHARS = 300
"""Of Jinja's own words: they may repeat a row's value."""

_DEFINITIONS = (nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.Import, nodes.FromImport)
_GUARDS = frozenset({"defined", "undefined", "default", "d"})
_CANNOT = "cannot be filled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    user: str
    system: str = ""


def names_of_parts(text: str, name: str) -> list[str]:
    """The templates that this one includes or imports, as they are named there.

    Raises UsageError for what cannot be read as Jinja, and where a name is not written out.
    """
    tree = _parse(ImmutableSandboxedEnvironment(), text, name)
    found = list(meta.find_referenced_templates(tree))
    if None in found:
        raise UsageError(f"{name}: the name of what is included must be written out: {{% include 'part.jinja' %}}")
    return [part for part in found if part is not None]


class JinjaTemplate:
    """A template, compiled. To be used in one thread at a time. Raises UsageError."""

    def __init__(self, template: RowTemplate, max_bytes: int) -> None:
        self._name = template.name
        self._max_bytes = max_bytes
        self._environment = BoundedEnvironment(template.parts, max_bytes)
        tree = _parse(self._environment, template.text, template.name)
        if (extends := tree.find(nodes.Extends)) is not None:
            raise self._refused(extends, "extends is not taken here; include or import what several templates share")
        trees = {role: self._tree_of(role, template.text) for role in self._roles_in(tree)}
        self._lines = _first_lines(tree)
        with _told(self._name):
            self._used = _needed(self._environment, trees.values())
            asks = any(_asked(self._environment, message) for message in trees.values())
        for name, text in template.parts.items():
            part = _parse(self._environment, text, name)
            with _told(name):
                asks |= bool(_asked(self._environment, part))
        if not asks:
            raise UsageError(
                f"{self._name} names no column, so every row would get the same prompt; "
                "a column is written {{ name }}"
            )
        self._messages = {role: self._compile(message) for role, message in trees.items()}

    @property
    def has_system(self) -> bool:
        return "system" in self._messages

    @property
    def used(self) -> frozenset[str]:
        """Names that it cannot do without."""
        return frozenset(self._used)

    def check(self, columns: Sequence[str]) -> None:
        """Raises UsageError for a name that is none of these, unless the template asks whether it is there."""
        for name in sorted(self._used - set(columns), key=lambda name: self._lines[name]):
            raise UsageError(
                f"{self._name}, line {self._lines[name]} names {clip(name)!r}, which is no column; "
                f"the input has {listed(columns)}"
            )

    def fill(self, values: Mapping[str, object]) -> Filled:
        """Raises Unfillable."""
        names = {ROW: values, **values}
        self._environment.begin()
        left = self._max_bytes
        found: dict[str, str] = {}
        for role, message in self._messages.items():
            try:
                found[role] = _joined(message.root_render_func(message.new_context(names)), left)
            except Exception as error:
                raise Unfillable(self._problem(error, tuple(values))) from error
            left -= len(found[role])
        return Filled(**{role: text.strip() for role, text in found.items()})

    # ------------------------------------------------------------------------------------------------- made once

    def _roles_in(self, tree: nodes.Template) -> list[str]:
        """Of a template without blocks the user's alone. Raises UsageError."""
        blocks = {node.name: node for node in tree.body if isinstance(node, nodes.Block)}
        for block in tree.find_all(nodes.Block):
            if block.name not in ROLES or blocks.get(block.name) is not block:
                raise self._refused(block, f"block {block.name}: expected blocks called {' and '.join(ROLES)}, apart")
        if not blocks:
            return ["user"]
        if "user" not in blocks:
            raise self._refused(blocks["system"], "there is a block called system, and none called user")
        for node in tree.body:
            if not isinstance(node, (nodes.Block, *_DEFINITIONS)) and not _is_blank(node):
                raise self._refused(node, "this stands outside of the blocks system and user, and so in no message")
        return [role for role in ROLES if role in blocks]

    def _tree_of(self, role: str, text: str) -> nodes.Template:
        """What makes this message: its block, and what is defined beside it. Parsed anew: compiling changes a tree."""
        tree = _parse(self._environment, text, self._name)
        blocks = {node.name: node for node in tree.body if isinstance(node, nodes.Block)}
        if blocks:
            tree.body = [node for node in tree.body if isinstance(node, _DEFINITIONS)] + blocks[role].body
        return tree

    def _compile(self, tree: nodes.Template) -> Template:
        with _told(self._name):
            code = self._environment.compile(tree, self._name, self._name)
        return Template.from_code(self._environment, code, self._environment.make_globals(None))

    def _refused(self, node: nodes.Node, message: str) -> UsageError:
        return UsageError(f"{self._name}, line {node.lineno}: {message}")

    # ------------------------------------------------------------------------------------------------------ faults

    def _problem(self, error: Exception, columns: Sequence[str]) -> Problem:
        place = _place_of(error.__traceback__) or self._name
        said = " ".join(str(error).split())[:MAX_MESSAGE_CHARS] or type(error).__name__
        match error:
            case UndefinedError():
                return Problem("missing_column", f"{place}: {said}; the row has the columns {listed(columns)}")
            case TooMuch() | RecursionError() | MemoryError():
                return Problem("template_too_large", f"{place}: {said}")
            case TypeError():
                hint = "a table's values are text: a number is {{ stars|int }} or {{ price|float }}"
                return Problem("template_failed", f"{place} {_CANNOT}: {said} ({hint})")
            case _:
                return Problem("template_failed", f"{place} {_CANNOT}: {said}")


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Raises UsageError for what Jinja refuses of a template."""
    try:
        yield
    except TemplateSyntaxError as error:
        raise UsageError(f"{name}, line {error.lineno}: {error.message}") from None
    except (TemplateError, RecursionError) as error:
        raise UsageError(f"{name}: {error}") from None


def _parse(environment: Environment, text: str, name: str) -> nodes.Template:
    with _told(name):
        return environment.parse(text, name, name)


def _asked(environment: BoundedEnvironment, tree: nodes.Template) -> set[str]:
    """The names that it asks the row for, `row` too."""
    return meta.find_undeclared_variables(tree) - set(environment.globals)


def _needed(environment: BoundedEnvironment, trees: Iterable[nodes.Template]) -> set[str]:
    """Of these the columns that must be there; without those of which it is asked whether they are."""
    found: set[str] = set()
    for tree in trees:
        guarded = {
            node.node.name
            for node in (*tree.find_all(nodes.Test), *tree.find_all(nodes.Filter))
            if node.name in _GUARDS and isinstance(node.node, nodes.Name)
        }
        found |= _asked(environment, tree) - guarded
    return found - {ROW}


def _first_lines(tree: nodes.Template) -> dict[str, int]:
    lines: dict[str, int] = {}
    for node in tree.find_all(nodes.Name):
        lines[node.name] = min(node.lineno, lines.get(node.name, node.lineno))
    return lines


def _is_blank(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Output) and all(
        isinstance(part, nodes.TemplateData) and not part.data.strip() for part in node.nodes
    )


def _joined(pieces: Iterator[str], most: int) -> str:
    kept: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise TooMuch(f"the prompt would be longer than a row may be ({most:,} bytes)")
        kept.append(piece)
    return "".join(kept)


def _place_of(trace: TracebackType | None) -> str:
    """`prompt.jinja, line 3`: where in a template it happened; empty: in none."""
    place = ""
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, Template):
            place = f"{template.name}, line {template.get_corresponding_lineno(trace.tb_lineno)}"
        trace = trace.tb_next
    return place
