from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from genai_prices import Usage
from genai_prices.data import providers
from genai_prices.types import ModelPrice, PriceCalculation

from batchwright.core.money import picousd_from_usd
from batchwright.core.pricing import cost_of
from batchwright.prices.open import SIMULATED, open_prices
from batchwright.prices.shipped import SHIPPED_FILE, ShippedTable, matches
from batchwright.vendors.simulated import Simulation

SHIPPED = msgspec.json.decode(SHIPPED_FILE.read_bytes(), type=ShippedTable)


def test_prices_are_found_by_a_vendors_name_and_by_its_host() -> None:
    find = open_prices(None).price
    by_name = find("groq", "llama-3.3-70b-versatile")
    assert by_name is not None
    assert find("api.groq.com", "llama-3.3-70b-versatile") == by_name
    assert find("API.GROQ.COM:443", "LLama-3.3-70B-versatile") == by_name
    assert by_name.price_id.endswith(f"{SHIPPED.date} groq/llama-3.3-70b-versatile")
    assert (by_name.input_rate, by_name.output_rate) == (picousd_from_usd("0.59"), picousd_from_usd("0.79"))


def test_a_reseller_has_the_prices_of_whom_it_resells() -> None:
    find = open_prices(None).price
    resold = find("my-team.openai.azure.com", "gpt-4o")
    assert resold is not None
    assert resold == find("openai", "gpt-4o")


@pytest.mark.parametrize("host", ["api.moonshot.cn", "api.moonshot.ai:443"])
def test_a_pattern_may_leave_the_top_level_domain_open(host: str) -> None:
    assert open_prices(None).price(host, "kimi-k2-0905-preview") is not None


@pytest.mark.parametrize(
    ("vendor", "model"),
    [
        ("api.moonshot.cn.example.org", "kimi-k2-0905-preview"),
        ("openai", "a-model-nobody-has"),
        ("127.0.0.1:8000", "gpt-4o"),
        ("localhost:8000", "gpt-4o"),
        ("api.openai.com.example.org", "gpt-4o"),
        ("my-proxy", "gpt-4o"),
        ("", ""),
        ("openai", ""),
        ("openai", "whisper-1"),
    ],
)
def test_what_is_not_known_is_none_and_never_free(vendor: str, model: str) -> None:
    assert open_prices(None).price(vendor, model) is None


def test_the_local_model_costs_nothing_and_the_simulator_what_it_says() -> None:
    find = open_prices(None).price
    local = find("local", "smollm2")
    assert local is not None
    assert local.zero_rated
    assert cost_of(local, 1_000, 1_000, 0) == 0
    assert find("simulated", "anything") is SIMULATED
    stated = Simulation()
    assert cost_of(SIMULATED, 7, 3, 0) == 7 * stated.prompt_picousd + 3 * stated.completion_picousd
    assert not SIMULATED.zero_rated


def test_the_users_table_goes_before_everything(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(
        '[[price]]\nvendor = "openai"\npattern = "gpt-4o"\ninput = "7"\noutput = "7"\n'
        '[[price]]\nvendor = "local"\npattern = "*"\ninput = "0.01"\noutput = "0.02"\n'
        '[[price]]\nvendor = "my-proxy"\npattern = "free-*"\nzero_rated = true\n'
    )
    find = open_prices(table).price
    for vendor, model, rate in (("openai", "gpt-4o", "7"), ("local", "smollm2", "0.01"), ("my-proxy", "free-1", "0")):
        price = find(vendor, model)
        assert price is not None
        assert price.input_rate == picousd_from_usd(rate)
        assert price.price_id.startswith("user ")
    assert find("openai", "gpt-4o-mini") is not None
    assert find("my-proxy", "gpt-4o") is None


def test_an_entry_counts_from_its_day_on(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('[[price]]\npattern = "m"\ninput = "1"\noutput = "1"\neffective = 2027-01-01\n')
    assert open_prices(table, today=date(2026, 12, 31)).price("v", "m") is None
    assert open_prices(table, today=date(2027, 1, 1)).price("v", "m") is not None


def test_known_free_and_unknown_prices_are_three_things(tmp_path: Path) -> None:
    """Rows of a priced, a free and an unpriced model, and one answer without usage: the sum is that of the first."""
    table = tmp_path / "prices.toml"
    table.write_text(
        '[[price]]\npattern = "m-small"\ninput = "0.15"\noutput = "0.60"\n'
        '[[price]]\npattern = "m-free"\nzero_rated = true\n'
    )
    find = open_prices(table).price
    known, unpriced, no_usage = 0, 0, 0
    for model, usage in (("m-small", (100, 10)), ("m-free", (100, 10)), ("m-new", (100, 10)), ("m-small", None)):
        price = find("vendor", model)
        if price is None:
            unpriced += 1
        elif usage is None:
            no_usage += 1
        else:
            known += cost_of(price, *usage, 0)
    assert (known, unpriced, no_usage) == (picousd_from_usd("0.000021"), 1, 1)


@pytest.mark.parametrize(
    ("clause", "name", "is_one"),
    [
        ("gpt-4o", "gpt-4o", True),
        ("gpt-4o", "gpt-4o-mini", False),
        (["<", "gpt-4o"], "gpt-4o-mini", True),
        (["<", "gpt-4o"], "my-gpt-4o", False),
        ([">", "-latest"], "gpt-latest", True),
        ([">", "-latest"], "gpt-latest-2", False),
        (["*", "claude"], "aws.claude-3", True),
        (["*", "claude"], "gpt", False),
        (["~", "^o[0-9]$"], "o3", True),
        (["~", "^o[0-9]$"], "o3-mini", False),
        (["|", "a", ["<", "b"]], "bc", True),
        (["|", "a", ["<", "b"]], "c", False),
        (["&", ["<", "b"], [">", "c"]], "bxc", True),
        (["&", ["<", "b"], [">", "c"]], "bxd", False),
    ],
)
def test_a_models_names(clause: str | list[object], name: str, is_one: bool) -> None:
    assert matches(clause, name) is is_one


def reference(provider_id: str, model: str, usage: Usage) -> PriceCalculation | None:
    """What the source's own code says on the table's day."""
    provider = next(provider for provider in providers if provider.id == provider_id)
    found = next((known for known in provider.models if known.is_match(model)), None)
    moment = datetime.combine(date.fromisoformat(SHIPPED.date), datetime.min.time(), UTC)
    if found is None or not isinstance(found.prices, ModelPrice):
        return None
    return found.calc_price(usage, provider, genai_request_timestamp=moment)


@pytest.mark.parametrize("prompt", [1_000, 250_000])
def test_costs_are_those_the_source_computes(prompt: int) -> None:
    """Every model of the table that has one price all day, by its own name."""
    find = open_prices(None).price
    compared = 0
    usage = Usage(input_tokens=prompt, output_tokens=77, cache_read_tokens=300)
    for vendor in SHIPPED.vendors:
        for entry in vendor.models:
            price = find(vendor.names[0], entry.model)
            if price is None or not price.price_id.endswith(f" {vendor.names[0]}/{entry.model}") or price.zero_rated:
                continue
            expected = reference(vendor.names[0], entry.model.lower(), usage)
            if expected is None or not entry.output.strip("0."):
                continue
            shown = Decimal(cost_of(price, prompt, 77, 300)) / 10**12
            assert abs(shown - expected.total_price) <= expected.total_price * Decimal("1e-9"), entry.model
            compared += 1
    assert compared > 1_000


def test_the_shipped_table_is_dated_and_whole() -> None:
    assert date.fromisoformat(SHIPPED.date) >= date(2026, 11, 1)
    assert SHIPPED.source.startswith("genai-prices ")
    for vendor in SHIPPED.vendors:
        for entry in vendor.models:
            assert bool(entry.input) is bool(entry.output), entry.model
            assert [above for above, *_ in entry.tiers] == sorted({above for above, *_ in entry.tiers})


def test_nothing_is_read_before_the_first_price_is_asked_for() -> None:
    script = (
        "import sys, json, builtins, pathlib\n"
        "from batchwright.prices.open import open_prices\n"
        "read = []\n"
        "whole = pathlib.Path.read_bytes\n"
        "pathlib.Path.read_bytes = lambda path: (read.append(path.name), whole(path))[1]\n"
        "find = open_prices(None).price\n"
        "find('local', 'x')\n"
        "before = list(read)\n"
        "find('openai', 'gpt-4o')\n"
        "find('openai', 'gpt-4o-mini')\n"
        "print(json.dumps([before, read, 'genai_prices' in sys.modules]))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(shown) == [[], ["shipped.json"], False]


def test_a_shipped_price_goes_by_the_address_where_there_is_one() -> None:
    prices = open_prices(None)
    assert prices.price("openai", "gpt-4o", "http://localhost:8000/v1") is None
    assert prices.price("work", "gpt-4o", "https://api.openai.com/v1") == prices.price("openai", "gpt-4o")


def test_a_users_entry_goes_by_the_name_or_by_the_address(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('[[price]]\nvendor = "localhost:8000"\npattern = "*"\ninput = "1"\noutput = "2"\n')
    prices = open_prices(table)
    assert prices.price("house", "m", "http://localhost:8000/v1") is not None
    assert prices.price("house", "m", "http://localhost:9000/v1") is None


def test_an_entry_for_the_address_goes_before_one_for_every_vendor(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    entries = [("*", "9"), ("localhost:8000", "1")]
    table.write_text(
        "".join(f'[[price]]\nvendor = "{v}"\npattern = "*"\ninput = "{n}"\noutput = "{n}"\n' for v, n in entries)
    )
    prices = open_prices(table)
    rates = [prices.price("house", "m", f"http://localhost:{port}/v1") for port in (8000, 9000)]
    assert [price and price.input_rate // 10**12 for price in rates] == [1, 9]


def test_the_batch_api_has_rates_of_its_own_where_the_data_says_so() -> None:
    prices = open_prices(None)
    live = prices.price("openai", "gpt-4o-mini", "https://api.openai.com/v1")
    batch = prices.price("openai", "gpt-4o-mini", "https://api.openai.com/v1", batch=True)
    assert live is not None
    assert batch is not None
    assert (batch.input_rate * 2, batch.output_rate * 2) == (live.input_rate, live.output_rate)
    assert batch.price_id == f"{live.price_id} batch"
    assert prices.price("groq", "llama-3.3-70b-versatile", "https://api.groq.com/openai/v1") is not None
    assert prices.price("groq", "llama-3.3-70b-versatile", "https://api.groq.com/openai/v1", batch=True) is None
    assert prices.price("local", "smollm2", batch=True) is None
