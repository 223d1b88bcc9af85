from __future__ import annotations

import pytest

from batchwright.core.errors import UsageError
from batchwright.http.proxies import Proxies
from batchwright.http.request import read_url

PROXY = "http://proxy.test:3128"


def through(environ: dict[str, str], url: str) -> str:
    return Proxies(environ).proxy_for(read_url(url).origin)


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        ({}, "https://v.test/", ""),
        ({"HTTPS_PROXY": PROXY}, "https://v.test/", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://v.test/", ""),
        ({"HTTP_PROXY": PROXY}, "http://v.test/", PROXY),
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, "http://v.test/", ""),
        ({"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, "http://v.test/", PROXY),
        ({"ALL_PROXY": "socks5h://s.test:1080"}, "http://v.test/", "socks5h://s.test:1080"),
        ({"ALL_PROXY": "http://a.test", "https_proxy": PROXY}, "https://v.test/", PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other.test"}, "https://v.test/", PROXY),
        ({"HTTPS_PROXY": "proxy.test:3128"}, "https://v.test/", PROXY),
        ({"HTTPS_PROXY": ""}, "https://v.test/", ""),
    ],
)
def test_which_variable_counts(environ: dict[str, str], url: str, proxy: str) -> None:
    assert through(environ, url) == proxy


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "llama.localhost"])
def test_this_machine_needs_no_proxy(host: str) -> None:
    assert through({"ALL_PROXY": PROXY}, f"http://{host}:8080/") == ""


@pytest.mark.parametrize(
    ("listed", "url", "direct"),
    [
        ("*", "https://v.test/", True),
        ("v.test", "https://v.test/", True),
        ("v.test", "https://api.v.test/", True),
        (".v.test", "https://api.v.test/", True),
        ("*.v.test", "https://api.v.test/", True),
        ("v.test", "https://other-v.test/", False),
        ("a.test, V.TEST b.test", "https://v.test/", True),
        ("v.test:8443", "https://v.test:8443/", True),
        ("v.test:8443", "https://v.test/", False),
        ("10.0.0.0/8", "https://10.1.2.3/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("10.1.2.3", "https://10.1.2.3/", True),
        ("10.1.2.3", "https://110.1.2.3/", False),
        ("fd00::/8", "https://[fd00::1]/", True),
        ("[fd00::1]:444", "https://[fd00::1]:444/", True),
        ("[fd00::1]:444", "https://[fd00::1]/", False),
        ("v.test", "https://10.1.2.3/", False),
        ("", "https://v.test/", False),
        (".", "https://v.test/", False),
    ],
)
def test_no_proxy(listed: str, url: str, direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        assert (through({"ALL_PROXY": PROXY, name: listed}, url) == "") is direct


def test_a_proxy_that_is_none_is_named_without_its_password() -> None:
    with pytest.raises(UsageError, match="HTTPS_PROXY") as caught:
        Proxies({"HTTPS_PROXY": "ftp://user:secret@proxy.test"})
    assert "secret" not in str(caught.value)
