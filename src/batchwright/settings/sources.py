"""Where a value came from, and the order of precedence. Every setting that a place gave carries its `Source`.

    command line  >  environment  >  .env  >  project file  >  user file  >  default

The same order decides where a key may go (`settings.endpoints`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Origin(IntEnum):
    """A higher one wins."""

    USER_FILE = 1
    PROJECT_FILE = 2
    DOTENV = 3
    ENVIRONMENT = 4
    COMMAND_LINE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    origin: Origin
    name: str
    """What it is called there: `--base-url`, `OPENAI_API_KEY`, `base_url`, `[vendors.groq] base_url`."""
    file: str = ""
    """Path of the file, for `.env` and the two settings files."""

    def __str__(self) -> str:
        match self.origin:
            case Origin.COMMAND_LINE:
                return f"the command line ({self.name})"
            case Origin.ENVIRONMENT:
                return f"the environment ({self.name})"
            case Origin.DOTENV:
                return f"{self.file} ({self.name})"
            case Origin.PROJECT_FILE:
                return f"the project file {self.file} ({self.name})"
            case Origin.USER_FILE:
                return f"the user file {self.file} ({self.name})"


@dataclass(frozen=True, slots=True)
class Sourced(Generic[T]):
    value: T
    source: Source
