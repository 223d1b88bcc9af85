"""What answers of a vendor mean to whoever checks the settings. Pure: the same answers always give the same findings.

What is certain about a key or a model only a row can tell (`judge_asked`): some vendors give their list to everybody,
some have none, and some take names that they do not list.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from batchwright.core.batch_spec import Destination
from batchwright.core.checkup import Checked, failed, passed, warned
from batchwright.core.failures import FailureKind
from batchwright.core.routes import is_pattern
from batchwright.ports.vendor import Answer
from batchwright.vendors.listing import MODELS, Listing

MAX_SHOWN = 5
VERSION = "/v1"
"""How most base URLs end, and what is forgotten most often."""
SAME_NAME = (("models/", ""), ("", ":latest"))
"""What some vendors put around a model's name in their list, and need in no row: Gemini's prefix, Ollama's tag."""
REACH = "Correct base_url, or see to the network, the proxy variables, or (a certificate of your own) SSL_CERT_FILE"
FAILS: dict[FailureKind, tuple[str, str]] = {
    FailureKind.UNREACHABLE: ("a server that takes connections", REACH),
    FailureKind.NETWORK: ("an answer", REACH),
    FailureKind.TIMEOUT: ("an answer in time", REACH),
    FailureKind.ANSWER_TOO_LARGE: ("a short answer", "Correct base_url: this is no API"),
    FailureKind.BAD_RESPONSE: ("a JSON object", "Correct base_url: many end in /v1"),
    FailureKind.QUOTA_EXHAUSTED: ("an account with credit", "Give the account credit, or take another"),
    FailureKind.OVERLOADED: ("an answer", "Try again; if it stays so, ask whoever runs it"),
}
"""(expected, what to do) of kinds that fail every row alike."""
ASK = "--ask sends one request of 1 token for each model that is named, which costs little and tells for certain"
ASKED = "See what is said of its models: they were asked, and none has answered"
ASK_NONE = (
    "Name a model for --ask to ask (-m, a route, or the vendor's `models`): the settings name none of this vendor"
)


def judge_listing(place: Destination, listing: Listing, *, answers: bool, ask: str = ASK) -> Checked:
    """Whether the vendor can be reached and takes the key. `answers`: a request was answered there just now, which
    counts for more than what this path says. `ask`: what a person can do to know more."""
    subject, answer = f"vendor {place.vendor}", listing.answer
    key = f"the key in {place.key_env} was not refused" if place.key_env else "no key is sent"
    url = f"{place.base_url} ({key})"
    if listing.models is not None and not listing.models:
        if answers:
            return passed(subject, f"{url} answers; it lists no model")
        return warned(subject, f"{url} lists no model", "a list of models, which shows what it serves", remedy=ask)
    if listing.models is not None:
        return passed(subject, f"{url} lists {len(listing.models):,} model{'s' * (len(listing.models) != 1)}")
    said = answer.message or f"HTTP {answer.http_status}"
    if answer.kind is None:
        found = f"{url} answers, but {MODELS} holds no list of models"
    elif _fails(answer) and not answers:
        return _failure(place, answer)
    else:
        found = f"{place.base_url} does not list its models: {said}"
    if answers:
        return passed(subject, f"{url} answers; {found}")
    return warned(subject, found, "a list of models, which shows that the key is taken", remedy=ask)


def judge_path(place: Destination, meant: str) -> Checked:
    """`meant`: the same address with its version, where the vendor lists its models."""
    return failed(
        f"vendor {place.vendor}",
        f"{place.base_url} has no {MODELS} (HTTP 404), and {meant} has",
        "the address that rows go to, with its version",
        remedy=f'Correct base_url: "{meant}"',
    )


def judge_asked(place: Destination, model: str, answer: Answer) -> Checked:
    """What became of one request of 1 token."""
    subject = f"model {place.vendor}/{model}"
    if answer.kind is None:
        return passed(subject, f"answers (HTTP {answer.http_status})")
    if _fails(answer):
        return _failure(place, answer, subject)
    if answer.kind is FailureKind.MODEL_NOT_FOUND:
        found = answer.message or f"HTTP {answer.http_status}"
        return failed(subject, found, "a model of this vendor", remedy="Correct the name where it stands")
    return warned(
        subject,
        f"{answer.kind.value}: {answer.message or f'HTTP {answer.http_status}'}",
        "an answer to a chat request of 1 token",
        remedy="Rows of this model may go through all the same if they ask for something else (embeddings, another "
        "parameter)",
    )


def _fails(answer: Answer) -> bool:
    redirected = 300 <= answer.http_status <= 399
    return redirected or answer.kind is FailureKind.AUTH or answer.kind in FAILS


def _failure(place: Destination, answer: Answer, subject: str = "") -> Checked:
    subject = subject or f"vendor {place.vendor}"
    status = f"HTTP {answer.http_status}: " if answer.http_status and "HTTP" not in answer.message else ""
    found = f"{place.base_url}: {status}{answer.message}".removesuffix(": ")
    if answer.kind is FailureKind.AUTH:
        if not place.key_env:
            remedy = 'It wants a key: name its variable where the address stands (api_key_env = "NAME")'
            return failed(subject, found, "a vendor that needs no key", remedy=remedy)
        return failed(subject, found, f"the key in {place.key_env} to be taken", remedy=f"Set {place.key_env} anew")
    expected, remedy = FAILS.get(answer.kind, ("an answer", "Correct base_url")) if answer.kind else ("", "")
    return failed(subject, found, expected, remedy=remedy)


def judge_models(place: Destination, listing: Listing, named: Sequence[str]) -> list[Checked]:
    """Whether the models that the settings name are in the list. Nothing where there is no list, or an empty one, which
    says nothing of any model."""
    if not listing.models:
        return []
    return [
        *(_judge_name(place, name, listing.models) for name in named),
        *(
            warned(
                f"vendor {place.vendor}",
                f"models: no name in its list matches {pattern!r}",
                f"one of {_shown(listing.models)}",
                remedy="Correct the pattern, or leave it if the vendor takes names that it does not list",
            )
            for pattern in place.models
            if pattern != "*" and is_pattern(pattern) and not _matched(pattern, listing.models)
        ),
    ]


def _judge_name(place: Destination, name: str, listed: Sequence[str]) -> Checked:
    subject = f"model {place.vendor}/{name}"
    if any(f"{before}{name}{after}" in listed for before, after in (("", ""), *SAME_NAME)):
        return passed(subject, "is in the vendor's list")
    close = get_close_matches(name, listed, n=1)
    meant = f"Did you mean {close[0]}? Correct" if close else "Correct"
    return failed(
        subject,
        f"is not among the {len(listed):,} models that the vendor lists",
        f"one of {_shown(listed)}",
        remedy=f"{meant} the name where it stands; a vendor that takes names it does not list shows that with --ask",
    )


def _matched(pattern: str, listed: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(name.removeprefix("models/"), pattern) for name in listed)


def _shown(listed: Sequence[str]) -> str:
    more = f" and {len(listed) - MAX_SHOWN:,} more" if len(listed) > MAX_SHOWN else ""
    return ", ".join(listed[:MAX_SHOWN]) + more
