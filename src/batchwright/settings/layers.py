"""Reads the places where settings stand, each into one `Layer`, and looks values up through them.

**Project file and `.env`**: the nearest `batchwright.toml`, and the nearest `.env`, from the current folder up to the
root of the repository it is in (the first folder with `.git`); outside a repository only the current folder. Going on
to `/` would let whoever can write to `/tmp` configure every run below it.

**User file**: `config.toml` in the platform's folder for settings (`~/.config/batchwright` on Linux).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from batchwright.core.batch_spec import VendorProtocol
from batchwright.core.errors import UsageError
from batchwright.settings.routes import RouteEntry, read_route
from batchwright.settings.sources import Origin, Source, Sourced
from batchwright.settings.table import (
    OTHER_VARIABLES,
    PREFIX,
    SETTINGS,
    VENDOR_SETTINGS,
    Setting,
    flag_of,
    variable_of,
)
from batchwright.settings.values import read_vendor_name

PROJECT_FILE = "batchwright.toml"
USER_FILE = "config.toml"
DOTENV_FILE = ".env"
RESERVED_VENDORS = frozenset({"local", "simulated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorEntry:
    """One table `[vendors.NAME]`. Entries are never mixed: that of the project file hides the user file's whole one."""

    name: str
    base_url: Sourced[str]
    api_key_env: str = ""
    models: tuple[str, ...] = ()
    rpm: int = 0
    tpm: int = 0
    concurrency: int = 0
    profile: str = ""
    region: str = ""
    protocol: VendorProtocol | None = None
    """None: that of its address (`settings.protocols`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Everything that one place says, checked."""

    origin: Origin
    values: Mapping[str, Sourced[object]]
    vendors: Mapping[str, VendorEntry] = field(default_factory=dict)
    routes: Mapping[str, RouteEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The environment over `.env`. Values may be secrets: no `repr` shows them."""

    environment: Mapping[str, str] = field(repr=False)
    dotenv: Mapping[str, str] = field(repr=False)
    dotenv_file: str
    """Absolute path; empty: there is none."""

    def get(self, name: str) -> Sourced[str] | None:
        """None also for an empty or blank value: `NAME= command` is how shells switch a variable off."""
        if self.environment.get(name, "").strip():
            return Sourced(self.environment[name], Source(origin=Origin.ENVIRONMENT, name=name))
        return self.in_dotenv(name)

    def in_dotenv(self, name: str) -> Sourced[str] | None:
        if self.dotenv.get(name, "").strip():
            source = Source(origin=Origin.DOTENV, name=name, file=self.dotenv_file)
            return Sourced(self.dotenv[name], source)
        return None


def find_upward(name: str, folder: Path) -> Path | None:
    """The nearest file of that name; see the module's docstring for where the search ends."""
    candidates = [folder, *folder.parents]
    root = next((index for index, place in enumerate(candidates) if (place / ".git").exists()), 0)
    return next((place / name for place in candidates[: root + 1] if (place / name).is_file()), None)


def read_variables(environment: Mapping[str, str], folder: Path) -> Variables:
    """Raises UsageError for a `.env` that cannot be read."""
    path = find_upward(DOTENV_FILE, folder.absolute())
    if path is None:
        return Variables(environment=environment, dotenv={}, dotenv_file="")
    return Variables(environment=environment, dotenv=read_dotenv(str(path)), dotenv_file=str(path))


def read_dotenv(path: str) -> dict[str, str]:
    """What a `.env` holds; nothing for no path. Raises UsageError for one that cannot be read."""
    if not path:
        return {}
    from dotenv import dotenv_values

    try:
        # Without interpolation: `https://host/${OPENAI_API_KEY}` in a stranger's .env would carry a key away in a URL.
        found = dotenv_values(path, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return {name: value for name, value in found.items() if value is not None}


def flag_layer(flags: Mapping[str, object], folder: Path) -> Layer:
    """`flags`: setting name to the value typed (a text or an already typed value); None is left out."""
    found: dict[str, Sourced[object]] = {}
    for name, value in flags.items():
        if value is not None:
            source = Source(origin=Origin.COMMAND_LINE, name=flag_of(name))
            found[name] = Sourced(_read(name, value, flag_of(name), folder), source)
    return Layer(origin=Origin.COMMAND_LINE, values=found)


def variable_layers(variables: Variables, folder: Path) -> tuple[Layer, Layer]:
    """(environment, `.env`). Raises UsageError for a `BATCHWRIGHT_...` that is no setting."""
    dotenv_folder = Path(variables.dotenv_file).parent if variables.dotenv_file else folder
    return (
        _variable_layer(Origin.ENVIRONMENT, variables.environment, "", folder),
        _variable_layer(Origin.DOTENV, variables.dotenv, variables.dotenv_file, dotenv_folder),
    )


def _variable_layer(origin: Origin, texts: Mapping[str, str], file: str, folder: Path) -> Layer:
    place = f"{file}: " if file else "the environment: "
    known = [variable_of(name) for name in SETTINGS]
    for name in texts:
        if name.startswith(PREFIX) and name not in known and name not in OTHER_VARIABLES:
            raise UsageError(f"{place}{name} is no setting{_nearest_variable(name, [*known, *OTHER_VARIABLES])}")
    found: dict[str, Sourced[object]] = {}
    for name, setting in SETTINGS.items():
        for variable in (variable_of(name), setting.fallback):
            if texts.get(variable) and origin is Origin.DOTENV and not setting.in_projects:
                raise UsageError(f"{place}{variable} {_not_of_a_project(setting)}")
            if texts.get(variable):
                source = Source(origin=origin, name=variable, file=file)
                found[name] = Sourced(_read(name, texts[variable], f"{place}{variable}", folder), source)
                break
    return Layer(origin=origin, values=found)


def file_layer(origin: Origin, path: Path | None) -> Layer:
    """A settings file; none, or one that is not there, says nothing. Raises UsageError naming file and key."""
    if path is None or not path.is_file():
        return Layer(origin=origin, values={})
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read as TOML: {error}") from error
    tables, route_tables = _pop_tables(path, content, "vendors"), _pop_tables(path, content, "routes")
    known = [name for name, setting in SETTINGS.items() if setting.in_files]
    found: dict[str, Sourced[object]] = {}
    for name, value in content.items():
        _refuse_key(path, name, name)
        if isinstance(value, dict):
            raise UsageError(f"{path}: [{name}] is no table of settings{_nearest(name, ['vendors', 'routes'])}")
        if name not in known:
            raise UsageError(f"{path}: {name} is no setting{_nearest(name, known)}")
        if origin is Origin.PROJECT_FILE and not SETTINGS[name].in_projects:
            raise UsageError(f"{path}: {name} {_not_of_a_project(SETTINGS[name])}")
        source = Source(origin=origin, name=name, file=str(path))
        found[name] = Sourced(_read(name, value, f"{path}: {name}", path.parent), source)
    vendors = {name: _vendor_entry(origin, path, name, table) for name, table in tables.items()}
    routes = {name: _route_entry(path, name, table) for name, table in route_tables.items()}
    return Layer(origin=origin, values=found, vendors=vendors, routes=routes)


def _not_of_a_project(setting: Setting) -> str:
    from_where = "the environment or your own config.toml" if setting.in_files else "the environment alone"
    return (
        f"is taken from {from_where}: a file that came with a project must not choose which batches are worked on, and "
        "with whose keys"
    )


def _pop_tables(path: Path, content: dict[str, object], name: str) -> dict[str, object]:
    tables = content.pop(name, {})
    if not isinstance(tables, dict):
        raise UsageError(f"{path}: {name}: expected tables [{name}.NAME], found {tables!r}")
    return tables


def _route_entry(path: Path, name: str, table: object) -> RouteEntry:
    where = f"{path}: [routes.{name}]"
    try:
        return read_route(name, table, where)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _vendor_entry(origin: Origin, path: Path, name: str, table: object) -> VendorEntry:
    where = f"[vendors.{name}]"
    try:
        read_vendor_name(name)
    except ValueError as error:
        raise UsageError(f"{path}: {where}: {error}") from None
    if name in RESERVED_VENDORS:
        raise UsageError(f"{path}: {where}: {name!r} is the name of a built-in vendor; choose another name")
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {where}: expected a table, found {table!r}")
    read: dict[str, object] = {}
    for key, value in table.items():
        _refuse_key(path, key, f"{where} {key}")
        if key not in VENDOR_SETTINGS:
            raise UsageError(f"{path}: {where} {key} is no setting of a vendor{_nearest(key, VENDOR_SETTINGS)}")
        try:
            read[key] = VENDOR_SETTINGS[key](value)
        except ValueError as error:
            raise UsageError(f"{path}: {where} {key}: {error}") from None
    base_url = read.pop("base_url", None)
    if not isinstance(base_url, str):
        raise UsageError(f'{path}: {where}: base_url is missing; expected base_url = "https://..."')
    source = Source(origin=origin, name=f"{where} base_url", file=str(path))
    return VendorEntry(name=name, base_url=Sourced(base_url, source), **read)  # type: ignore[arg-type]  # as its readers give them


def lookup(layers: Iterable[Layer], name: str) -> Sourced[object] | None:
    """The value of the first layer that has one; layers come in order, the highest first."""
    return next((layer.values[name] for layer in layers if name in layer.values), None)


def _read(name: str, value: object, where: str, folder: Path) -> object:
    setting = SETTINGS[name]
    try:
        read = setting.read(value)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    if setting.is_path and isinstance(read, str) and read:
        return str(folder / Path(read).expanduser())
    return read


def _refuse_key(path: Path, key: str, where: str) -> None:
    if key in ("api_key", "key", "token"):
        raise UsageError(
            f"{path}: {where}: a key does not belong into a settings file; put it into an environment variable "
            'and name that: api_key_env = "NAME"'
        )


def _nearest_variable(name: str, known: Iterable[str]) -> str:
    """What all of them begin with says nothing of which one was meant."""
    close = get_close_matches(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], n=1)
    if close:
        return f"; did you mean {PREFIX}{close[0]}?"
    return f"; a setting's variable is {PREFIX} and its name, and README.md lists all settings"


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(sorted(known))}"
