"""Jinja with bounds: a template may compute what it likes, and neither leave its sandbox nor run on for ever.

What is counted are steps, of one rendering: turns of loops, calls, elements that a filter is given. A count and no
clock, so that a row which can be filled today can be filled tomorrow, on a slower machine. Whatever joins or multiplies
texts looks at the size of what would come out first. Nothing here reads a file, and nothing is left to chance: the
same row gives the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from jinja2 import DictLoader, StrictUndefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

STEPS_MAX = 1_000_000
"""Of one rendering; about a second. A loop over a row's own list is a thousandth of it."""
POWER_BITS_MAX = 100_000
"""Of a number that `**` makes: 30,000 digits."""
WIDTH_MAX = 1_000_000
"""That something is padded to."""

_PADDING = frozenset({"center", "indent", "batch", "slice", "format", "wordwrap", "tojson"})
"""Filters with an argument that says how large a thing is to be made."""
_PADDING_METHODS = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})
_WIDE = re.compile(r"%[^a-z%]*\d{7}")
"""In a text that says how something is to be written: such a width."""


class TooMuch(SecurityError):
    """A rendering that would be too large or too long."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Of one set of templates, for one thread at a time. `begin` comes before each rendering."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    """Not computed when a template is compiled either."""

    def __init__(self, templates: Mapping[str, str], max_chars: int) -> None:
        super().__init__(
            undefined=StrictUndefined,
            loader=DictLoader(dict(templates)),
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._max_chars = max_chars
        self._left = STEPS_MAX
        self.filters = {name: self._bounded(name, call) for name, call in self.filters.items() if name != "random"}
        self.filters["_counted"] = self._counted
        self.filters["_joined"] = self._joined
        del self.globals["lipsum"]  # chance
        self.globals["range"] = self._range
        self.concat = self._joined  # type: ignore[method-assign]  # what macros and blocks join their pieces with

    def begin(self) -> None:
        self._left = STEPS_MAX

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "*":
                for sequence, times in ((left, right), (right, left)):
                    if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
                        self._check_size(len(sequence) * times)
                if isinstance(left, int) and isinstance(right, int):
                    _check_bits(left.bit_length() + right.bit_length())
            case "**" if isinstance(left, int) and isinstance(right, int):
                _check_bits(left.bit_length() * max(0, right))
            case "+" if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
                self._check_size(len(left) + len(right))
            case "%" if isinstance(left, str):
                _check_widths(left, right if isinstance(right, tuple) else (right,))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as there)
        __self._step(1)
        if getattr(__obj, "__name__", "") in _PADDING_METHODS and isinstance(getattr(__obj, "__self__", None), str):
            _check_widths(*args)
        return super().call(__context, __obj, *args, **kwargs)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Bounding(self).visit(source), *args, **kwargs)

    def _bounded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        pads = name in _PADDING

        @wraps(call)  # takes along what says that it wants the context first
        def bounded(*args: Any, **kwargs: Any) -> Any:
            for value in args:
                if isinstance(value, list | tuple | dict | range):
                    self._step(len(value))
            if pads:
                _check_widths(*args, *kwargs.values())
            return call(*args, **kwargs)

        return bounded

    def _step(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooMuch(f"more than {STEPS_MAX:,} steps (turns of loops, and calls) for one row")

    def _range(self, *bounds: int) -> range:
        found = range(*bounds)
        try:
            self._step(len(found))
        except OverflowError:
            self._step(STEPS_MAX + 1)
        return found

    def _counted(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._step(1)
            yield value

    def _joined(self, parts: Iterable[Any]) -> str:
        found = [str(part) for part in parts]
        self._check_size(sum(map(len, found)))
        return "".join(found)

    def _check_size(self, size: int) -> None:
        if size > self._max_chars:
            raise TooMuch(f"a text or list of {size:,}; a row may have at most {self._max_chars:,} bytes")


class _Bounding(NodeTransformer):
    """Loops count their turns, and `~` looks at the size of what it joins."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 (the visitor's way)
        self.generic_visit(node)
        node.iter = self._through("_counted", node.iter)  # type: ignore[arg-type]  # always an expression
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return self._through("_joined", nodes.List(node.nodes, lineno=node.lineno))

    def _through(self, name: str, node: nodes.Expr) -> nodes.Filter:
        found = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
        found.set_environment(self._environment)
        return found


def _check_bits(bits: int) -> None:
    if bits > POWER_BITS_MAX:
        raise TooMuch(f"a number of {bits:,} bits")


def _check_widths(*values: Any) -> None:
    for value in values:
        wide = value > WIDTH_MAX if isinstance(value, int) else isinstance(value, str) and _WIDE.search(value)
        if wide:
            raise TooMuch(f"a width of {str(value)[:40]}")
