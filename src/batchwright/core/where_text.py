"""`--where "lang == 'de' and stars >= 4"`: the text, read into a tree. What it means for a row: `core.where`.

    condition   = conjunction {"or" conjunction}
    conjunction = negation {"and" negation}
    negation    = "not" negation | "(" condition ")" | test
    test        = operand comparison operand {comparison operand}
                | operand ["not"] "in" (list | column)
                | column "is" ["not"] "null"
    comparison  = "==" | "!=" | "<" | "<=" | ">" | ">="
    operand     = number | text | "true" | "false" | ["+"] column
    list        = "(" literal {"," literal} ")", or the same in brackets

A reader of its own, and not Python's: columns are called `class` and `order id` too (the latter in backticks), words
may be written as in SQL, and each fault is told by its place. There are no calls, no attributes and no arithmetic; `+`
before a column reads its text as a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from batchwright.core.errors import UsageError

MAX_CHARS = 10_000
MAX_DEPTH = 50
"""Of parentheses and negations within each other: far above what a person writes, far below Python's own bound."""
SHOWN_CHARS = 60
"""Of the text around a fault."""

Number = int | float
Scalar = str | Number | bool


@dataclass(frozen=True, slots=True)
class Literal:
    value: Scalar


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    at: int
    """Where it stands in the text, from 0."""
    as_number: bool = False


Operand = Literal | Column


@dataclass(frozen=True, slots=True)
class Comparison:
    left: Operand
    sign: str
    right: Operand


@dataclass(frozen=True, slots=True)
class Membership:
    item: Operand
    among: tuple[Scalar, ...] | Column


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True)
class All:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    conditions: tuple[Condition, ...]


Condition = Comparison | Membership | IsNull | Not | All | Any

COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "none", "true", "false"})
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | `(?P<quoted>[^`]+)`
      | (?P<word>[^\W\d]\w*)
      | (?P<sign>==|!=|<=|>=|<>|&&|\|\||[-+()<>,=!\[\].])
      | (?P<end>$)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_MEANT = {"=": "==", "<>": "!=", "&&": "and", "||": "or", "!": "not"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`number`, `text`, `column`, `word` (one of ours, in small letters), `sign`, `end`."""
    text: str
    at: int


def read_where(text: str) -> Condition:
    """Raises UsageError, which shows the place of the fault."""
    return _Reader(text).read()


def fault(text: str, at: int, message: str) -> UsageError:
    """Names and shows the place of a fault in the text of a `--where`."""
    start = max(0, at - SHOWN_CHARS // 2)
    shown = text[start : start + SHOWN_CHARS].replace("\n", " ").replace("\t", " ")
    return UsageError(f"--where: {message} (at character {at + 1})\n    {shown}\n    {' ' * (at - start)}^")


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > MAX_CHARS:
            raise UsageError(f"--where: a condition has at most {MAX_CHARS:,} characters, this one {len(text):,}")
        self._tokens = self._cut()
        self._next = 0
        self._depth = 0

    def read(self) -> Condition:
        found = self._condition()
        if self._seen.kind != "end":
            self._refuse(f"expected and, or, or the end, found {self._shown()}")
        return found

    # ----------------------------------------------------------------------------------------------------- tokens

    def _cut(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise fault(self._text, at, _unreadable(self._text[at:]))
            kind = str(match.lastgroup)
            token = _Token(kind, match[kind], match.start(kind))
            if kind == "word" and token.text.lower() in _WORDS:
                token = _Token("word", token.text.lower(), token.at)
            elif kind in ("word", "quoted"):
                token = _Token("column", token.text, token.at)
            tokens.append(token)
            at = match.end()
        return tokens

    @property
    def _seen(self) -> _Token:
        return self._tokens[self._next]

    def _is(self, *words: str) -> bool:
        return self._seen.kind in ("word", "sign") and self._seen.text in words

    def _take(self, *words: str) -> bool:
        found = self._is(*words)
        self._next += found
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._refuse(f"expected {word}, found {self._shown()}")

    def _shown(self) -> str:
        return "the end" if self._seen.kind == "end" else f"'{self._seen.text[:40]}'"

    def _refuse(self, message: str) -> NoReturn:
        meant = _MEANT.get(self._seen.text) if self._seen.kind == "sign" else None
        raise fault(self._text, self._seen.at, f"{message}; did you mean {meant}?" if meant else message)

    # -------------------------------------------------------------------------------------------------- conditions

    def _condition(self) -> Condition:
        found = [self._conjunction()]
        while self._take("or"):
            found.append(self._conjunction())
        return found[0] if len(found) == 1 else Any(tuple(found))

    def _conjunction(self) -> Condition:
        found = [self._negation()]
        while self._take("and"):
            found.append(self._negation())
        return found[0] if len(found) == 1 else All(tuple(found))

    def _negation(self) -> Condition:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"more than {MAX_DEPTH} parentheses within each other")
        if self._take("not"):
            found: Condition = Not(self._negation())
        elif self._take("("):
            found = self._condition()
            self._expect(")")
        else:
            found = self._test()
        self._depth -= 1
        return found

    def _test(self) -> Condition:
        left = self._operand()
        if self._take("is"):
            return self._null_test(left)
        negated = self._take("not")
        if self._take("in"):
            found: Condition = Membership(left, self._among())
            return Not(found) if negated else found
        if negated:
            self._refuse(f"expected in, found {self._shown()}")
        tests: list[Condition] = []
        while self._is(*COMPARISONS):
            sign = self._seen.text
            self._next += 1
            right = self._operand()
            tests.append(Comparison(left, sign, right))
            left = right
        if not tests:
            self._refuse(f"expected a comparison ({', '.join(COMPARISONS)}, in, is null), found {self._shown()}")
        return tests[0] if len(tests) == 1 else All(tuple(tests))

    def _null_test(self, left: Operand) -> Condition:
        negated = self._take("not")
        if not self._take("null", "none"):
            self._refuse(f"expected null, found {self._shown()}; other values are compared with ==")
        if not isinstance(left, Column):
            self._refuse("expected a column before is null")
        return Not(IsNull(left)) if negated else IsNull(left)

    def _among(self) -> tuple[Scalar, ...] | Column:
        end = {"(": ")", "[": "]"}.get(self._seen.text if self._seen.kind == "sign" else "")
        if end is None:
            if self._seen.kind != "column":
                self._refuse(f"expected a list such as ('a', 'b'), or a column, found {self._shown()}")
            return self._column()
        self._next += 1
        found: list[Scalar] = []
        while not self._take(end):
            found.append(self._literal("a text or a number").value)
            if not self._take(","):
                self._expect(end)
                break
        if not found:
            self._refuse("expected something in the list")
        return tuple(found)

    # ---------------------------------------------------------------------------------------------------- operands

    def _operand(self) -> Operand:
        if self._take("+"):
            if self._seen.kind == "column":
                column = self._column()
                return Column(column.name, column.at, as_number=True)
            if self._seen.kind != "number":
                self._refuse(f"expected a column or a number, found {self._shown()}")
        if self._seen.kind == "column":
            return self._column()
        return self._literal("a column, a text or a number")

    def _column(self) -> Column:
        token = self._seen
        self._next += 1
        if self._is("("):
            self._refuse(f"'{token.text}' cannot be called: there are no functions here")
        if self._is("."):
            self._refuse("a column's value has no parts here; a name with a dot is written in backticks: `a.b`")
        return Column(token.text, token.at)

    def _literal(self, expected: str) -> Literal:
        token = self._seen
        if self._take("true", "false"):
            return Literal(token.text == "true")
        if self._take("-"):
            if self._seen.kind != "number":
                self._refuse(f"expected a number, found {self._shown()}; there is no arithmetic here")
            return Literal(-self._number())
        if token.kind == "number":
            return Literal(self._number())
        if token.kind == "text":
            self._next += 1
            return Literal(self._unescaped(token))
        if token.text in ("null", "none") and token.kind == "word":
            self._refuse("null is asked for with `is null` or `is not null`")
        self._refuse(f"expected {expected}, found {self._shown()}")

    def _number(self) -> Number:
        token = self._seen
        self._next += 1
        found = number_of(token.text)
        if found is None:
            raise fault(self._text, token.at, "a number that is out of range")
        return found

    def _unescaped(self, token: _Token) -> str:
        def plain(match: re.Match[str]) -> str:
            if match[1] not in _ESCAPES:
                raise fault(
                    self._text, token.at + 1 + match.start(), r"expected \', \", \\, \n or \t, found " + match[0]
                )
            return _ESCAPES[match[1]]

        return _ESCAPE.sub(plain, token.text[1:-1])


_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
MAX_DIGITS = 1_000
"""Of a number; longer ones are no numbers that anybody compares."""


def number_of(text: str) -> Number | None:
    """A text that is a decimal number, blanks around it or not; None for any other (`1,000`, `5 stars`, nothing)."""
    text = text.strip()
    if len(text) > MAX_DIGITS or _NUMBER.fullmatch(text) is None:
        return None
    try:
        return int(text)
    except ValueError:
        found = float(text)
        return found if abs(found) != float("inf") else None


def _unreadable(rest: str) -> str:
    match rest[:1]:
        case "'" | '"':
            return "a text that does not end: its quote is missing"
        case "`":
            return "a column's name that does not end: its backtick is missing"
        case sign if sign.isdigit():
            return "a number that goes on with letters; a column's name that begins so is written in backticks"
        case sign:
            return f"'{sign}' has no meaning here"
