from __future__ import annotations

import pytest

from batchwright.core.endpoints import BadEndpoint, normal_endpoint, wire_url


@pytest.mark.parametrize(
    "url",
    [
        "/v1/chat/completions",
        "/chat/completions",
        "v1/chat/completions/",
        "chat/completions",
        "/v4/chat/completions",
        "/v1beta/chat/completions",
        "//v1//chat/completions"[1:],
    ],
)
def test_harmless_spellings_are_one_endpoint(url: str) -> None:
    assert normal_endpoint(url) == "/chat/completions"


def test_other_paths_stay_what_they_are() -> None:
    assert normal_endpoint("/v1/embeddings") == "/embeddings"
    assert normal_endpoint("/openai/deployments/x/chat/completions") == "/openai/deployments/x/chat/completions"
    assert normal_endpoint("/v1") == "/v1"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/v1/chat/completions",
        "https://elsewhere.invalid/v1/chat/completions",
        "//elsewhere.invalid/v1/chat/completions",
        "/v1/../admin",
        "/v1/./chat",
        "/v1/chat/completions?key=1",
        "/v1/chat\r\nHost: elsewhere.invalid",
        "/v1/chat completions",
        "/v1/%2e%2e/admin",
        "\\\\elsewhere\\x",
        "",
        "/",
        "/" + "a" * 300,
    ],
)
def test_what_could_lead_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(BadEndpoint, match=r"expected|absolute"):
        normal_endpoint(url)


def test_round_trip() -> None:
    assert normal_endpoint(wire_url("/chat/completions")) == "/chat/completions"
