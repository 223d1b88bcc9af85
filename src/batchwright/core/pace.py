"""The pace of a lane: this worker's share of its requests and tokens a minute, configured or read from the headers."""

from __future__ import annotations

import math

from batchwright.core.rate import MINUTE_S, Gcra, Limits
from batchwright.core.shares import WHOLE_PPM

PLENTY_SHARE = 0.75
"""Of a stated limit; with more than this remaining it does not bind."""
STATED_FOR_S = 120.0
"""What headers said holds so long, two of the windows that vendors count by. Most say it with every answer; of one that
does so with a refusal alone nobody knows later whether it still holds."""
SHARE_LOOK_S = 1.0
"""A lane without a share is asked again so soon; a share that is granted is told of at once anyway."""


class Pace:
    """`configured`: requests and tokens a minute of all workers together; 0: not limited."""

    __slots__ = (
        "_announced",
        "_configured",
        "_limit",
        "_requests",
        "_share_until_s",
        "_stated",
        "_stated_until_s",
        "_tokens",
        "_until_s",
        "binds",
        "share_ppm",
    )

    def __init__(self, configured: tuple[float, float], now_s: float) -> None:
        self._configured = configured
        self._stated = (0.0, 0.0)
        """What the headers ask for now."""
        self._stated_until_s = math.inf
        self._announced = (0.0, 0.0)
        """The limits that they named last, whether these bind now or not."""
        self.share_ppm = WHOLE_PPM
        """Of the limits, for this worker. They are the whole account's, also those that the headers say."""
        self._share_until_s = math.inf
        self._requests: Gcra | None = None
        self._tokens: Gcra | None = None
        self.binds = False
        """A limit holds now; else nothing here has to be asked."""
        self._until_s = -math.inf
        self._limit = ""
        """Until when the pace held the last row back, and which limit it was."""
        self._apply(now_s)

    @property
    def counts_tokens(self) -> bool:
        return self._tokens is not None

    @property
    def per_minute(self) -> tuple[float, float]:
        """Requests and tokens of all workers together, as configured or as the vendor names them, whether they bind now
        or not; 0: that one is not known."""
        requests, tokens = self._configured
        return requests or self._announced[0], tokens or self._announced[1]

    # ------------------------------------------------------------------------------------------------------- sending

    def take_s(self, now_s: float, tokens: int) -> float:
        """0.0: both limits have room, and it is taken. Else the longer wait of the two, and nothing is taken."""
        if now_s >= self._share_until_s:
            self._until_s = now_s + SHARE_LOOK_S
            self._limit = "this worker waits for its share of the limit"
            return SHARE_LOOK_S
        if now_s >= self._stated_until_s:
            self._forget_stated(now_s)
        requests_rate = self._requests
        tokens_rate = self._tokens
        requests_s = requests_rate.wait_s(now_s, 1) if requests_rate is not None else 0.0
        tokens_s = tokens_rate.wait_s(now_s, tokens) if tokens_rate is not None else 0.0
        wait_s = tokens_s if tokens_s > requests_s else requests_s
        if wait_s > 0.0:
            self._until_s = now_s + wait_s
            self._limit = self._text(by_tokens=tokens_s > requests_s)
            return wait_s
        if requests_rate is not None:
            requests_rate.take(now_s, 1)
        if tokens_rate is not None:
            tokens_rate.take(now_s, tokens)
        return 0.0

    def give_back(self, requests: int, tokens: int) -> None:
        """Undoes a part of what was taken; below 0 takes more after the fact."""
        if self._requests is not None:
            self._requests.give_back(requests)
        if self._tokens is not None:
            self._tokens.give_back(tokens)

    def holds_back(self, now_s: float) -> bool:
        """It held a row back, and still does."""
        return self._until_s > now_s

    def sentence(self, now_s: float) -> str:
        """What holds rows back, for a person; empty: nothing here does."""
        return f"rate limit: {self._limit}" if self._until_s > now_s else ""

    # ----------------------------------------------------------------------------------------------------- the limits

    def configure(self, now_s: float, *, requests_per_minute: float, tokens_per_minute: float) -> None:
        self._configured = (requests_per_minute, tokens_per_minute)
        self._apply(now_s)

    def set_share(self, now_s: float, share_ppm: int, until_s: float) -> None:
        """This worker's share from now until then; 0: it has none. What it took and has not paid off keeps its amount,
        and what it did not take is not saved up."""
        self._share_until_s = until_s if share_ppm else -math.inf
        if share_ppm != self.share_ppm:
            self.share_ppm = share_ppm
            self._apply(now_s)

    def lower_share(self, now_s: float, share_ppm: int) -> None:
        """As `set_share`, for as long as the present one holds; changes nothing where that is no larger."""
        if share_ppm < self.share_ppm:
            self.set_share(now_s, share_ppm, self._share_until_s)

    def has_share(self, now_s: float) -> bool:
        return self._share_until_s > now_s

    def learn(self, now_s: float, limits: Limits) -> bool:
        """Takes over what headers say, for STATED_FOR_S. True: they speak of a limit for the first time."""
        if limits.requests_per_minute or limits.tokens_per_minute:
            self._stated_until_s = now_s + STATED_FOR_S
        self._announced = (
            limits.requests_per_minute or self._announced[0],
            limits.tokens_per_minute or self._announced[1],
        )
        requests = _binding(limits.requests_per_minute, limits.remaining_requests, limits.reset_requests_s)
        tokens = _binding(limits.tokens_per_minute, limits.remaining_tokens, limits.reset_tokens_s)
        before = self._stated
        stated = (before[0] if requests is None else requests, before[1] if tokens is None else tokens)
        if stated == before:
            return False
        self._stated = stated
        self._apply(now_s)
        return before == (0.0, 0.0)

    def _forget_stated(self, now_s: float) -> None:
        self._stated = self._announced = (0.0, 0.0)
        self._stated_until_s = math.inf
        self._apply(now_s)

    def _apply(self, now_s: float) -> None:
        """Configured limits win over stated ones, and the share is one of both: what remains of a stated limit remains
        for all workers of the account."""
        requests, tokens = (
            configured or stated for configured, stated in zip(self._configured, self._stated, strict=True)
        )
        self._requests = _rate(self._requests, (requests, self.share_ppm), now_s)
        self._tokens = _rate(self._tokens, (tokens, self.share_ppm), now_s)
        self.binds = self._requests is not None or self._tokens is not None

    def _text(self, *, by_tokens: bool) -> str:
        rate = self._tokens if by_tokens else self._requests
        assert rate is not None
        source = "configured" if self._configured[by_tokens] else "as the vendor says"
        if self.share_ppm < WHOLE_PPM:
            source += f", this worker's share of {self.share_ppm / WHOLE_PPM:.0%}"
        return f"{rate.per_minute:,.0f} {'tokens' if by_tokens else 'requests'} a minute, {source}"


def _binding(per_minute: float, remaining: float, reset_s: float) -> float | None:
    """The pace that a stated limit asks for; 0.0: it does not bind now, None: the headers say nothing of it.

    While most of it remains it is left alone: a limit that is stated and not enforced would else be obeyed for ever.
    Below that, what remains is spread until the reset, which for a vendor that counts by fixed windows is less than
    the limit and for one that refills steadily never is.
    """
    if per_minute <= 0.0:
        return None
    if remaining < 0.0:
        return per_minute
    if remaining >= PLENTY_SHARE * per_minute:
        return 0.0
    if reset_s <= 0.0:
        return per_minute
    return min(per_minute, max(1.0, remaining) * MINUTE_S / reset_s)


def _rate(rate: Gcra | None, limit: tuple[float, int], now_s: float) -> Gcra | None:
    """`limit` is the whole a minute, and the share of it. Without a share nothing is sent, and what is owed stays."""
    whole, share_ppm = limit
    if whole <= 0.0:
        return None
    per_minute = whole * share_ppm / WHOLE_PPM if share_ppm else rate.per_minute if rate is not None else whole
    if rate is None:
        return Gcra(per_minute, now_s)
    if rate.per_minute != per_minute:
        rate.change_rate(per_minute, now_s)
    return rate
