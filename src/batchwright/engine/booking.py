"""What an answer means for its lane and for the bill, whoever asked: a row or a call."""

from __future__ import annotations

from batchwright.core.failures import KINDS, FailureKind, LaneSignal
from batchwright.core.lanes import LaneEnd
from batchwright.core.pricing import answer_cost
from batchwright.core.records import UNKNOWN, UsageSum
from batchwright.engine.desk import LaneDesk
from batchwright.ports.vendor import Answer

Money = tuple[int, int, int]
"""(known cost in picousd, 1 if it has no price, 1 if it has no usage)."""


def tell_lane(
    desk: LaneDesk,
    answer: Answer,
    *,
    tokens: int,
    started_s: float,
    now_s: float,
    chance: float,
    of_row: bool = False,
) -> None:
    """`tokens`: what `admit` was given. The answer to what was admitted at `started_s`. `of_row`: as in `LaneEnd`."""
    used = UNKNOWN
    if answer.prompt_tokens >= 0 and answer.completion_tokens >= 0:
        used = answer.prompt_tokens + answer.completion_tokens
    desk.lane.ended(
        now_s,
        LaneEnd(
            kind=answer.kind,
            success=answer.kind is None,
            wait_s=answer.wait_s,
            limits=answer.limits,
            tokens_reserved=tokens,
            tokens_used=used,
            reason=_reason(answer) if answer.kind is not None else "",
            sent_s=started_s,
            of_row=of_row,
        ),
        chance,
    )
    if answer.kind is not None and KINDS[answer.kind].lane is LaneSignal.PAUSE:
        status = f"{answer.http_status} {answer.code}".strip()
        reason = f"{answer.kind.value} ({status}): {answer.message}".rstrip(": ")
        if answer.kind is FailureKind.AUTH and not desk.destination.key_env and desk.destination.base_url:
            reason = f"{reason.rstrip('.')}. No key was sent: name its variable with --api-key-env"
        desk.lane.pause(now_s, reason)


def money_of(desk: LaneDesk, answer: Answer) -> Money:
    """Of one ended attempt."""
    if answer.cost_picousd != UNKNOWN:
        return answer.cost_picousd, 0, 0
    if desk.price is not None and desk.price.zero_rated:
        return 0, 0, 0
    if answer.prompt_tokens == UNKNOWN:
        # Without the input's count what it cost is not known, whatever is said of the output.
        return 0, 0, 1 if _was_answered(answer) or answer.completion_tokens != UNKNOWN else 0
    if desk.price is None:
        return 0, 1, 0
    cost_picousd = answer_cost(
        desk.price,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cached_tokens=answer.cached_tokens,
    )
    return (cost_picousd, 0, 0) if cost_picousd is not None else (0, 1, 0)


def usage_of(answer: Answer, money: Money) -> UsageSum | None:
    """What an answer adds to the usage; None: nothing, it was not answered and cannot be billed."""
    if answer.kind is not None and money == (0, 0, 0) and answer.prompt_tokens == UNKNOWN:
        return None
    return UsageSum(
        answers=1,
        prompt_tokens=max(0, answer.prompt_tokens),
        completion_tokens=max(0, answer.completion_tokens),
        cached_tokens=max(0, answer.cached_tokens),
        cost_picousd=money[0],
        unpriced=money[1],
        no_usage=money[2],
    )


def _reason(answer: Answer) -> str:
    """Why an attempt failed, for a screen: what a vendor's status and code say, or our own sentence where none came."""
    return f"HTTP {answer.http_status} {answer.code}".rstrip() if answer.http_status else answer.message


def _was_answered(answer: Answer) -> bool:
    """Whether the vendor did the work, although what came cannot be used."""
    if answer.kind is None or answer.kind is FailureKind.ANSWER_TOO_LARGE:
        return True
    return answer.kind is FailureKind.BAD_RESPONSE and 200 <= answer.http_status <= 299
