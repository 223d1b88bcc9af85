"""What a user asked to be done to every row on its way in. Part of a batch's identity: it changes request bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchwright.core.answer_schema import AnswerSchema
from batchwright.core.batch_spec import Destination, Routes
from batchwright.core.records import RowFile
from batchwright.core.routes import Directions

MAX_ROW_BYTES = 32 * 1024 * 1024
"""A line above this is a finding (`row_too_large`), never a cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTemplate:
    """A Jinja template, read whole: nothing of it is read again."""

    name: str
    """For people: its file's name."""
    text: str
    parts: Mapping[str, str] = field(default_factory=dict)
    """By the name they are included as, the texts of other files."""

    @property
    def digest(self) -> str:
        """Of what it says, wherever it lies: 16 hex digits."""
        found = hashlib.sha256()
        for text in (self.text, *(text for item in sorted(self.parts.items()) for text in item)):
            encoded = text.encode("utf-8", "surrogatepass")
            found.update(b"%d:%b" % (len(encoded), encoded))
        return found.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Images:
    """Columns whose values are pictures: paths, or URLs."""

    columns: tuple[str, ...]
    look: Callable[[str], RowFile | str] = field(compare=False, repr=False)
    """The file of a path, or what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedRows:
    """Some rows of an input, by their position in it (rows that cannot be sent count, blank lines do not)."""

    indexes: frozenset[int]
    name: str
    """What makes them these and no others, for people and for the batch's identity: "200 rows, seed 1"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    destinations: tuple[Destination, ...] = ()
    """In order of preference; `local/...` rows need none."""
    routes: Routes = field(default_factory=dict)
    """Model names of ours, each with the choices it stands for."""
    model: str = ""
    """Fills in for rows that name no model; never replaces one."""
    params: dict[str, object] = field(default_factory=dict)
    """Body fields to fill in where a row lacks them (values are JSON values)."""
    prompt: str = ""
    """Template of the user message, `{column}`; only for tables (and `{"..."}` rows of a table's kind)."""
    template: RowTemplate | None = None
    """In the place of `prompt`: the user message, or the system's too."""
    system: str = ""
    """Template of a system message put before the prompt."""
    images: Images | None = None
    """Pictures that become parts of the user message."""
    where: str = ""
    """Only rows of whose columns this is true are taken (`core.where`); empty: all."""
    select: tuple[str, ...] = ()
    """The columns that are kept beside a row, in this order; empty: all."""
    answers: AnswerSchema | None = None
    """What the answers have to match; None: anything."""
    schema_vendors: frozenset[str] = frozenset()
    """The vendors among the destinations that take a schema with a request: their rows get it, if they have none."""
    mixed_endpoints: bool = False
    limit: int = 0
    """Only the first so many rows; 0: all."""
    picked: PickedRows | None = None
    """Only these rows; None: all."""
    max_row_bytes: int = MAX_ROW_BYTES
    in_lines: bool = True
    """False: the rows are items of an array, and what is said of one names no line."""

    @property
    def attached(self) -> str:
        """The vendor's id of the batch that has the rows already; empty: there is none."""
        return next((place.attached for place in self.destinations if place.attached), "")

    @property
    def makes_prompts(self) -> bool:
        """Whether requests are made of the rows' columns."""
        return bool(self.prompt or self.template)

    @property
    def directions(self) -> Directions:
        return Directions(self.destinations, self.routes)
