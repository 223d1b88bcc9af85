from __future__ import annotations

from datetime import date

import pytest

from batchwright.core.errors import UsageError
from batchwright.core.failures import FailureKind
from batchwright.vendors.profiles import build_profile, entries, find_profile


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("https://API.GROQ.com/openai/v1", "groq"),
        ("https://open.bigmodel.cn/api/paas/v4", "zhipu"),
        ("https://user:secret@openrouter.ai/api/v1", "openrouter"),
        ("http://localhost:11434/v1", "ollama"),
        ("http://localhost:8000/v1", "general"),
        ("http://[::1]:8000/v1", "general"),
        ("https://api.openai.com.example/v1", "general"),
        ("", "general"),
    ],
)
def test_a_profile_is_found_by_host(base_url: str, name: str) -> None:
    assert find_profile("", base_url).name == name


def test_a_name_goes_before_the_host() -> None:
    assert find_profile("zhipu", "https://api.openai.com/v1").name == "zhipu"


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'zipu'.*zhipu"):
        find_profile("zipu", "")


def test_every_entry_says_where_it_comes_from() -> None:
    for entry in entries().values():
        assert entry.basis in ("documented", "secondary", "unverified")
        assert entry.source
        date.fromisoformat(entry.checked)


def test_what_decides_is_written_as_it_is_looked_up() -> None:
    """Codes, reasons, phrases and header names are compared in lower case, so an entry in another case never fits."""
    for entry in entries().values():
        words = [*entry.codes, *entry.finish_flags, *entry.finish_kinds, *(phrase.text for phrase in entry.phrases)]
        assert [word for word in words if word != word.lower()] == []


def test_a_vendor_keeps_what_is_general_and_adds_its_own() -> None:
    profile = build_profile("zhipu")
    assert profile.codes["1113"] is FailureKind.QUOTA_EXHAUSTED
    assert profile.codes["insufficient_quota"] is FailureKind.QUOTA_EXHAUSTED
