"""Settings as another process takes them over: everything that was resolved, and of variables their names alone.

What was decided (where rows go, with the key of which variable, at which limits) goes along; the values of variables do
not. The process that thaws them has its own environment, and reads the `.env` that was found here, by its path. So
nothing secret is on a wire, a disk or a command line, and a process that lacks a key says which.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from batchwright.settings import Origin, Settings, user_file
from batchwright.settings.layers import Variables, file_layer, lookup, read_dotenv
from batchwright.settings.table import variable_of

DATABASE, HOME = variable_of("database"), variable_of("home")
SECRET_PARAMETERS = frozenset({"password", "sslpassword", "oauth_client_secret"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSettings:
    """Picklable, and free of secrets."""

    settings: Settings
    """Without variables; its database's URL without a password."""
    dotenv_file: str
    withheld: bool
    """The database's URL had a password."""

    def thaw(self, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings here. A password of the database that was withheld is this place's own: in BATCHWRIGHT_DATABASE
        or the user's config.toml where they name the same database, else PGPASSWORD or ~/.pgpass. Where batches are in
        a database, the folder of locks may be another than there: BATCHWRIGHT_HOME. Raises UsageError for a file that
        cannot be read."""
        settings = self.settings
        variables = Variables(
            environment=dict(environment), dotenv=read_dotenv(self.dotenv_file), dotenv_file=self.dotenv_file
        )
        home = environment.get(HOME, "")
        if self.withheld:
            known = [environment.get(DATABASE, ""), _database_of_user()]
            whole = next((url for url in known if without_password(url) == settings.database), settings.database)
            settings = replace(settings, database=whole)
        if settings.database and home:
            settings = replace(settings, state_dir=Path(home).expanduser().absolute())
        return replace(settings, variables=variables)


def freeze(settings: Settings) -> FrozenSettings:
    database = without_password(settings.database)
    nothing = Variables(environment={}, dotenv={}, dotenv_file="")
    return FrozenSettings(
        settings=replace(settings, database=database, variables=nothing),
        dotenv_file=settings.variables.dotenv_file,
        withheld=database != settings.database,
    )


def _database_of_user() -> str:
    found = lookup([file_layer(Origin.USER_FILE, user_file())], "database")
    return str(found.value) if found is not None else ""


def without_password(url: str) -> str:
    """The URL as it stands, but for passwords in it."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    netloc = f"{quote(unquote(user.partition(':')[0]))}{at}{host}" if ":" in user else parts.netloc
    asked = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(name, text) for name, text in asked if name.lower() not in SECRET_PARAMETERS]
    query = parts.query if len(kept) == len(asked) else urlencode(kept, quote_via=quote)
    return urlunsplit((parts.scheme, netloc, parts.path, query, parts.fragment)) if parts.scheme else url
