from __future__ import annotations

import pytest

from batchwright.http.request import check_method, read_url, request_head


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://api.vendor.test/v1/chat/completions", "api.vendor.test", "/v1/chat/completions"),
        ("https://API.Vendor.test:443", "api.vendor.test", "/"),
        ("http://vendor.test:80?a=1", "vendor.test", "/?a=1"),
        ("http://[::1]:8080/v1?x=a%20b&y=/?#part", "[::1]:8080", "/v1?x=a%20b&y=/?"),
        ("http://b\u00fccher.test/\u00fc", "xn--bcher-kva.test", "/%C3%BC"),
        ("http://vendor.test:8000/a;b=c/@x:1/", "vendor.test:8000", "/a;b=c/@x:1/"),
    ],
)
def test_urls(url: str, authority: str, path: str) -> None:
    address = read_url(url)
    assert (address.origin.authority, address.path) == (authority, path)
    assert read_url(address.url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "vendor.test/v1",
        "ftp://vendor.test/",
        "http://",
        "https:///v1",
        "http://vendor.test:99999/",
        "http://vendor.test:no/",
        "http://a..b/",
        "http://" + "a" * 64 + ".test/",
        "http://vendor.test/a b",
        "http://vendor.test/\r\nx: y",
        "http://[::1/",
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|Invalid IPv6"):
        read_url(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="Authorization") as caught:
        read_url("https://user:secret@vendor.test/")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", "Bearer k\r\nx-evil: 1"),
        ("authorization", "Bearer k\x00"),
        ("authorization", "Bearer \u2026"),
        ("bad name", "secret"),
        ("bad\nname", "secret"),
        ("", "secret"),
        ("Content-Length", "secret"),
        ("transfer-encoding", "secret"),
        ("Host", "secret"),
        ("expect", "secret"),
    ],
)
def test_headers_that_would_break_the_frame_are_refused_and_their_values_kept_quiet(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header") as caught:
        request_head("POST", read_url("http://vendor.test/"), {name: value})
    assert value not in str(caught.value)


def test_a_head() -> None:
    head = request_head(
        "POST", read_url("http://vendor.test:81/v1"), {"Authorization": "Bearer k", "User-Agent": "mine"}
    )
    assert head == (
        b"POST /v1 HTTP/1.1\r\nhost: vendor.test:81\r\naccept-encoding: identity\r\naccept: */*\r\n"
        b"Authorization: Bearer k\r\nUser-Agent: mine\r\n"
    )


def test_methods() -> None:
    assert check_method("post") == "POST"
    for method in ("HEAD", "CONNECT", "", "PO ST", "GET\r\n"):
        with pytest.raises(ValueError, match="method"):
            check_method(method)
