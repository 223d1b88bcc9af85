"""How many tokens a text has, without a tokenizer: a ratio of bytes to tokens by kind of text, and how far off it is.

    kind                                             one token is about      least .. most, of the likely number
    ASCII letters and blanks (words)                 4.6 bytes               0.80 .. 1.25
    other ASCII (digits, punctuation, code)          1.9 bytes               0.60 .. 1.50
    characters of two bytes (Cyrillic, accents ...)  1.9 characters          0.60 .. 1.50
    characters of three bytes (Chinese, Hindi ...)   1.15 characters         0.60 .. 1.60
    characters of four bytes (emoji ...)             half a character        0.50 .. 1.50
    a message                                        4 tokens beside it      0.75 .. 2.00
    an image                                         765 tokens              0.11 .. 2.00

Between today's tokenizers the number of one text differs by less than that. What earlier answers of a model showed goes
before it (`Learned`): the vendor's own count of rows whose text was guessed in this very way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WORDS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1)) + b" \n"
TWO_BYTES, THREE_BYTES, FOUR_BYTES = bytes(range(0xC2, 0xE0)), bytes(range(0xE0, 0xF0)), bytes(range(0xF0, 0xF5))
"""First bytes of a character's UTF-8."""


class Kind(NamedTuple):
    tokens: float
    """Of one unit of it, likely."""
    least: float
    most: float


WORD_KIND = Kind(1 / 4.6, 0.80, 1.25)
SYMBOL_KIND = Kind(1 / 1.9, 0.60, 1.50)
TWO_KIND = Kind(1 / 1.9, 0.60, 1.50)
THREE_KIND = Kind(1 / 1.15, 0.60, 1.60)
FOUR_KIND = Kind(2.0, 0.50, 1.50)
MESSAGE_KIND = Kind(4.0, 0.75, 2.00)
IMAGE_KIND = Kind(765.0, 0.11, 2.00)
LEARNED_MIN_ROWS = 20
LEARNED_SPREAD = 0.10
"""What a learned ratio may be off by: the texts of another file are not those it was learned from."""


class TokenGuess(NamedTuple):
    low: float
    likely: float
    high: float

    def plus(self, other: TokenGuess) -> TokenGuess:
        return TokenGuess(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def scaled(self, ratio: float, spread: float) -> TokenGuess:
        likely = self.likely * ratio
        return TokenGuess(likely * (1 - spread), likely, likely * (1 + spread))


NOTHING = TokenGuess(0.0, 0.0, 0.0)


@dataclass(slots=True, kw_only=True)
class Learned:
    """What answers of one model at one vendor showed so far."""

    rows: int = 0
    guessed_tokens: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, guessed: float, prompt_tokens: int, completion_tokens: int) -> None:
        self.rows += 1
        self.guessed_tokens += guessed
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

    @property
    def ratio(self) -> float:
        """Tokens for one that was guessed; 0.0: not enough answers to say."""
        return self.prompt_tokens / self.guessed_tokens if self.says_something else 0.0

    @property
    def output_tokens(self) -> float:
        """Of an answer, on average; 0.0: not enough answers to say."""
        return self.completion_tokens / self.rows if self.says_something else 0.0

    @property
    def says_something(self) -> bool:
        return self.rows >= LEARNED_MIN_ROWS and self.guessed_tokens > 0


def guess_tokens(text: bytes) -> TokenGuess:
    """Of a text in UTF-8."""
    size = len(text)
    words = size - len(text.translate(None, WORDS))
    found = _of(WORD_KIND, words)
    if text.isascii():
        return found.plus(_of(SYMBOL_KIND, size - words))
    two, three, four = (size - len(text.translate(None, leads)) for leads in (TWO_BYTES, THREE_BYTES, FOUR_BYTES))
    symbols = size - words - 2 * two - 3 * three - 4 * four
    for kind, count in ((SYMBOL_KIND, symbols), (TWO_KIND, two), (THREE_KIND, three), (FOUR_KIND, four)):
        found = found.plus(_of(kind, count))
    return found


def guess_around(messages: int, images: int) -> TokenGuess:
    """What stands around the texts of a request, and its images."""
    return _of(MESSAGE_KIND, messages).plus(_of(IMAGE_KIND, images))


def exactly(tokens: int) -> TokenGuess:
    """Of an input that is tokens already."""
    return TokenGuess(tokens, tokens, tokens)


def _of(kind: Kind, count: int) -> TokenGuess:
    likely = count * kind.tokens
    return TokenGuess(likely * kind.least, likely, likely * kind.most)
