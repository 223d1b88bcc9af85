"""Locks that end with their holder: the proof, on one machine, that a worker or a run is alive.

A lock is held by a process, not by a row somewhere: however that process ends, the operating system frees it. A lock
that can be taken proves that its holder is gone. Nothing is proved about another machine.
"""

from __future__ import annotations

from typing import Protocol


class Locks(Protocol):
    def is_free(self, name: str) -> bool:
        """True: nobody holds it, so whoever was named by it has ended. Never waits, and does not keep it."""


class HeldLock(Protocol):
    def release(self) -> None:
        """Harmless when called twice."""


class TakingLocks(Locks, Protocol):
    def take(self, name: str, *, holder: str) -> HeldLock | None:
        """Takes the lock at once; None: a live process has it. `holder` names this one to people."""
