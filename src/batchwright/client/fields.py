"""One JSON object of a reply, read leniently: services write the same number as 12, 12.0 and "12".

Values stay the bytes they came as until they are asked for, so that an amount of money is exact and a vendor's whole
answer is never rebuilt. What is absent, null or of another type counts as not said.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

import msgspec
from msgspec import Raw

from batchwright.wire.json_text import kind_of, read_value

MAX_DIGITS = 40
"""Of a number; what has more is no count and no amount."""
_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])
_string = msgspec.json.Decoder(str)


class Fields:
    __slots__ = ("_values", "raw")

    def __init__(self, raw: bytes | Raw) -> None:
        """Raises ValueError for what is no JSON object."""
        self.raw = bytes(raw)
        try:
            self._values = _object.decode(self.raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"no JSON object: {error}") from None

    def __contains__(self, name: str) -> bool:
        """Null counts as absent."""
        value = self._values.get(name)
        return value is not None and bytes(value) != b"null"

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if value is None:
            return ""
        match kind_of(bytes(value)):
            case "string":
                return _string.decode(value)
            case "number":
                return bytes(value).decode()
            case _:
                return ""

    def amount(self, name: str) -> Decimal | None:
        """A number, exactly as written."""
        try:
            found = Decimal(self.text(name))
        except InvalidOperation:
            return None
        return found if found.is_finite() and (not found or abs(found.adjusted()) <= MAX_DIGITS) else None

    def integer(self, name: str, default: int = 0) -> int:
        found = self.amount(name)
        return default if found is None else int(found)

    def number(self, name: str) -> float | None:
        found = self.amount(name)
        return None if found is None else float(found)

    def flag(self, name: str) -> bool | None:
        value = self._values.get(name)
        return {b"true": True, b"false": False, b'"true"': True, b'"false"': False}.get(bytes(value or b""))

    def fields(self, name: str) -> Fields:
        """An object within; an empty one where there is none."""
        value = self._values.get(name)
        if value is None or kind_of(bytes(value)) != "object":
            return Fields(b"{}")
        return Fields(value)

    def items(self, name: str) -> list[Raw]:
        value = self._values.get(name)
        if value is None or kind_of(bytes(value)) != "array":
            return []
        return _array.decode(value)

    def bytes_of(self, name: str) -> bytes:
        """The value as it came; empty where it is absent or null."""
        return bytes(self._values[name]) if name in self else b""

    def value(self, name: str) -> object:
        return read_value(self._values[name]) if name in self else None

    def names(self) -> list[str]:
        return list(self._values)

    def moment(self, name: str) -> datetime | None:
        """ISO 8601; without a zone it is UTC."""
        try:
            found = datetime.fromisoformat(self.text(name))
        except ValueError:
            return None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
