"""Where strangers may have requests sent to: spellings, addresses, and the list of what is allowed beside them."""

from __future__ import annotations

import pytest

from batchwright.core.targets import (
    TargetRefused,
    check_addresses,
    literal_address,
    read_allowed,
    read_target,
)

NOTHING = read_allowed(())
HOOK = read_target("https://hooks.example.com/x")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://hooks.example.com/a?b=c", "hooks.example.com", 443),
        ("http://Hooks.Example.COM.:8080", "hooks.example.com", 8080),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443),
        ("https://93.184.216.34/", "93.184.216.34", 443),
        ("https://[2606:2800:220:1::1]:8443/", "2606:2800:220:1::1", 8443),
        ("https://127.0.0.1.nip.io/", "127.0.0.1.nip.io", 443),
    ],
)
def test_plain_urls(url: str, host: str, port: int) -> None:
    target = read_target(url)
    assert (target.host, target.port) == (host, port)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://2130706433/", "odd spelling"),
        ("http://0x7f000001/", "odd spelling"),
        ("http://0x7f.0.0.1/", "odd spelling"),
        ("http://0177.0.0.1/", "odd spelling"),
        ("http://127.1/", "odd spelling"),
        ("http://127.0.1/", "odd spelling"),
        ("http://0/", "odd spelling"),
        ("http://0x/", "odd spelling"),
        ("http://127.0.0.01/", "odd spelling"),
        ("http://example.0x7f/", "odd spelling"),
        ("http://256.1.1.1/", "odd spelling"),
        ("http://\uff11\uff12\uff17.0.0.1/", "outside ASCII"),
        ("http://127\u30020\u30020\u30021/", "outside ASCII"),
        ("http://b\u00fccher.example/", "outside ASCII"),
        ("http://%31%32%37.0.0.1/", "odd spelling"),
        ("http://loc%61lhost/", "no host name"),
        ("http://[fe80::1%25eth0]/", "no host name"),
        ("http://a b/", "white space"),
        ("http://a\n.example/", "white space"),
        ("http://a.example\\@b.example/", "backslash"),
        ("http://user:pass@a.example/", "user name"),
        ("http://@a.example/", "user name"),
        ("http://a.example/#x", "'#'"),
        ("http://a.example:0/", "expected a URL"),
        ("http://a.example:99999/", "not"),
        ("http://[::1/", "not"),
        ("ftp://a.example/", "expected a URL"),
        ("file:///etc/passwd", "expected a URL"),
        ("//a.example/", "expected a URL"),
        ("http:///x", "expected a URL"),
        ("", "expected a URL"),
        ("http://a..example/", "no host name"),
        ("http://-a.example/", "no host name"),
        ("https://a.example/" + "x" * 3000, "characters"),
    ],
)
def test_other_spellings_are_refused(url: str, words: str) -> None:
    with pytest.raises(TargetRefused, match=words):
        read_target(url)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1", "this machine itself"),
        ("127.8.9.1", "this machine itself"),
        ("::1", "this machine itself"),
        ("0.0.0.0", "no address"),
        ("::", "no address"),
        ("0.1.2.3", "private"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "provider"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "private"),
        ("192.0.0.1", "private"),
        ("192.0.2.1", "private"),
        ("198.18.0.1", "private"),
        ("203.0.113.9", "private"),
        ("2001:db8::1", "private"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("240.0.0.1", "private|reserved"),
        ("255.255.255.255", "private|reserved"),
        ("::ffff:127.0.0.1", "IPv6 form"),
        ("::ffff:8.8.8.8", "IPv6 form"),
        ("::127.0.0.1", "IPv6 form"),
        ("64:ff9b::7f00:1", "NAT64"),
        ("64:ff9b::808:808", "NAT64"),
        ("64:ff9b:1::1", "NAT64"),
        ("2002:7f00:1::1", "6to4"),
        ("2002:808:808::1", "6to4"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
    ],
)
def test_addresses_that_are_not_public(address: str, words: str) -> None:
    with pytest.raises(TargetRefused, match=words):
        check_addresses(HOOK, (address,), NOTHING)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "100.128.0.1"])
def test_public_addresses(address: str) -> None:
    check_addresses(HOOK, (address,), NOTHING)


def test_one_bad_address_spoils_all() -> None:
    with pytest.raises(TargetRefused, match=r"hooks\.example\.com resolves to 10\.0\.0\.1, which is a private"):
        check_addresses(HOOK, ("8.8.8.8", "10.0.0.1"), NOTHING)


def test_what_is_allowed() -> None:
    allowed = read_allowed(["10.1.0.0/16", "hooks.internal", " ::1 ", "fd00::/8", "[fe80::1]", "64:ff9b::/96"])
    check_addresses(HOOK, ("10.1.2.3", "::1", "fd00::5"), allowed)
    check_addresses(read_target("http://Hooks.Internal./"), ("192.168.0.1",), allowed)
    check_addresses(HOOK, ("64:ff9b::808:808",), allowed)
    for address in ("10.2.0.1", "127.0.0.1", "192.168.0.1"):
        with pytest.raises(TargetRefused):
            check_addresses(HOOK, (address,), allowed)


def test_an_allowed_form_does_not_allow_what_it_leads_to() -> None:
    with pytest.raises(TargetRefused, match="this machine itself"):
        check_addresses(HOOK, ("64:ff9b::7f00:1",), read_allowed(["64:ff9b::/96"]))


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "http://a", "a b", "2130706433", "*", ""])
def test_what_allows_nothing_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="expected host names"):
        read_allowed([entry])


def test_an_address_is_told_from_a_name() -> None:
    assert literal_address(read_target("http://[::1]/")) == "::1"
    assert literal_address(HOOK) == ""
