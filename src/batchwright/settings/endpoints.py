"""Which destinations rows may go to, in which order, and the key rule.

**The key rule.** A key goes only to a base URL that came from the same source as the key or from a higher one. A key
in the environment and an address in a project file would let any repository that one clones and tries out collect
one's keys. The one way round it is what the user wrote down in the *user file*, which no repository can bring along:
a base URL there with the `api_key_env` beside it allows exactly this variable for exactly this address, wherever the
address is then repeated.

**Choice.** `--simulate` and `--vendor NAME` send every row to that one vendor. Else, in this order: the endpoint of
`base_url`; where that is not from the command line also the named vendors (project file, then user file); and, where
there is no `base_url` but an `OPENAI_API_KEY`, OpenAI. `core.routes` finds a row's destination among them. `--gguf`
stands before all others and, unless the command line names an endpoint too, takes every row.

A destination that was not asked for by name and whose key the rule withholds must not stop a run that does not need
it (`local/...` rows). Then there are no destinations at all, only the reasons: leaving out that one alone could send
its rows to another vendor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import UsageError
from batchwright.settings.layers import RESERVED_VENDORS, Layer, Variables, VendorEntry, lookup
from batchwright.settings.sources import Origin, Source, Sourced
from batchwright.settings.table import KEY_VARIABLES

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
EVERY_MODEL = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorLimits:
    """What the settings files say of a named vendor; 0: nothing."""

    rpm: int = 0
    tpm: int = 0
    concurrency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    destinations: tuple[Destination, ...]
    withheld: tuple[str, ...] = ()
    """Why there are none although some are configured: one message for each that the key rule holds back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A destination before the key rule."""

    vendor: str
    base_url: Sourced[str]
    key_env: str = ""
    key: Sourced[str] | None = None
    """None: no key is sent, or the variable is not set here (the worker says so)."""
    models: tuple[str, ...] = ()
    profile: str = ""
    way: str = "--base-url"
    """Options that repeat the address on the command line and still mean this destination."""

    def destination(self) -> Destination:
        return Destination(
            vendor=self.vendor,
            base_url=self.base_url.value,
            key_env=self.key_env,
            profile=self.profile,
            models=self.models,
        )


def simulated() -> tuple[Destination, ...]:
    """Also rows of `local/...` are simulated: without the second entry they would start the real local server."""
    return (
        Destination(vendor="simulated", base_url="", protocol="simulated"),
        Destination(vendor="local", base_url="", protocol="simulated"),
    )


def local(model_file: str, models: tuple[str, ...]) -> Destination:
    return Destination(vendor="local", base_url="", protocol="local", model_file=model_file, models=models)


def named_vendors(layers: Sequence[Layer]) -> dict[str, VendorEntry]:
    """By name, the project file's before the user file's; an entry of the former hides one of the latter."""
    found: dict[str, VendorEntry] = {}
    for layer in layers:
        for name, entry in layer.vendors.items():
            found.setdefault(name, entry)
    return found


def build(layers: Sequence[Layer], variables: Variables) -> Endpoints:
    """Raises UsageError when what was asked for by name cannot be had: no such vendor, no such key, the key rule."""
    chosen = _text(lookup(layers, "vendor"))
    gguf = _text(lookup(layers, "gguf"))
    base = _text(lookup(layers, "base_url"))
    entries = named_vendors(layers)
    allowed = _allowed_by_user_file(layers)
    model_file = gguf.value if gguf is not None else ""
    first = (local(model_file, ()),) if gguf is not None else ()
    if chosen is not None and not _outranks(base, chosen):
        if chosen.value == "simulated":
            return Endpoints(destinations=simulated())
        if chosen.value == "local":
            return Endpoints(destinations=(local(model_file, EVERY_MODEL),))
        candidate = _chosen_vendor(chosen, base, entries, (layers, variables))
        if reason := withheld_reason(candidate, allowed):
            raise UsageError(reason)
        return Endpoints(destinations=(*first, candidate.destination()))
    from_command_line = base is not None and base.source.origin is Origin.COMMAND_LINE
    if gguf is not None and gguf.source.origin is Origin.COMMAND_LINE and not from_command_line:
        return Endpoints(destinations=(local(model_file, EVERY_MODEL),))
    candidates = _unchosen(base, entries, (layers, variables))
    reasons = tuple(reason for candidate in candidates if (reason := withheld_reason(candidate, allowed)))
    if reasons:
        return Endpoints(destinations=first, withheld=reasons)
    return Endpoints(destinations=(*first, *(candidate.destination() for candidate in candidates)))


def may_have_key(key: Source, base_url: Source) -> bool:
    """The key rule's first half."""
    return base_url.origin >= key.origin


def withheld_reason(candidate: Candidate, allowed: frozenset[tuple[str, str]]) -> str:
    """Empty: the key may go there. Else the message: both sources, why, and what to do."""
    key, url = candidate.key, candidate.base_url
    if key is None or may_have_key(key.source, url.source) or (url.value, candidate.key_env) in allowed:
        return ""
    return (
        f"the key {candidate.key_env} comes from {key.source}, but the address {url.value} from {url.source}, which "
        f"counts less: a key is sent only to an address from the same source or a higher one, so that a file that "
        f"came with a project cannot collect it. If the address is right, say so: {candidate.way} {url.value}; "
        f'for good, put base_url = "{url.value}" and api_key_env = "{candidate.key_env}" '
        f'into a table [vendors.NAME] of your user file. If it needs no key, write api_key_env = "" beside it.'
    )


def _outranks(base: Sourced[str] | None, chosen: Sourced[str]) -> bool:
    """A base URL from a higher source than the vendor's name is an endpoint of its own: the vendor's key stays home."""
    return base is not None and base.source.origin > chosen.source.origin


def _chosen_vendor(
    chosen: Sourced[str],
    base: Sourced[str] | None,
    entries: Mapping[str, VendorEntry],
    where: tuple[Sequence[Layer], Variables],
) -> Candidate:
    """The vendor that was asked for. A base URL of the very same source (but not OPENAI_BASE_URL) replaces its own."""
    layers, variables = where
    entry = entries.get(chosen.value)
    if entry is None:
        known = ", ".join(sorted({*entries, *RESERVED_VENDORS}))
        raise UsageError(f"{chosen.source}: there is no vendor {chosen.value!r}; there are: {known}")
    url = entry.base_url
    if base is not None and base.source.origin is chosen.source.origin and base.source.name != "OPENAI_BASE_URL":
        url = base
    named = _text(lookup(layers, "api_key_env"))
    key_env = entry.api_key_env
    if named is not None and named.source.origin >= chosen.source.origin:
        key_env = named.value
    key = variables.get(key_env) if key_env else None
    if key_env and key is None:
        raise UsageError(f"the vendor {entry.name!r} needs the variable {key_env}, which is neither set nor in a .env")
    return Candidate(
        vendor=entry.name,
        base_url=url,
        key_env=key_env,
        key=key,
        profile=entry.profile,
        way=f"--vendor {entry.name} --base-url",
    )


def _unchosen(
    base: Sourced[str] | None, entries: Mapping[str, VendorEntry], where: tuple[Sequence[Layer], Variables]
) -> list[Candidate]:
    found: list[Candidate] = []
    key_env, key = _unnamed_key(*where)
    if base is not None:
        name = _name_of(base.value, entries)
        found.append(Candidate(vendor=name, base_url=base, key_env=key_env, key=key))
        if base.source.origin is Origin.COMMAND_LINE:
            return found
    found += [
        Candidate(
            vendor=entry.name,
            base_url=entry.base_url,
            key_env=entry.api_key_env,
            key=where[1].get(entry.api_key_env) if entry.api_key_env else None,
            models=entry.models,
            profile=entry.profile,
            way=f"--vendor {entry.name} --base-url",
        )
        for entry in entries.values()
    ]
    implied = where[1].get(OPENAI_KEY)
    if base is None and implied is not None and key_env in KEY_VARIABLES:
        # The address is implied by the variable's own name: it came from where the key came from.
        url = Sourced(OPENAI_URL, implied.source)
        found.append(Candidate(vendor=_name_of(OPENAI_URL, entries), base_url=url, key_env=OPENAI_KEY, key=implied))
    return found


def _unnamed_key(layers: Sequence[Layer], variables: Variables) -> tuple[str, Sourced[str] | None]:
    """(variable's name, its value) for the endpoint of `base_url`; ("", None): no key is sent."""
    named = _text(lookup(layers, "api_key_env"))
    if named is None:
        key = variables.first_key()
        return (key.source.name, key) if key is not None else ("", None)
    key = variables.get(named.value) if named.value else None
    if named.value and key is None and named.source.origin is Origin.COMMAND_LINE:
        raise UsageError(f"--api-key-env {named.value}: this variable is neither set in the environment nor in a .env")
    return named.value, key


def _allowed_by_user_file(layers: Sequence[Layer]) -> frozenset[tuple[str, str]]:
    """(base URL, variable) pairs that the user wrote down side by side."""
    pairs: set[tuple[str, str]] = set()
    for layer in layers:
        if layer.origin is Origin.USER_FILE:
            pairs |= {(entry.base_url.value, entry.api_key_env) for entry in layer.vendors.values()}
            base, named = layer.values.get("base_url"), layer.values.get("api_key_env")
            if base is not None and named is not None:
                pairs.add((str(base.value), str(named.value)))
    return frozenset(pairs)


def _name_of(base_url: str, entries: Mapping[str, VendorEntry]) -> str:
    """What an endpoint without a name is called: its host and port; `openai` for OpenAI's own, if that is free."""
    if base_url == OPENAI_URL and "openai" not in entries:
        return "openai"
    return urlsplit(base_url).netloc.lower()


def _text(found: Sourced[object] | None) -> Sourced[str] | None:
    return None if found is None else Sourced(str(found.value), found.source)


def model_name_of(model_file: str) -> str:
    """What rows that name no model ask of a local server that was given a file."""
    return Path(model_file).stem
