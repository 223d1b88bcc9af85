"""`ports.webhooks.Targets`: a look-up, judged by `core.targets`."""

from __future__ import annotations

from collections.abc import Sequence

from batchwright.core.targets import Allowed, Target, check_addresses, literal_address, read_target
from batchwright.ports.http import Lookup


class CheckedTargets:
    def __init__(self, lookup: Lookup, allowed: Allowed) -> None:
        self._lookup = lookup
        self._allowed = allowed

    def read(self, url: str) -> Target:
        target = read_target(url)
        address = literal_address(target)
        if address:
            check_addresses(target, (address,), self._allowed)
        return target

    async def resolve(self, target: Target) -> Sequence[str]:
        address = literal_address(target)
        addresses = (address,) if address else tuple(await self._lookup(target.host, target.port))
        check_addresses(target, addresses, self._allowed)
        return addresses
