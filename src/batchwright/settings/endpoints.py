"""Which destinations rows may go to, in which order, and the key rule.

**The key rule.** A key goes only to a base URL that came from the same source as the key or from a higher one. A key
in the environment and an address in a project file would let any repository that one clones and tries out collect
one's keys. The one way round it is what the user wrote down in the *user file*, which no repository can bring along:
a base URL there with the `api_key_env` beside it allows exactly this variable for exactly this address, wherever the
address is then repeated. So:

    address from        key of the environment   key of a `.env`   key not set here
    command line        sent                     sent              may be set where the batch is worked on
    environment         sent                     sent              may be set where the batch is worked on
    .env                withheld                 sent              withheld
    project file        withheld                 withheld          withheld
    user file           withheld                 withheld          withheld
    the pair stands
    in the user file    sent                     sent              may be set where the batch is worked on

Where the environment and the `.env` both have the variable, the environment's is the key; but for an address from the
`.env`, unless its pair stands in the user file, the `.env`'s is.

A batch outlives the process that made it: a key that is not set here is judged as one of the environment, which it may
be where the batch is worked on, and an address from a `.env` gets keys of that very file alone for good.

**Choice.** `--simulate` and `--vendor NAME` send every row to that one vendor. Else, in this order: the endpoint of
`base_url`; where that is not from the command line also the named vendors (project file, then user file); and, where
there is no `base_url` but an `OPENAI_API_KEY`, OpenAI. `core.routes` finds a row's destination among them. `--gguf`
stands before all others and, unless the command line names an endpoint too, takes every row, but none that names
another model by `local/`.

**Unusable destinations.** One that was asked for by name and cannot be had (the rule withholds its key, the key cannot
be sent, there is no such profile or model file) is an error. Any other keeps its place and says why it is unusable:
rows that would go there are unroutable for that reason, and all others go on. To leave it out could send its rows to
another vendor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.errors import UsageError
from batchwright.core.keys import can_be_sent
from batchwright.core.service_keys import KEY_VARIABLES as SERVICE_KEYS
from batchwright.settings.layers import RESERVED_VENDORS, Layer, Variables, VendorEntry, lookup
from batchwright.settings.protocols import protocol_of
from batchwright.settings.sources import Origin, Source, Sourced
from batchwright.settings.table import KEY_VARIABLES, PREFIX

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
EVERY_MODEL = ("*",)
ABSENT = {
    "openai": f"Set {OPENAI_KEY}, or give it a table of its own in your config.toml:\n"
    f'    [vendors.openai]\n    base_url = "{OPENAI_URL}"\n    api_key_env = "{OPENAI_KEY}"',
    "simulated": "Take it out of the route, or run with --simulate",
}
"""What to do about a built-in vendor that only a route names."""
MODEL_FILE_VARIABLE = PREFIX + "MODEL_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorLimits:
    """What the settings files say of a named vendor; 0: nothing."""

    rpm: int = 0
    tpm: int = 0
    concurrency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    destinations: tuple[Destination, ...]
    """Unusable ones too, each in its place."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """What to do about an unusable destination, by its reason."""
    only: bool = False
    """Every row is sent to the one place that was asked for (beside it there may be the local server)."""


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
    protocol: VendorProtocol | None = None
    region: str = ""
    way: str = "--base-url"
    """Options that repeat the address on the command line and still mean this destination."""

    def destination(self, problem: str, *, dotenv_keys: bool) -> Destination:
        return Destination(
            vendor=self.vendor,
            base_url=self.base_url.value,
            key_env=self.key_env,
            profile=self.profile,
            protocol=protocol_of(self.protocol, base_url=self.base_url.value, profile=self.profile),
            region=self.region,
            models=self.models,
            dotenv_file=self.base_url.source.file if self.key_env and dotenv_keys else "",
            unusable=problem,
        )


def simulated() -> tuple[Destination, ...]:
    """Also rows of `local/...` are simulated: without the second entry they would start the real local server."""
    return (
        Destination(vendor="simulated", base_url="", protocol=VendorProtocol.SIMULATED),
        Destination(vendor="local", base_url="", protocol=VendorProtocol.SIMULATED),
    )


def service(url: str, key_env: str | None, variables: Variables) -> Destination:
    """The batch service that every row goes to; an address that was typed may have any key. Raises UsageError for one
    that is none, and where no key is set."""
    host = urlsplit(url).netloc.rpartition("@")[2].lower()
    if not host or urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"--service: expected the address of a service, http://HOST or https://HOST, found {url!r}")
    if key_env is None:
        found = next((name for name in SERVICE_KEYS if variables.get(name) is not None), None)
        if found is None:
            raise UsageError(
                f"--service {url}: the service's key is missing: set {' or '.join(SERVICE_KEYS)}, or name its variable "
                "with --service-key-env NAME ('' for no key)"
            )
        key_env = found
    elif key_env and variables.get(key_env) is None:
        raise UsageError(f"--service-key-env: the variable {key_env} is neither set nor in a .env")
    return Destination(vendor=host, base_url=url, key_env=key_env, protocol=VendorProtocol.SERVICE, models=EVERY_MODEL)


def local(gguf: Sourced[str] | None, models: tuple[str, ...]) -> Destination:
    """The local server with this model file, or with the default model. Raises UsageError for a file that was named on
    the command line and is none; of any other place it makes the destination unusable."""
    if gguf is None:
        return Destination(vendor="local", base_url="", protocol=VendorProtocol.LOCAL, models=models)
    from batchwright.vendors.model_files import model_file_problem

    problem = model_file_problem(Path(gguf.value), str(gguf.source))
    if problem and gguf.source.origin is Origin.COMMAND_LINE:
        raise UsageError(problem)
    # The variable is read again where the server is started: it names the default model's file, not the run's.
    named = "" if gguf.source.name == MODEL_FILE_VARIABLE else gguf.value
    return Destination(
        vendor="local", base_url="", protocol=VendorProtocol.LOCAL, model_file=named, models=models, unusable=problem
    )


def named_vendors(layers: Sequence[Layer]) -> dict[str, VendorEntry]:
    """By name, the project file's before the user file's; an entry of the former hides one of the latter."""
    found: dict[str, VendorEntry] = {}
    for layer in layers:
        for name, entry in layer.vendors.items():
            found.setdefault(name, entry)
    return found


def all_vendors(layers: Sequence[Layer], found: Endpoints) -> frozenset[str]:
    """The names of all vendors that rows could go to, also where this command sends them to one alone, and OpenAI's
    also where its key is not set."""
    here = (destination.vendor for destination in found.destinations)
    return frozenset({*named_vendors(layers), *RESERVED_VENDORS, _name_of(OPENAI_URL, {}), *here})


def build(layers: Sequence[Layer], variables: Variables, user_file: Path) -> Endpoints:
    """Raises UsageError when what was asked for by name cannot be had: no such vendor, no such key, the key rule."""
    chosen = _text(lookup(layers, "vendor"))
    gguf = _text(lookup(layers, "gguf"))
    base = _text(lookup(layers, "base_url"))
    taken = frozenset(name for layer in layers if layer.origin is Origin.USER_FILE for name in layer.vendors)
    rule = KeyRule(_allowed_by_user_file(layers), user_file, taken, variables)
    named_file = gguf if gguf is not None else _default_model_file(variables)
    beside = local(named_file, ())
    first = (beside,) if gguf is not None or beside.unusable else ()
    if chosen is not None and not _outranks(base, chosen):
        if chosen.value == "simulated":
            return Endpoints(destinations=simulated(), only=True)
        if chosen.value == "local":
            return Endpoints(destinations=(_usable(local(named_file, EVERY_MODEL)),), only=True)
        candidate = _chosen_vendor(chosen, base, layers, rule=rule)
        if problem := rule.problem(candidate):
            raise UsageError(f"{problem}. {rule.remedy(candidate)}".strip())
        return Endpoints(destinations=(*first, rule.destination(candidate)), only=True)
    from_command_line = base is not None and base.source.origin is Origin.COMMAND_LINE
    if gguf is not None and gguf.source.origin is Origin.COMMAND_LINE and not from_command_line:
        return Endpoints(destinations=(local(gguf, EVERY_MODEL),), only=True)
    candidates = _unchosen(base, layers, rule=rule)
    here = (*first, *(rule.destination(candidate) for candidate in candidates))
    remedies = {problem: rule.remedy(candidate) for candidate in candidates if (problem := rule.problem(candidate))}
    if not from_command_line:
        absent = _absent_choices(layers, here, why_no_openai=_why_no_openai(base, variables))
        here, remedies = (*here, *absent), remedies | {each.unusable: ABSENT[each.vendor] for each in absent}
    return Endpoints(destinations=here, remedies=remedies, only=from_command_line)


def _absent_choices(
    layers: Sequence[Layer], here: Sequence[Destination], *, why_no_openai: str
) -> tuple[Destination, ...]:
    """Built-in vendors that a route names and that get no rows now: unusable, so that what is said of the route is why,
    and not that there is no such vendor. Only their own prefix leads to them: they are nobody's default."""
    named = {step.vendor for layer in layers for entry in layer.routes.values() for step in entry.steps}
    there = {each.vendor for each in here}
    why = {
        "openai": (OPENAI_URL, OPENAI_KEY, why_no_openai),
        "simulated": ("", "", "the simulator takes rows only under --simulate, and then all of them"),
    }
    return tuple(
        Destination(vendor=vendor, base_url=url, key_env=key_env, models=(f"{vendor}/*",), unusable=reason)
        for vendor, (url, key_env, reason) in why.items()
        if vendor in named and vendor not in there
    )


def _why_no_openai(base: Sourced[str] | None, variables: Variables) -> str:
    if variables.get(OPENAI_KEY) is None:
        return f"its key is not set: {OPENAI_KEY} is neither in the environment nor in a .env"
    if base is not None:
        return f"{base.value} of {base.source} stands in the place of OpenAI's address"
    return f"api_key_env names another variable than {OPENAI_KEY}"


def _usable(destination: Destination) -> Destination:
    if destination.unusable:
        raise UsageError(destination.unusable)
    return destination


def _default_model_file(variables: Variables) -> Sourced[str] | None:
    """A default model's file that was named and is none: as good as none that was named, but for the reason."""
    path = variables.environment.get(MODEL_FILE_VARIABLE)
    if not path:
        return None
    return Sourced(path, Source(origin=Origin.ENVIRONMENT, name=MODEL_FILE_VARIABLE))


def may_have_key(key: Source, base_url: Source) -> bool:
    """The key rule's first half."""
    return base_url.origin >= key.origin


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The key rule on this machine, and what to do about a destination that it, or anything else, makes unusable."""

    allowed: frozenset[tuple[str, str]]
    """(base URL, variable) pairs of the user file."""
    user_file: Path
    taken: frozenset[str]
    """Names of the user file's vendors."""
    variables: Variables

    def key(self, base_url: Sourced[str], key_env: str) -> Sourced[str] | None:
        """The key that a worker here would send to this address; where the rule withholds it, what it withholds."""
        if not key_env:
            return None
        own = self.variables.in_dotenv(key_env) if self._takes_dotenv_keys(base_url, key_env) else None
        return own if own is not None else self.variables.get(key_env)

    def first_key(self, base_url: Sourced[str]) -> Sourced[str] | None:
        """The key of an endpoint for which no variable is named: one that may be sent there before one that may not,
        in the environment before `.env`, `BATCHWRIGHT_` before `OPENAI_`."""
        found = [key for name in KEY_VARIABLES if (key := self.key(base_url, name)) is not None]
        return max(found, key=lambda key: (self._may_have(key.source, base_url), key.source.origin), default=None)

    def destination(self, candidate: Candidate) -> Destination:
        dotenv_keys = self._takes_dotenv_keys(candidate.base_url, candidate.key_env)
        return candidate.destination(self.problem(candidate), dotenv_keys=dotenv_keys)

    def problem(self, candidate: Candidate) -> str:
        """Why no row may go there; empty: rows may."""
        if candidate.profile and (unknown := _profile_problem(candidate)):
            return unknown
        if not candidate.key_env:
            return ""
        key, url = candidate.key, candidate.base_url
        if key is not None and not can_be_sent(key.value):
            return (
                f"the value of {candidate.key_env} from {key.source} is no key: it has blanks or characters that no "
                f"header can carry (expected visible ASCII characters). Set it to the key alone"
            )
        came_from = key.source if key is not None else Source(origin=Origin.ENVIRONMENT, name=candidate.key_env)
        if self._may_have(came_from, url):
            return ""
        counts = f"the address {url.value} comes from {url.source}, which counts less"
        if key is not None:
            return f"the key {candidate.key_env} comes from {key.source}, but {counts}"
        return f"the key {candidate.key_env} is not set here, and one of the environment would not be sent: {counts}"

    def remedy(self, candidate: Candidate) -> str:
        """What to do where the key rule is the problem; empty where the problem says it itself."""
        if candidate.key is not None and not can_be_sent(candidate.key.value):
            return ""
        if candidate.profile and _profile_problem(candidate):
            return ""
        url, key_env = candidate.base_url.value, candidate.key_env
        set_it = f" (and set {key_env})" if candidate.key is None else ""
        return (
            "A key is sent only to an address from the same source or a higher one, so that a file that came with a "
            f"project cannot collect it. If you trust this address{set_it}: for good, put these lines into "
            f"{self.user_file}\n"
            f"    [vendors.{_table_name(candidate.vendor, self.taken)}]\n"
            f'    base_url = "{url}"\n'
            f'    api_key_env = "{key_env}"\n'
            f"  or for one run, all of whose rows then go there: {candidate.way} {url}\n"
            f'  If it needs no key: api_key_env = "" where the address stands.'
        )

    def _may_have(self, key: Source, base_url: Sourced[str]) -> bool:
        return may_have_key(key, base_url.source) or (base_url.value, key.name) in self.allowed

    def _takes_dotenv_keys(self, base_url: Sourced[str], key_env: str) -> bool:
        """Whether a key of the `.env` that the address came from, and no other, may go there."""
        return base_url.source.origin is Origin.DOTENV and (base_url.value, key_env) not in self.allowed


def _profile_problem(candidate: Candidate) -> str:
    from batchwright.vendors.profiles import find_profile

    try:
        find_profile(candidate.profile, candidate.base_url.value)
    except UsageError as error:
        return f"the vendor {candidate.vendor!r} of {candidate.base_url.source}: {error}"
    return ""


def _table_name(vendor: str, taken: frozenset[str]) -> str:
    """As TOML wants it, and free; what is called by its address gets a name that a vendor can have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", vendor)
    name = next(free for number in count(1) if (free := f"{name}-{number}" if number > 1 else name) not in taken)
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _outranks(base: Sourced[str] | None, chosen: Sourced[str]) -> bool:
    """A base URL from a higher source than the vendor's name is an endpoint of its own: the vendor's key stays home."""
    return base is not None and base.source.origin > chosen.source.origin


def _chosen_vendor(
    chosen: Sourced[str], base: Sourced[str] | None, layers: Sequence[Layer], *, rule: KeyRule
) -> Candidate:
    """The vendor that was asked for. A base URL of the very same source (but not OPENAI_BASE_URL) replaces its own."""
    entries = named_vendors(layers)
    entry = entries.get(chosen.value)
    if entry is None:
        known = ", ".join(sorted({*entries, *RESERVED_VENDORS}))
        if chosen.value == "openai":
            known += f". OpenAI gets rows without --vendor where {OPENAI_KEY} is set, or needs [vendors.openai]"
        raise UsageError(f"{chosen.source}: there is no vendor {chosen.value!r}; there are: {known}")
    url = entry.base_url
    if base is not None and base.source.origin is chosen.source.origin and base.source.name != "OPENAI_BASE_URL":
        url = base
    named = _text(lookup(layers, "api_key_env"))
    key_env = entry.api_key_env
    if named is not None and named.source.origin >= chosen.source.origin:
        key_env = named.value
    key = rule.key(url, key_env)
    if key_env and key is None:
        raise UsageError(f"the vendor {entry.name!r} needs the variable {key_env}, which is neither set nor in a .env")
    return Candidate(
        vendor=entry.name,
        base_url=url,
        key_env=key_env,
        key=key,
        profile=entry.profile,
        protocol=entry.protocol,
        region=entry.region,
        way=f"--vendor {entry.name} --base-url",
    )


def _unchosen(base: Sourced[str] | None, layers: Sequence[Layer], *, rule: KeyRule) -> list[Candidate]:
    """Where rows may go when no vendor was asked for, in order of preference."""
    entries = named_vendors(layers)
    named = _named_key(layers, rule.variables)
    found: list[Candidate] = []
    if base is not None:
        found.append(_unnamed_endpoint(base, named, entries, rule=rule))
        if base.source.origin is Origin.COMMAND_LINE:
            return found
    found += [
        Candidate(
            vendor=entry.name,
            base_url=entry.base_url,
            key_env=entry.api_key_env,
            key=rule.key(entry.base_url, entry.api_key_env),
            models=entry.models,
            profile=entry.profile,
            protocol=entry.protocol,
            region=entry.region,
            way=f"--vendor {entry.name} --base-url",
        )
        for entry in entries.values()
    ]
    implied = rule.variables.get(OPENAI_KEY)
    if base is None and implied is not None and (named is None or named in KEY_VARIABLES):
        # The address is implied by the variable's own name: it came from where the key came from.
        url = Sourced(OPENAI_URL, implied.source)
        found.append(Candidate(vendor=_name_of(OPENAI_URL, entries), base_url=url, key_env=OPENAI_KEY, key=implied))
    return found


def _named_key(layers: Sequence[Layer], variables: Variables) -> str | None:
    """The variable that is named for the endpoint of `base_url`; empty: no key is sent; None: none is named."""
    named = _text(lookup(layers, "api_key_env"))
    if named is None:
        return None
    if named.value and named.source.origin is Origin.COMMAND_LINE and variables.get(named.value) is None:
        raise UsageError(f"--api-key-env {named.value}: this variable is neither set in the environment nor in a .env")
    return named.value


def _unnamed_endpoint(
    base: Sourced[str], named: str | None, entries: Mapping[str, VendorEntry], *, rule: KeyRule
) -> Candidate:
    key = rule.first_key(base) if named is None else rule.key(base, named)
    key_env = named if named is not None else key.source.name if key is not None else ""
    return Candidate(vendor=_name_of(base.value, entries), base_url=base, key_env=key_env, key=key)


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
