"""What one route is: the row of the table that routing, discovery and the OpenAPI page are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from batchwright.core.tenants import Scope
from batchwright.server.asking import Handler, Query

Schema = dict[str, Any]
"""A JSON Schema."""

EVERYWHERE = ("INVALID_REQUEST", "INTERNAL", "UNAVAILABLE")
"""Errors that any route may answer with."""
WITH_A_KEY = ("UNAUTHORIZED", "FORBIDDEN", "RATE_LIMITED")
"""And any that asks for a key."""
WITH_A_BODY = ("INVALID_JSON", "BODY_TOO_LARGE", "REQUEST_TIMEOUT", "UNSUPPORTED_MEDIA_TYPE")

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
MOMENT: Schema = {"type": ["string", "null"], "description": "ISO 8601 in UTC with microseconds; null: not yet"}
AMOUNT: Schema = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 9_000_000},
        {"type": "string", "pattern": r"^[0-9]{1,6}(\.[0-9]{1,12})?$"},
    ]
}
USD: Schema = {"type": ["number", "null"], "description": "USD, at most 12 decimals; null: not known"}


class Place(StrEnum):
    """Where a parameter stands in a request."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"
    BODY = "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    name: str
    place: Place
    schema: Schema
    about: str
    required: bool = False
    ceiling: str = ""
    """Of a number: the field of `server.service.Ceilings` that it may not pass; empty: none."""

    def bounded(self, ceilings: Mapping[str, Any]) -> Schema:
        return {**self.schema, "maximum": ceilings[self.ceiling]} if self.ceiling else self.schema


def query(name: str, schema: Schema, about: str, *, ceiling: str = "") -> Param:
    return Param(name=name, place=Place.QUERY, schema=schema, about=about, ceiling=ceiling)


def header(name: str, about: str) -> Param:
    return Param(name=name, place=Place.HEADER, schema=TEXT, about=about)


def field(name: str, schema: Schema, about: str, *, required: bool = False) -> Param:
    """A field of a JSON body. One that may be left out may be null too, which says the same."""
    whole = schema if required else _or_null(schema)
    return Param(name=name, place=Place.BODY, schema=whole, about=about, required=required)


def _or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return {**schema, "type": [*types, *({"null"} - {*types})]}


BATCH_ID = Param(
    name="batch_id",
    place=Place.PATH,
    schema={"type": "string", "pattern": "^batch_[0-9a-f]{24}$"},
    about="The batch.",
    required=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One route. Everything that is said about it anywhere is said here."""

    id: str
    """As Infrai names it: `ai.batch.submit`."""
    method: str
    path: str
    summary: str
    handler: Handler
    scope: Scope | None
    """None: public."""
    params: tuple[Param, ...] = ()
    response: Schema
    """Of `data` in the envelope; of the whole body where it is `bare`."""
    bare: bool = False
    """Answered without the envelope, as Infrai does for discovery."""
    media: str = "application/json"
    """Of a success."""
    body: bool = False
    """It takes an empty body or `{}` although no parameter stands in it."""
    lines: str = ""
    """The field whose items may be the whole body, as lines of JSON (`application/x-ndjson`); the others then stand in
    the query. Empty: the body is JSON."""
    query_prefix: str = ""
    """Any parameter whose name begins so stands in the query too."""
    errors: tuple[str, ...] = ()
    """Codes it may answer with beside those that follow from what it is."""
    also: tuple[tuple[int, str], ...] = ()
    """Other answers that are no errors, as (HTTP status, what it means)."""
    ceilings: tuple[str, ...] = ()
    """Which of `server.service.Ceilings` bound it."""
    needs_vendor: bool = False
    """It is of no use while no vendor can be sent to."""
    idempotent: bool = True
    """Asked twice it does no more than once; a submit only with an idempotency key."""

    @property
    def query(self) -> Query:
        """What it takes in the query: where the body is lines, what else stands in a body."""
        places = {Place.QUERY, Place.BODY} if self.lines else {Place.QUERY}
        names = frozenset(param.name for param in self.params if param.place in places and param.name != self.lines)
        return Query(names=names, prefix=self.query_prefix)

    @property
    def has_body(self) -> bool:
        return self.body or any(param.place is Place.BODY for param in self.params)

    @property
    def codes(self) -> tuple[str, ...]:
        """Every code of an error, in order and once each."""
        own = list(EVERYWHERE)
        if self.scope is not None:
            own += WITH_A_KEY
        if self.has_body:
            own += WITH_A_BODY
        if any(param.place is Place.PATH for param in self.params):
            own.append("NOT_FOUND")
        return tuple(dict.fromkeys((*own, *self.errors)))


def shape(fields: Mapping[str, Schema], *, optional: frozenset[str] = frozenset()) -> Schema:
    """An object with these fields, all there but the optional ones, and no others."""
    return {
        "type": "object",
        "properties": dict(fields),
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def with_field(object_shape: Schema, name: str, schema: Schema) -> Schema:
    """The same with one field more."""
    return shape({**object_shape["properties"], name: schema})
