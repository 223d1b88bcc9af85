"""Who answers rows. A vendor turns one row's bytes into one Answer: what came back, read once, in our own words.

- `send` starts an attempt and calls `on_end` exactly once on the loop's thread, never from inside `send`; after
  `abort` not at all. It never sends twice and never raises for a row: an exception of ours becomes kind INTERNAL.
- The body goes out as it is. The answer's body is kept as it came.
- Kinds, flags and waits are decided from status, the vendor's own code and its profile, never from free prose unless
  the profile says so; the prose is kept in `message` (bounded) and reaches no log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from batchwright.core.batch_spec import Destination
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.rate import Limits
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import HttpReply


class Answer(msgspec.Struct, gc=False):
    """How one attempt ended. The first twelve fields are also given by position (`vendors.classify`, where keywords
    would cost): append new ones, and never reorder these."""

    kind: FailureKind | None
    """None: success."""
    flag: Flag = Flag.PLAIN
    http_status: int = 0
    """0: no answer came."""
    body: bytes = b""
    code: str = ""
    param: str = ""
    message: str = ""
    request_id: str = ""
    prompt_tokens: int = UNKNOWN
    completion_tokens: int = UNKNOWN
    cached_tokens: int = UNKNOWN
    cost_picousd: int = UNKNOWN
    """The vendor's own figure; UNKNOWN where it sends none."""
    wait_s: float = 0.0
    """A floor for the next attempt of this row: Retry-After in any of its forms, a body hint; 0: none."""
    limits: Limits | None = None
    """None: the headers say nothing."""
    final: bool = False
    """Of a failure: whoever answers has used up the attempts there are, and the row ends so. (A batch service has
    tried it several times before it says that it failed.)"""
    is_counted: bool = False
    """Its usage stands in this very store already, under the vendor that answered (a service that works there)."""


class VendorCall(Protocol):
    def abort(self) -> None:
        """Drops the attempt; `on_end` is not called any more. Harmless after the end."""


Send = Callable[[str, bytes, Callable[[Answer], None]], VendorCall]
"""As `Vendor.send`."""


class RelayedCall(VendorCall, Protocol):
    def hold(self, held: bool) -> None:
        """Of a streamed answer: while it is held no more of it is read, but for what has been."""


class CallListener(Protocol):
    """Hears how one call is answered, on the loop's thread, never from inside `Vendor.relay`. Nothing of it may raise.
    Whatever it is told holds no key of ours."""

    def begin(self, head: bytes) -> None:
        """A streamed answer of 2xx begins: its status line and header lines. Followed by pieces and one `end`."""

    def take(self, piece: bytes) -> None: ...

    def end(self, answer: Answer, reply: HttpReply | None, last: bytes) -> None:
        """Once; after `abort` not at all. `reply`: the vendor's answer as it came, whole; None: none came, or it was
        streamed. `answer` says what it means for the lane and the bill. `last`: the last piece of one that was
        streamed; empty: there is none."""


class RowAsk(NamedTuple):
    """Which row of its batch it is that goes to a `GroupVendor`."""

    row_index: int
    """Its request_index."""
    attempts: int
    """That it had before: with the index it names this very attempt, also for whoever goes on after a crash."""
    custom_id: str
    """As the row's; empty: it has none."""
    model: str
    """As the vendor gets it; all of a file may have to name one."""
    has_room: Callable[[], bool]
    """Whether an answer may be handed over now, or more of them would be in memory than fit."""


class GroupCall(VendorCall, Protocol):
    def leave(self) -> None:
        """Nobody here waits for the row any more, and it stays where it is: asked for again by the same `RowAsk`, here
        or elsewhere, it gets its answer. `on_end` is not called. (`abort` gives it up.)"""


class Vendor(Protocol):
    @property
    def max_in_flight(self) -> int:
        """Rows it can work on at once (a local server's slots); 0: no bound of its own."""

    @property
    def waiting(self) -> str:
        """What holds up rows that are out at it, for a person, where it knows (a service whose own vendor is out);
        empty: nothing that it knows of."""

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> VendorCall:
        """`endpoint` is a path below the base URL ("/chat/completions")."""

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RelayedCall:
        """As `send`, for a call of somebody who waits for it and gets the answer as it came. `stream`: the body asks
        for a streamed answer; what is not 2xx is whole all the same."""

    async def close(self) -> None:
        """Ends what was started for it (a local server). Nothing is to be sent or awaited any more."""


class GroupVendor(Vendor, Protocol):
    """A vendor's own batch API, for one batch of ours: rows go there in groups, and are in no hurry.

    A row that is in a group is in no doubt: what becomes of its attempt is kept by group, durably, from before it is
    sent. Its answers say nothing of pace."""

    def send_row(self, ask: RowAsk, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> GroupCall:
        """As `send`. A row that is at the vendor already, by a group that was sent before, joins it."""

    def recall(self, why: str) -> None:
        """Ends all groups at the vendor, early: what is done by then is answered, the rest ends as UNREACHABLE where
        the vendor did not do it, and in doubt where it does not say within a minute. Harmless when asked again. `why`:
        for people."""


class Vendors(Protocol):
    """Opens vendors by destination; shared by a worker's lanes."""

    def lacks(self, destination: Destination) -> str:
        """What keeps this process from sending there, as a sentence without its stop: a key's variable is not set;
        empty: nothing."""

    def keeps_prefixes(self, destination: Destination) -> bool:
        """Whether it answers sooner, or for less, where rows whose prompts begin alike come one after another."""

    async def open(self, destination: Destination, *, timeout_s: float = 0.0) -> Vendor:
        """Starts what has to be started (the local model's server); one vendor a destination and total time of an
        attempt (0: the default), however often asked.

        Raises VendorUnavailable with a message for a person.
        """

    async def close(self) -> None:
        """Closes every vendor that was opened, and the connections below them."""
