"""What the service writes to its standard error: sentences and requests, for people or as JSON for machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from batchwright.ports.clock import Clock
from batchwright.server.access import AccessLine
from batchwright.server.infrai.status_view import moment
from batchwright.settings.table import LogForm


class _Sentence(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="said"):
    time: str
    message: str


class ServiceLog:
    """`write` takes a line; `show` one that is for the person who started the service, and for no log (a key)."""

    def __init__(
        self, form: LogForm, *, clock: Clock, write: Callable[[str], None], show: Callable[[str], None]
    ) -> None:
        self._form = form
        self._clock = clock
        self._write = write
        self.show = show

    def say(self, text: str) -> None:
        if self._form is LogForm.JSON:
            time = moment(self._clock.now_ms()) or ""
            self._write(msgspec.json.encode(_Sentence(time=time, message=text)).decode())
        else:
            self._write(text)

    def request(self, line: AccessLine) -> None:
        match self._form:
            case LogForm.PLAIN:
                self._write(line.to_text())
            case LogForm.JSON:
                self._write(msgspec.json.encode(line).decode())
            case LogForm.QUIET:
                pass
            case _:
                assert_never(self._form)
