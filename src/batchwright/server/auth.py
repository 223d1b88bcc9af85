"""Who may ask: bearer keys, looked up by their hash, with scopes, an expiry and a pace."""

from __future__ import annotations

import asyncio

from batchwright.core.rate import Gcra, burst_of
from batchwright.core.tenants import Scope, digest_of_key
from batchwright.ports.clock import Clock
from batchwright.ports.keys import ApiKey, Keys
from batchwright.server.faults import Fault

REMEMBERED_S = 1.0
"""A key that was looked up holds so long without another look: a revocation is in force that much later."""
REMEMBERED_MAX = 10_000
MAX_KEY_CHARS = 512


class Doorkeeper:
    def __init__(self, keys: Keys, clock: Clock) -> None:
        self._keys, self._clock = keys, clock
        self._known: dict[str, tuple[float, ApiKey]] = {}
        self._pace: dict[str, Gcra] = {}
        self._used: dict[str, int] = {}

    async def admit(self, authorization: str, scope: Scope) -> ApiKey:
        """Raises Fault: UNAUTHORIZED, FORBIDDEN, RATE_LIMITED."""
        key = await self._find(_bearer(authorization))
        if scope not in key.scopes:
            held = ", ".join(sorted(key.scopes)) or "none"
            raise Fault("FORBIDDEN", f"This call needs the scope {scope.value}; the key {key.shown}... has: {held}.")
        self._check_pace(key)
        self._used[key.key_id] = self._clock.now_ms()
        return key

    def take_used(self) -> dict[str, int]:
        """Moments of last use by key id, since this was asked before: for `Keys.touch_keys`."""
        used, self._used = self._used, {}
        return used

    async def _find(self, text: str) -> ApiKey:
        digest = digest_of_key(text)
        now_s = self._clock.now_s()
        known = self._known.get(digest)
        if known is None or now_s - known[0] > REMEMBERED_S:
            key = await asyncio.to_thread(self._keys.find_key, digest)
            if key is None:
                self._known.pop(digest, None)
                raise Fault(
                    "UNAUTHORIZED", "The key is not known to this service.", hint="`batchwright keys create` makes one."
                )
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[digest] = known = (now_s, key)
        key = known[1]
        if not key.usable(self._clock.now_ms()):
            what = "was revoked" if key.revoked_at_ms else "has expired"
            raise Fault("UNAUTHORIZED", f"The key {key.shown}... {what}.", hint="`batchwright keys create` makes one.")
        return key

    def _check_pace(self, key: ApiKey) -> None:
        if not key.rpm:
            return
        now_s = self._clock.now_s()
        pace = self._pace.get(key.key_id)
        if pace is None or pace.per_minute != key.rpm:
            pace = self._pace[key.key_id] = Gcra(key.rpm, now_s, burst=burst_of(key.rpm))
        wait_s = pace.wait_s(now_s, 1)
        if wait_s > 0:
            raise Fault(
                "RATE_LIMITED",
                f"The key {key.shown}... may ask {key.rpm} times a minute, {burst_of(key.rpm)} of them at once.",
                retry_after_s=wait_s,
            )
        pace.take(now_s, 1)


def _bearer(authorization: str) -> str:
    kind, _, text = authorization.partition(" ")
    text = text.strip()
    if kind.lower() != "bearer" or not text or len(text) > MAX_KEY_CHARS:
        raise Fault(
            "UNAUTHORIZED",
            "No key was sent; expected the header `Authorization: Bearer KEY`.",
            hint="`batchwright keys create` makes one.",
        )
    return text
