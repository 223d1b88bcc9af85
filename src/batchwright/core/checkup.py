"""What `batchwright check` says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Rows may well go through; something could not be verified, or will be missed later (a price)."""
    ERROR = "error"
    """Rows that go this way fail, or wait for somebody to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    verdict: Verdict
    subject: str
    """What was looked at: `vendor house`, `route fast`, `state folder`."""
    found: str
    """Of a vendor: with its own words, bounded, and never with a key."""
    expected: str = ""
    remedy: str = ""
    """What to do; may have several lines. Empty where nothing is to be done."""


def passed(subject: str, found: str) -> Checked:
    return Checked(verdict=Verdict.OK, subject=subject, found=found)


def failed(subject: str, found: str, expected: str, *, remedy: str) -> Checked:
    return Checked(verdict=Verdict.ERROR, subject=subject, found=found, expected=expected, remedy=remedy)


def warned(subject: str, found: str, expected: str, *, remedy: str) -> Checked:
    return Checked(verdict=Verdict.WARNING, subject=subject, found=found, expected=expected, remedy=remedy)
