"""Reads a 200 of /chat/completions or /completions: which flag it ends with.

An answer is paid for whatever it looks like, so nothing here raises. Decoding is typed and takes the few fields
needed; a body that is JSON but not of these types is read again without types (`loose_chat`).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from batchwright.core.failures import FailureKind, Flag
from batchwright.vendors.profiles import Profile
from batchwright.vendors.usage import Charge, Usage, charge_from, usage_from
from batchwright.vendors.valid_text import one_line

FLAG_ORDER = (Flag.FILTERED, Flag.REFUSED, Flag.EMPTY, Flag.TRUNCATED, Flag.PLAIN)
"""Of several that fit, and of several choices, the first counts."""

Content = str | list[Any] | None


class Message(msgspec.Struct, gc=False):
    content: Content = None
    refusal: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    function_call: Any = None
    audio: Any = None
    images: list[msgspec.Raw] | None = None


class Choice(msgspec.Struct, gc=False):
    finish_reason: str | None = None
    message: Message | None = None
    text: str | None = None
    """/completions has it in place of a message."""
    error: Any = None


class ChatAnswer(msgspec.Struct, gc=False):
    choices: list[Choice] | UnsetType | None = UNSET
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    type: str | None = None
    infrai: Charge | None = None


CHAT_DECODER = msgspec.json.Decoder(ChatAnswer)


def is_ordinary(answer: ChatAnswer) -> bool:
    """One choice with text, ended by itself: what nearly every answer is, decided without asking the profile."""
    choices = answer.choices
    if not choices or len(choices) != 1:
        return False
    choice = choices[0]
    message = choice.message
    if choice.finish_reason != "stop" or message is None or message.refusal or choice.error:
        return False
    content = message.content
    return isinstance(content, str) and content != "" and not content.isspace()


def ending(answer: ChatAnswer, profile: Profile) -> tuple[Flag | FailureKind, str]:
    """How a 200 without an error object ended, and for a failure a sentence."""
    choices = answer.choices
    if choices is UNSET:
        if answer.usage is not None or (answer.object or "").startswith(("chat.completion", "text_completion")):
            return Flag.EMPTY, ""
        return FailureKind.BAD_RESPONSE, "the answer has no choices; is the base URL that of an OpenAI-shaped API?"
    if not choices:
        return Flag.EMPTY, ""
    endings = [_ending_of(choice, profile) for choice in choices]
    for choice, end in zip(choices, endings, strict=True):
        if isinstance(end, FailureKind):
            return end, f"the vendor broke the answer off: finish_reason {one_line(choice.finish_reason or '', 40)}"
    return min((end for end in endings if isinstance(end, Flag)), key=FLAG_ORDER.index), ""


def first_error(answer: ChatAnswer) -> object:
    """The error object that a gateway puts into a choice once generation had begun; None where there is none."""
    return next((choice.error for choice in answer.choices or () if choice.error), None)


def _ending_of(choice: Choice, profile: Profile) -> Flag | FailureKind:
    reason = choice.finish_reason
    flag = Flag.PLAIN
    if reason:
        known = profile.finish_flags.get(reason) or profile.finish_flags.get(reason.lower())
        if known is None and reason.lower() in profile.finish_kinds:
            return profile.finish_kinds[reason.lower()]
        # A reason nobody has told us of: the text is there and paid for, but whether it is whole is not known.
        flag = known or Flag.TRUNCATED
    if flag is Flag.FILTERED:
        return flag
    message = choice.message
    if flag is Flag.REFUSED or (message is not None and (message.refusal or _has_part(message.content, "refusal"))):
        return Flag.REFUSED
    return flag if _has_output(choice, message) else Flag.EMPTY


def _has_output(choice: Choice, message: Message | None) -> bool:
    """Text other than blanks, a tool call, sound or pictures. Reasoning alone is no answer."""
    if message is None:
        return bool(choice.text and not choice.text.isspace())
    content = message.content
    if isinstance(content, str) and content and not content.isspace():
        return True
    if message.tool_calls or message.function_call or message.audio or message.images:
        return True
    return isinstance(content, list) and any(_is_output(part) for part in content)


def _is_output(part: object) -> bool:
    if isinstance(part, str):
        return bool(part.strip())
    if not isinstance(part, dict) or part.get("type") in ("thinking", "reasoning", "redacted_thinking"):
        return False
    text = part.get("text")
    return bool(text.strip()) if isinstance(text, str) else len(part) > 1


def _has_part(content: Content, kind: str) -> bool:
    return isinstance(content, list) and any(isinstance(part, dict) and part.get("type") == kind for part in content)


def loose_chat(value: dict[str, object]) -> ChatAnswer:
    """A chat answer whose fields are not of the types they should be: what fits is taken, the rest counts as absent."""
    raw = value.get("choices", UNSET)
    choices: list[Choice] | UnsetType | None = None if raw is None else UNSET
    if isinstance(raw, list):
        choices = [_loose_choice(item) for item in raw if isinstance(item, dict)]
    kind, type_word = value.get("object"), value.get("type")
    return ChatAnswer(
        choices=choices,
        usage=usage_from(value.get("usage")),
        error=value.get("error"),
        object=kind if isinstance(kind, str) else None,
        type=type_word if isinstance(type_word, str) else None,
        infrai=charge_from(value.get("infrai")),
    )


def _loose_choice(item: dict[str, object]) -> Choice:
    reason, text = item.get("finish_reason"), item.get("text")
    return Choice(
        finish_reason=reason if isinstance(reason, str) else None,
        message=_loose_message(item.get("message")),
        text=text if isinstance(text, str) else None,
        error=item.get("error"),
    )


def _loose_message(message: object) -> Message | None:
    if not isinstance(message, dict):
        return None
    content, refusal, calls = message.get("content"), message.get("refusal"), message.get("tool_calls")
    return Message(
        content=content if isinstance(content, (str, list)) else None,
        refusal=refusal if isinstance(refusal, str) else None,
        tool_calls=[msgspec.Raw(b"{}")] if calls else None,
        function_call=message.get("function_call"),
        audio=message.get("audio"),
    )
