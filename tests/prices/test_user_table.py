from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.errors import UsageError
from batchwright.core.money import picousd_from_usd
from batchwright.core.pricing import Price, cost_of
from batchwright.prices.open import open_prices
from batchwright.prices.user_table import UserPrice, UserTable, read_user_table


def table_of(tmp_path: Path, text: str, *, today: date | None = None) -> UserTable:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return read_user_table(path, today=today)


def entry(vendor: str, pattern: str, rate: str, more: str = "") -> str:
    return f'[[price]]\nvendor = "{vendor}"\npattern = "{pattern}"\ninput = "{rate}"\noutput = "{rate}"\n{more}\n'


def found(entry: UserPrice | None) -> Price:
    assert entry is not None
    return entry.price


def rate_of(entry: UserPrice | None) -> int:
    return found(entry).input_rate // 10**12


def test_all_fields_are_read(tmp_path: Path) -> None:
    text = """
        [currency.CNY]
        usd = "0.1389"
        date = 2026-11-20

        [[price]]
        vendor = "open.bigmodel.cn"
        pattern = "glm-5*"
        input = "4"
        output = 16.5
        cached = "0.8"
        request = "0.001"
        currency = "CNY"
        effective = 2026-10-01
        source = "their price page"
    """
    price = found(table_of(tmp_path, text).find("open.bigmodel.cn", "glm-5-air"))
    assert price == Price(
        price_id="user open.bigmodel.cn/glm-5* since 2026-10-01 CNY at 0.1389 of 2026-11-20",
        input_rate=picousd_from_usd("0.5556"),
        output_rate=picousd_from_usd("2.29185"),
        cached_rate=picousd_from_usd("0.11112"),
        request_picousd=picousd_from_usd("0.0001389"),
    )


def test_a_rate_is_what_its_decimals_say_never_a_binary_fraction(tmp_path: Path) -> None:
    price = found(table_of(tmp_path, '[[price]]\npattern = "m"\ninput = 0.1\noutput = "0.3"\n').find("any", "m"))
    assert price is not None
    assert (price.input_rate, price.output_rate, price.cached_rate) == (10**11, 3 * 10**11, 10**11)
    assert sum(cost_of(price, 1, 0, 0) for _ in range(10)) == 10**6


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0, 3, 1, 4]])
def test_the_most_specific_entry_counts_vendor_first(tmp_path: Path, order: list[int]) -> None:
    entries = [
        entry("*", "*", "1"),
        entry("*", "gpt-5-mini", "2"),
        entry("open*", "*", "3"),
        entry("openai", "*", "4"),
        entry("openai", "gpt-5*", "5"),
        entry("openai", "gpt-5-mini", "6"),
    ]
    table = table_of(tmp_path, "".join(entries[number] for number in order))
    assert rate_of(table.find("openai", "gpt-5-mini")) == 6
    assert rate_of(table.find("openai", "gpt-5")) == 5
    assert rate_of(table.find("openai", "o3")) == 4
    assert rate_of(table.find("openrouter.ai", "gpt-5-mini")) == 3
    assert rate_of(table.find("groq", "gpt-5-mini")) == 2
    assert rate_of(table.find("groq", "llama")) == 1


def test_of_equals_the_later_effective_counts_and_then_the_later_entry(tmp_path: Path) -> None:
    text = (
        entry("v", "m", "1", "effective = 2026-03-01")
        + entry("v", "m", "2", "effective = 2026-06-01")
        + entry("v", "m", "3", "effective = 2027-01-01")
        + entry("v", "m", "4", "effective = 2026-06-01")
        + entry("v", "m", "5")
    )
    assert rate_of(table_of(tmp_path, text, today=date(2026, 11, 29)).find("v", "m")) == 4
    assert rate_of(table_of(tmp_path, text, today=date(2027, 1, 1)).find("v", "m")) == 3
    assert rate_of(table_of(tmp_path, text, today=date(2026, 4, 1)).find("v", "m")) == 1
    assert rate_of(table_of(tmp_path, text, today=date(2026, 1, 1)).find("v", "m")) == 5


def test_what_no_entry_matches_is_unknown(tmp_path: Path) -> None:
    assert table_of(tmp_path, entry("v", "m-*", "1")).find("v", "n-1") is None
    assert table_of(tmp_path, "").find("v", "m") is None


WRONG = [
    ("[[price]", "is no TOML file"),
    ("prices = 1", "unknown key 'prices'"),
    ("price = 3", r"price: expected entries that begin with \[\[price\]\]"),
    ("[[price]]\nvendor = 'v'\ninput = '1'\noutput = '1'", r"price 1 \(v\): pattern: expected the model's name"),
    (entry("v", "m", "1") + "[[price]]\npattern = 'n'\ninput = '1'", r"price 2 \(n\): output is missing"),
    (entry("v", "m", "1", 'inptu = "2"'), r"price 1 \(v m\): unknown field 'inptu'"),
    (entry("v", "m", "one"), r"price 1 \(v m\): input: expected a decimal number .* found 'one'"),
    (entry("v", "m", "-1"), "input: expected a decimal number from 0"),
    (entry("v", "m", "nan"), "input: expected a decimal number from 0"),
    (entry("v", "m", "1e30"), "input: expected a decimal number from 0"),
    (entry("v", "m", "1", "cached = true"), "cached: expected a decimal number .* found True"),
    (entry("v", "m", "1", 'currency = "EUR"'), r"currency: expected one of USD, or a table \[currency.EUR\]"),
    (entry("v", "m", "1", "currency = 7"), "currency: expected a text in quotes, found 7"),
    (entry("v", "m", "1", "source = 7"), "source: expected a text in quotes, found 7"),
    (entry("v", "m", "1", 'effective = "soon"'), "effective: expected a day like 2026-11-20, found 'soon'"),
    (entry("v", "m", "1", "effective = 2026-01-01T00:00:00Z"), "effective: expected a day like 2026-11-20"),
    (entry("v", "m", "1", "zero_rated = true"), "input: expected no rate beside zero_rated"),
    (entry("v", "m", "1", 'zero_rated = "yes"'), "zero_rated: expected true or false, found 'yes'"),
    ('[currency.EUR]\nusd = "1.1"', "currency EUR: expected exactly usd"),
    (
        '[currency.EUR]\nusd = "0"\ndate = 2026-01-01',
        "currency EUR: usd: expected the worth of one EUR in USD, found 0",
    ),
    ('[currency.USD]\nusd = "1"\ndate = 2026-01-01', "currency USD: is 1 by definition"),
    ("currency = 1", r"currency: expected tables \[currency.NAME\]"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_mistakes_name_the_file_the_entry_and_the_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        table_of(tmp_path, text)
    assert str(tmp_path / "prices.toml") in str(raised.value)


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: cannot be read: No such file"):
        open_prices(tmp_path / "gone.toml")
    (tmp_path / "latin.toml").write_bytes(b'source = "\xe9"')
    with pytest.raises(UsageError, match=r"latin\.toml: is no TOML file in UTF-8"):
        open_prices(tmp_path / "latin.toml")


@given(
    rate=st.decimals(min_value=0, max_value=10_000, places=6),
    usd=st.decimals(min_value="0.000001", max_value=100, places=6),
)
def test_a_foreign_rate_is_converted_exactly(
    tmp_path_factory: pytest.TempPathFactory, rate: object, usd: object
) -> None:
    text = f'[currency.XXX]\nusd = "{usd}"\ndate = 2026-01-01\n' + entry("*", "m", str(rate), 'currency = "XXX"')
    price = found(table_of(tmp_path_factory.mktemp("prices"), text).find("v", "m"))
    assert price is not None
    assert price.input_rate * 10**12 == int(str(rate).replace(".", "")) * int(str(usd).replace(".", "")) * 10**12


def test_rates_that_are_all_zero_are_a_stated_zero(tmp_path: Path) -> None:
    table = table_of(tmp_path, entry("a", "free", "0") + entry("a", "nearly", "0", 'request = "0.001"'))
    free, nearly = found(table.find("a", "free")), found(table.find("a", "nearly"))
    assert free is not None
    assert free.zero_rated
    assert nearly is not None
    assert not nearly.zero_rated


def test_at_the_batch_api_the_factor_says_what_is_paid(tmp_path: Path) -> None:
    table = table_of(tmp_path, entry("v", "m", "4", 'request = "2"\ncached = "1"\nbatch_factor = "0.5"'))
    half = table.find("v", "m")
    assert half is not None
    assert half.batch_price is not None
    assert (half.batch_price.input_rate, half.batch_price.cached_rate) == (2 * 10**12, 10**12 // 2)
    assert half.batch_price.request_picousd == 10**12
    assert half.batch_price.price_id == "user v/m batch"


def test_without_a_factor_a_price_is_not_known_there_whatever_is_shipped(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(entry("openai", "gpt-4o-mini", "1"))
    prices = open_prices(tmp_path / "prices.toml")
    assert prices.price("openai", "gpt-4o-mini", batch=True) is None
    assert prices.price("openai", "gpt-4o", batch=True) is not None, "of others what is shipped holds"


def test_what_costs_nothing_costs_nothing_there_either(tmp_path: Path) -> None:
    free = table_of(tmp_path, '[[price]]\nvendor = "v"\npattern = "m"\nzero_rated = true\n').find("v", "m")
    assert free is not None
    assert free.batch_price == free.price
    with pytest.raises(UsageError, match="batch_factor: expected no rate"):
        table_of(tmp_path, '[[price]]\nvendor = "v"\npattern = "m"\nzero_rated = true\nbatch_factor = "0.5"\n')
