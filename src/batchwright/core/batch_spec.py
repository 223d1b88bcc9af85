"""What was asked for: the values a batch is created with and never changes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from batchwright.core.answer_schema import AnswerSchema
from batchwright.core.doubt import OnUncertain
from batchwright.core.failure_limit import FailureLimit
from batchwright.core.gate import GateRule

CHUNK_OF = "batchwright_chunk_of"
"""In the metadata of a batch that a run has sent to a service, as a chunk of its rows: the mark of the store that has
the run. Where that is this very store the run is the batch that people know."""


class LaneKey(NamedTuple):
    """What shares a rate limit: a vendor, an account there (the name of the key's variable) and a model."""

    vendor: str
    account: str
    model: str

    def __str__(self) -> str:
        return f"{self.vendor}|{self.account}|{self.model}"

    @classmethod
    def parse(cls, text: str) -> LaneKey:
        """The inverse of `str`; a model name may hold any character. Raises ValueError for another form."""
        vendor, account, model = text.split("|", 2)
        return cls(vendor, account, model)


class VendorProtocol(StrEnum):
    """How rows are put to a vendor."""

    OPENAI = "openai"
    """A request a row, over HTTP, in the words of OpenAI's API."""
    ANTHROPIC = "anthropic"
    """Likewise, in those of Anthropic's Messages API: rows and answers are translated."""
    SERVICE = "service"
    """A batch service, which gets rows in chunks."""
    BATCH = "batch"
    """The vendor's own batch API, which gets rows by the file and has hours for them."""
    LOCAL = "local"
    """A llama.cpp server started as a child."""
    SIMULATED = "simulated"
    """The simulator: nothing is sent."""


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go: one vendor. Holds the *name* of the key's variable, never the key."""

    vendor: str
    base_url: str
    """Up to and without the endpoint (`https://api.openai.com/v1`); empty for `local` and `simulated`."""
    key_env: str = ""
    """Empty: no key is sent."""
    protocol: VendorProtocol = VendorProtocol.OPENAI
    profile: str = ""
    """Name of the vendor profile (`vendors/profiles.toml`); empty: found from the base URL, else the general one."""
    model_file: str = ""
    """For `local`: a GGUF file; empty is the default model."""
    models: tuple[str, ...] = ()
    """Shell-style patterns of the model names it serves; empty: any name no other destination claims."""
    dotenv_file: str = ""
    """Absolute path of the `.env` its address came from: only a key of that very file may go there, none of the
    environment and none of another `.env`. Empty: any key of that name may."""
    region: str = ""
    """Where the vendor is, in a person's own word; shown beside its answers, and nothing follows from it."""
    batch_of: str = ""
    """For `batch`: the name of the vendor whose batch API it is."""
    live: VendorProtocol = VendorProtocol.OPENAI
    """For `batch`: how that vendor itself is spoken to."""
    live_too: bool = False
    """For `batch`: what it does not bring in time goes to that vendor itself."""
    attached: str = ""
    """For `batch`: the vendor's id of a batch that was created elsewhere and has the first attempt of every row, each
    under its custom_id; empty: there is none."""
    group: str = ""
    """For `batch`: the batch of ours whose rows, and no others, go there by this entry: files are made of them, and are
    cancelled with them. Empty until the batch is created."""
    unusable: str = ""
    """Why no row may go there (its key is withheld, its model file is not there): the rows it would get are unroutable.
    It is not left out, because they would go to another vendor then."""


def with_keys_of(own: Sequence[Destination], now: Sequence[Destination]) -> tuple[Destination, ...]:
    """`own`, each with the key that the same vendor at the same address has in `now`: where rows go stays as it was
    submitted, and who pays for them may change."""
    there = {_address(place): place for place in now if not place.unusable}
    found = []
    for place in own:
        other = there.get(_address(place), place)
        found.append(msgspec.structs.replace(place, key_env=other.key_env, dotenv_file=other.dotenv_file))
    return tuple(found)


def _address(place: Destination) -> tuple[str, str, VendorProtocol]:
    if place.protocol is VendorProtocol.BATCH:
        return place.batch_of, place.base_url, place.live
    return place.vendor, place.base_url, place.protocol


def live_place(place: Destination) -> Destination:
    """The vendor itself, of the place of its batch API."""
    return msgspec.structs.replace(
        place, vendor=place.batch_of, protocol=place.live, batch_of="", live_too=False, attached="", group=""
    )


class RouteStep(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of a route: a model at a vendor."""

    vendor: str
    model: str
    """As the vendor gets it."""
    weight: int = 0
    """Its share of the rows that begin with it; 0: a row only comes here when another choice cannot take it."""


Routes = dict[str, tuple[RouteStep, ...]]
"""By the model name that rows give; the choices in the order in which they are tried."""


def name_of_lane(key: LaneKey, destination: Destination) -> str:
    """What a lane is called among workers: its key, `#` and the digest of the place it leads to. Two batches whose
    lanes read alike may lead to different places, and those of one are nothing to the other. A batch that got another
    key since it was submitted has the old one in its rows' lanes, and sends under the new one."""
    return f"{key._replace(account=destination.key_env)}#{place_digest(destination)}"


def split_lane(name: str) -> tuple[str, str]:
    """Of a lane's name: its key as it is written (`LaneKey.parse` reads it), and the digest of its place."""
    text, _, place = name.rpartition("#")
    return text, place


def place_digest(destination: Destination) -> str:
    """Eight hex digits that differ where rows would go somewhere else, be read otherwise, or have another key."""
    place = msgspec.structs.replace(destination, models=(), region="", unusable="")
    return hashlib.blake2s(msgspec.json.encode(place), digest_size=4).hexdigest()


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch took over of the answers that were there when it began, in rows."""

    reused: int
    """Have the answer of an earlier batch that was asked for: of the same file, or named."""
    cached: int
    """Have that of any other batch."""
    again: int
    """Were in one of those that was asked for, and had no answer there that is taken over."""
    changed: int
    """As many of the others as the newest of those batches has rows that are none of these."""
    new: int
    """All other rows."""

    @property
    def answers(self) -> int:
        return self.reused + self.cached


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch was submitted with. Durable, one JSON value; nothing in it is a secret."""

    name: str
    """The input's file name, for people."""
    source: str = ""
    """Absolute path of the input; empty for standard input or a list."""
    identity: str = ""
    """Hex digest of the input bytes and of everything that changes a request's bytes. Where its rows go is compared
    by `destinations`."""
    input_digest: str = ""
    """Hex digest of the input bytes alone."""
    options: dict[str, str] = {}
    """What `identity` was made from beside the input, for 'differs in ...' messages."""
    destinations: tuple[Destination, ...]
    routes: Routes = {}
    """As they were when it was submitted: a batch keeps them."""
    max_attempts: int = 5
    on_uncertain: OnUncertain = OnUncertain.RETRY
    gate: GateRule = GateRule.PAUSE
    """What happens when the first rows all fail permanently in the same way."""
    stop_after: FailureLimit | None = None
    """After how many rows without success it stops; None: it goes on."""
    max_cost_picousd: int = -1
    """-1: no cap."""
    soft_cap: bool = False
    """The cap was set although some row has no bound or price."""
    concurrency: int = 0
    """The user's bound on rows in flight; 0: the default."""
    rpm: int = 0
    tpm: int = 0
    timeout_s: float = 0.0
    """Total time of one attempt; 0: the default."""
    group_prefix: bool | None = None
    """Rows whose prompts begin alike are sent one after another; None: where the vendor gains by it."""
    metadata: dict[str, str] = {}
    """The caller's own words about it; nothing here reads them."""
    dedup: bool = False
    """Rows with the request of an earlier one share its outcome (`InputRow.shares`)."""
    kept: Kept | None = None
    """Set where a run was asked to take answers over."""
    csv_columns: tuple[str, ...] = ()
    """The input's own columns, in order, where it is a table."""
    csv_delimiter: str = ""
    """What separates them there; empty: a comma."""
    csv_mark: bool = False
    """It begins with a byte-order mark, by which a spreadsheet knows UTF-8."""
    answers: AnswerSchema | None = None
    """What its answers have to match; None: they are taken as they come."""
    arrow_schema: str = ""
    """Their types, where they have some: the base64 of an Arrow schema, as its IPC message. Empty: they are strings."""
    mixed_endpoints: bool = False
    """Its rows may go to several endpoints."""


def grouped(spec: BatchSpec, batch_id: str) -> BatchSpec:
    """As it is kept with the batch of this id: a batch API is entered by one batch at a time."""
    if all(place.protocol is not VendorProtocol.BATCH for place in spec.destinations):
        return spec
    places = (
        msgspec.structs.replace(place, group=batch_id) if place.protocol is VendorProtocol.BATCH else place
        for place in spec.destinations
    )
    return msgspec.structs.replace(spec, destinations=tuple(places))
