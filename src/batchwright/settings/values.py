"""Texts and TOML values to typed values: durations, numbers, amounts, names, URLs. Every refusal says what is expected.

All readers raise ValueError with a sentence that begins in the middle ("expected a whole number of at least 1, found
'x'"): the caller puts in front where the value stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlsplit

from batchwright.core.batch_spec import VendorProtocol
from batchwright.core.durations import read_duration, shown
from batchwright.core.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from batchwright.core.targets import read_allowed

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
VENDOR_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""No slash (`NAME/model` in a row goes to it) and no bar (lane keys are joined with it)."""
BAD_IN_URL = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]|\s")
"""Also half surrogates: bytes of a command line that are no text."""
DATABASE = re.compile(r"postgres(ql)?://.")
CLUSTER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*):\d{1,5}")
BLOBS = re.compile(r"(s3|gs|az)://[^/@?#]+(/[^?#]*)?|file:///[^?#]+")
MAX_INTEGER = 10**12
SIZE = re.compile(r"(\d{1,15}) ?(B|KiB|MiB|GiB|)", re.IGNORECASE)
SIZE_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
MAX_SIZE = 1 << 50
WORDS_OF_TRUE = ("true", "1", "yes", "on")

E = TypeVar("E", bound=StrEnum)


def read_count(value: object) -> int:
    """A whole number of at least 1."""
    number = value
    if isinstance(value, str) and re.fullmatch(r"\d{1,13}", value.strip()):
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_INTEGER:
        raise ValueError(f"expected a whole number of at least 1, found {value!r}")
    return number


def read_retention(value: object) -> float:
    """A time with its unit: what is deleted is gone, and a bare 30 may have been meant as days."""
    try:
        seconds = 0.0 if isinstance(value, int | float) or re.search(r"\d\s*$", str(value)) else read_duration(value)
    except ValueError:
        seconds = 0.0
    if seconds < 1:
        raise ValueError(f'expected a time of a second at least with its unit, "30d" or "12h", found {shown(value)}')
    return seconds


def read_port(value: object) -> int:
    """0 to 65535."""
    number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,5}", value.strip()) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= 65535:
        raise ValueError(f"expected a port from 0 to 65535, found {value!r}")
    return number


def read_database(value: object) -> str:
    """The URL of a PostgreSQL database, for its driver: what else stands in it is the driver's to read."""
    if isinstance(value, str) and DATABASE.match(value) and not BAD_IN_URL.search(value):
        with suppress(ValueError):  # which quotes what may be a password
            urlsplit(value)
            return value
    # What was found may hold a password.
    raise ValueError("expected postgresql://USER@HOST/NAME, found another text")


def read_cluster(value: object) -> str:
    """`local`, `auto` or HOST:PORT."""
    if isinstance(value, str) and (value in ("local", "auto") or CLUSTER.fullmatch(value)):
        return value
    raise ValueError(
        "expected `local` (a cluster that is begun here and ended with the command), HOST:PORT of a cluster's head, or "
        f"`auto` (the cluster this machine is a node of), found {value!r}"
    )


def read_share(value: object) -> float:
    """A number above 0, in steps of 0.0001, which is as fine as Ray counts."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0.0
    except ValueError:
        number = 0.0
    if not 0.0001 <= number <= 1000 or (number > 1 and number != int(number)):
        raise ValueError(f"expected a number of CPUs such as 0.5, or a whole one, found {value!r}")
    return number


def read_blobs(value: object) -> str:
    """The URL of an object store's bucket or folder, without a slash at its end."""
    if isinstance(value, str) and BLOBS.fullmatch(value) and not BAD_IN_URL.search(value):
        return value.rstrip("/")
    # What was found may hold a key.
    raise ValueError("expected s3://BUCKET/PREFIX, gs://..., az://CONTAINER/... or file:///FOLDER, found another text")


def read_endpoint(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"https?://[^/@?#]+/?", value) and not BAD_IN_URL.search(value):
        return value.rstrip("/")
    raise ValueError("expected https://HOST, or http://HOST:PORT of this machine, found another text")


def read_region(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9-]{1,64}", value):
        return value
    raise ValueError(f"expected a region such as eu-central-1, found {value!r}")


def read_encryption(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"AES256|aws:kms(:dsse)?|aws:kms:[A-Za-z0-9:/_-]+", value):
        return value
    raise ValueError(f"expected AES256, aws:kms, aws:kms:dsse or aws:kms:KEY, found {value!r}")


def read_host(value: object) -> str:
    if isinstance(value, str) and value and not BAD_IN_URL.search(value) and "/" not in value:
        return value
    raise ValueError(f"expected an address such as 127.0.0.1, found {value!r}")


def read_size(value: object) -> int:
    """Bytes from a whole number of them, or `"256MiB"`."""
    found = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    number = int(found[1]) * SIZE_UNITS[found[2].lower()] if found else value
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_SIZE:
        raise ValueError(f'expected a size such as "256MiB" or a whole number of bytes, found {value!r}')
    return number


def read_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in WORDS_OF_TRUE:
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise ValueError(f"expected true or false, found {value!r}")


def read_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text in quotes, found {value!r}")
    return value


def read_variable_name(value: object) -> str:
    """The name of a variable, or "" for none. What does not look like a name may be the key itself: never repeated."""
    if isinstance(value, str) and (not value or VARIABLE_NAME.fullmatch(value)):
        return value
    raise ValueError(
        "expected the NAME of the environment variable that holds the key, such as OPENAI_API_KEY, and found "
        "something that is no such name (not repeated here, because it may be the key itself)"
    )


def read_vendor_name(value: object) -> str:
    if isinstance(value, str) and VENDOR_NAME.fullmatch(value):
        return value
    raise ValueError(f"expected a name (letters, digits, '.', '_', '-'), found {value!r}")


def read_protocol(value: object) -> VendorProtocol:
    """How a vendor of the settings is spoken to."""
    for protocol in (VendorProtocol.OPENAI, VendorProtocol.ANTHROPIC):
        if value == protocol.value:
            return protocol
    raise ValueError(f"expected openai or anthropic, found {value!r}")


def read_base_url(value: object) -> str:
    """An http or https URL up to and without the endpoint; a trailing slash is dropped.

    A batch stores its base URL, so what could be a secret in it (user:password@, a query) is refused.
    """
    if not isinstance(value, str):
        raise ValueError(f"expected a URL such as https://api.example.com/v1, found {value!r}")
    text = value.strip()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"expected a URL such as https://api.example.com/v1, found one that is not: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "a base URL holds no user name or password (batches store it): name the key's variable instead"
        )
    if parts.query or parts.fragment:
        raise ValueError("a base URL ends before '?' and '#' (batches store it, so it must hold no secret)")
    if parts.scheme not in ("http", "https") or not host or port == 0 or BAD_IN_URL.search(text):
        raise ValueError(f"expected a URL such as https://api.example.com/v1, found {value!r}")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ValueError(
            f"expected a URL such as https://api.example.com/v1, found a host that is none: {error}"
        ) from None
    for endpoint in (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES):
        if parts.path.rstrip("/").endswith(endpoint):
            raise ValueError(f"a base URL ends before the endpoint: leave {endpoint!r} away (found {value!r})")
    return text.rstrip("/")


def read_models(value: object) -> tuple[str, ...]:
    """Shell-style patterns of model names."""
    if isinstance(value, list) and value and all(isinstance(pattern, str) and pattern for pattern in value):
        return tuple(value)
    raise ValueError(f'expected a list of model names or patterns such as ["gpt-*"], found {value!r}')


def read_targets(value: object) -> tuple[str, ...]:
    """Host names, addresses and networks: a list, or one text with commas."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise ValueError(f'expected a list such as ["hooks.internal", "10.1.0.0/16"], found {value!r}')
    found = tuple(entry.strip() for entry in entries if entry.strip())
    read_allowed(found)
    return found


def choice_of(kind: type[E]) -> Callable[[object], E]:
    """A reader for one of an enum's values."""

    def read(value: object) -> E:
        for member in kind:
            if value == member.value:
                return member
        raise ValueError(f"expected one of {', '.join(member.value for member in kind)}, found {value!r}")

    return read
