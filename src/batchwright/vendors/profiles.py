"""What differs between vendors that speak one protocol: dated data (`profiles.toml`), never code.

A profile says what the vendor's codes, statuses and finish reasons mean, which headers carry its limits and what its
statement of a cost means. Every entry names its source, how well that is founded and the day it was checked. What a
profile does not say, the `general` one does.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

import msgspec

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.errors import UsageError
from batchwright.core.failures import FailureKind, Flag

GENERAL = "general"
LOCAL_PROFILE = "llamacpp"
"""Of the local model's server."""
ZERO_VALUE = b": 0\r\n"
"""How a header line whose value is 0 ends."""


class LimitHeaders(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lower-case header names, each a list of which the first that is present counts."""

    limit_requests: tuple[str, ...] = ()
    remaining_requests: tuple[str, ...] = ()
    reset_requests: tuple[str, ...] = ()
    limit_tokens: tuple[str, ...] = ()
    remaining_tokens: tuple[str, ...] = ()
    reset_tokens: tuple[str, ...] = ()
    requests_period_s: float = 60.0
    tokens_period_s: float = 60.0


class Phrase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one way in which a vendor's prose may decide: this text (lower case) in an error message of this status."""

    status: int
    text: str
    kind: FailureKind


class BatchProtocol(StrEnum):
    """Which words a vendor's batch API has."""

    OPENAI = "openai"
    """A file of lines is uploaded, a batch made of it (`openai_batches`)."""
    MISTRAL = "mistral"
    """Likewise, a job of one model (`mistral_batches`)."""
    TOGETHER = "together"
    """Likewise, found by its file's name (`together_batches`)."""
    ANTHROPIC = "anthropic"
    """Rows go with the call, and come back as one stream (`anthropic_batches`)."""


class BatchApi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vendor's batch API, as the vendor documents it."""

    protocol: BatchProtocol
    basis: str
    source: str
    checked: str
    """As of an entry."""
    rows: int
    bytes: int
    windows: dict[str, int]
    """How the vendor writes a window, and what it is in seconds."""
    endpoints: tuple[str, ...] = ()
    """In their normal form; empty: any."""
    one_model: bool = False
    enqueued_tokens: int = 0
    idempotency: bool = False
    """It knows `Idempotency-Key`: under one tag there is never a second batch, whoever asks for it again."""
    content_elsewhere: bool = False
    """A result file may be a redirect to where it is stored: it is followed once, without the key."""
    undone_is_free: bool = True
    """A row that expired or was cancelled was never done."""
    codes: dict[str, FailureKind] = {}
    """Codes that mean something else of a whole batch than of a row."""


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[profile]]` of the file, as written."""

    name: str
    basis: str
    """`documented` by the vendor, `secondary` (read in its clients or error reports) or `unverified`."""
    source: str
    checked: str
    """The day, `YYYY-MM-DD`."""
    hosts: tuple[str, ...] = ()
    """Shell-style patterns of `host` or `host:port`."""
    codes: dict[str, FailureKind] = {}
    """By the vendor's own code, type or status word, lower case."""
    statuses: dict[str, FailureKind] = {}
    """By HTTP status, where the vendor means something else by it than the rest."""
    phrases: tuple[Phrase, ...] = ()
    finish_flags: dict[str, Flag] = {}
    finish_kinds: dict[str, FailureKind] = {}
    """Finish reasons that say the answer broke off by the vendor's fault."""
    limits: LimitHeaders | None = None
    usage_cost_is_usd: bool = False
    """`usage.cost` is what the vendor charges, in USD."""
    states_cost_in_head: bool = False
    """What it charges stands in a header (`classify.COST_NAME`), which is not kept with an answer."""
    batches: BatchApi | None = None
    """None: no batch API of it is known. The general entry's is nobody else's."""
    keeps_prefixes: bool = False
    """It computes the common beginning of prompts once, if they come one after another."""
    takes_schema: bool = False
    """It takes `response_format` of type `json_schema` (the answer is held to a schema), for its usual models."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An entry with the general one beneath it, ready to be asked."""

    name: str
    codes: dict[str, FailureKind]
    statuses: dict[int, FailureKind]
    phrases: tuple[Phrase, ...]
    finish_flags: dict[str, Flag]
    finish_kinds: dict[str, FailureKind]
    limits: LimitHeaders
    usage_cost_is_usd: bool
    states_cost_in_head: bool
    batches: BatchApi | None
    keeps_prefixes: bool
    takes_schema: bool
    zero_needles: tuple[bytes, ...]
    """What a lower-case head contains when a remainder is 0: the one thing of the limits that must not be missed."""


class _ProfileFile(msgspec.Struct, forbid_unknown_fields=True):
    profile: tuple[ProfileEntry, ...]


@cache
def entries() -> dict[str, ProfileEntry]:
    """All entries by name; the file is read at the first call."""
    import tomllib  # only a process that opens a vendor pays for it

    text = files(__package__).joinpath("profiles.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text), _ProfileFile).profile
    return {entry.name: entry for entry in found}


def find_profile(name: str, base_url: str) -> Profile:
    """By name, else by the base URL's host, else the general one. Raises UsageError for a name that does not exist."""
    known = entries()
    if name:
        if name not in known:
            raise UsageError(f"no vendor profile is called {name!r}; there are: {', '.join(sorted(known))}")
        return build_profile(name)
    host = urlsplit(base_url).netloc.rpartition("@")[2].lower()
    bare = host.rpartition(":")[0] if ":" in host else host
    for entry in known.values():
        if any(fnmatchcase(host, pattern) or fnmatchcase(bare, pattern) for pattern in entry.hosts):
            return build_profile(entry.name)
    return build_profile(GENERAL)


def profile_of(destination: Destination) -> Profile:
    """Raises UsageError for a name that does not exist."""
    named = destination.profile
    if not named and destination.protocol is VendorProtocol.ANTHROPIC:
        named = VendorProtocol.ANTHROPIC.value  # whoever speaks it has its errors and headers, at any address
    return find_profile(named, destination.base_url)


@cache
def build_profile(name: str) -> Profile:
    """The entry of this name over the general one."""
    own, general = entries()[name], entries()[GENERAL]
    limits = own.limits or general.limits or LimitHeaders()
    return Profile(
        name=name,
        codes={**general.codes, **own.codes},
        statuses={int(status): kind for status, kind in {**general.statuses, **own.statuses}.items()},
        phrases=own.phrases if own is general else (*own.phrases, *general.phrases),
        finish_flags={**general.finish_flags, **own.finish_flags},
        finish_kinds={**general.finish_kinds, **own.finish_kinds},
        limits=limits,
        usage_cost_is_usd=own.usage_cost_is_usd,
        states_cost_in_head=own.states_cost_in_head,
        batches=own.batches,
        keeps_prefixes=own.keeps_prefixes,
        takes_schema=own.takes_schema,
        zero_needles=tuple(
            f"\n{header}{ZERO_VALUE.decode()}".encode()
            for header in (*limits.remaining_requests, *limits.remaining_tokens)
        ),
    )
