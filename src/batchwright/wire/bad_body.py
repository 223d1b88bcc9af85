"""A body that asks for nothing: what its reader raises, whichever call's it is."""

from __future__ import annotations


class BadBody(ValueError):
    """`param` is the field that is meant; empty: the body as a whole. `json` False: it is not even JSON."""

    def __init__(self, message: str, param: str = "", *, json: bool = True) -> None:
        super().__init__(message)
        self.param = param
        self.json = json
