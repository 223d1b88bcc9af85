"""The scripted vendor itself: what other tests build on must do what it says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

import pytest

from support.scripted_vendor import ScriptedVendor
from support.vendor_process import VendorProcess
from support.vendor_scripts import read_script

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(base_url: str, text: str) -> tuple[int, dict[str, str], Any]:
    """(status, headers, decoded body); status 0 where no answer came."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    try:
        with OPENER.open(urllib.request.Request(base_url + "/chat/completions", body), timeout=10) as reply:
            return reply.status, dict(reply.headers), json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), json.load(error)
    except OSError:
        return 0, {}, None


def test_a_script_is_the_first_one_of_the_text() -> None:
    assert read_script('say [[status=429 ra="a b" drop]] and [[status=500]]') == {
        "status": "429",
        "ra": "a b",
        "drop": "",
    }
    assert read_script("[[]] none") == {}


def test_times_counts_attempts_of_one_row() -> None:
    with ScriptedVendor() as vendor:
        row, other = "[[status=503 times=2]] a", "[[status=503 times=2]] b"
        statuses = [post(vendor.base_url, text)[0] for text in (row, row, other, row, other, other)]
    assert statuses == [503, 503, 503, 200, 503, 200]


def test_modes_hold_for_every_request_until_they_are_changed() -> None:
    with ScriptedVendor() as vendor:
        seen = []
        for mode in ({"overloaded": True}, {"overloaded": False, "quota_empty": True}, {"quota_empty": False}):
            vendor.set(**mode)
            status, _, body = post(vendor.base_url, "tail")
            seen.append((status, body.get("error", {}).get("code")))
    assert seen == [(503, "overloaded"), (429, "insufficient_quota"), (200, None)]


def test_a_rate_limit_lets_through_what_it_says_and_names_the_wait() -> None:
    with ScriptedVendor() as vendor:
        vendor.set(per_minute=60)
        answers = [post(vendor.base_url, "tail") for _ in range(6)]
    assert Counter(status for status, _, _ in answers)[429] >= 3
    assert all(int(headers["Retry-After"]) >= 1 for status, headers, _ in answers if status == 429)


def test_a_share_of_requests_fails_by_the_seed() -> None:
    def run(seed: int) -> list[int]:
        with ScriptedVendor(seed=seed) as vendor:
            vendor.set(fail_percent=50)
            return [post(vendor.base_url, "tail")[0] for _ in range(40)]

    first = run(1)
    assert set(first) == {0, 200, 429, 500}
    assert first == run(1) != run(2)


def test_waiting_for_hits_ends_with_them() -> None:
    with ScriptedVendor() as vendor:
        post(vendor.base_url, "tail")
        vendor.wait_for(lambda vendor: len(vendor.hits) == 1)
        with pytest.raises(TimeoutError):
            vendor.wait_for(lambda vendor: len(vendor.hits) == 2, timeout_s=0.01)


def test_it_runs_as_a_process_too() -> None:
    with VendorProcess() as vendor:
        assert post(vendor.base_url, "a tail")[2]["choices"][0]["message"]["content"] == "tail"
        vendor.set(refuse=True)
        assert post(vendor.base_url, "tail")[0] == 0
        vendor.set(refuse=False, overloaded=True)
        assert post(vendor.base_url, "tail")[0] == 503
        account = vendor.account(hits=True)
    assert (account["count"], account["in_flight"]) == (2, 0)
    assert [(text, outcome) for _, text, outcome in account["hits"]] == [("a tail", "200"), ("tail", "503")]
