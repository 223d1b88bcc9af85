"""How a vendor is spoken to: by its table, else by its address or its profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchwright.core.batch_spec import VendorProtocol
from batchwright.core.errors import UsageError
from support.settings_places import Places

ANTHROPIC_URL = "https://api.anthropic.com"


@pytest.mark.parametrize(
    ("table", "protocol"),
    [
        (f'base_url = "{ANTHROPIC_URL}"', VendorProtocol.ANTHROPIC),
        (f'base_url = "{ANTHROPIC_URL}/v1"', VendorProtocol.ANTHROPIC),
        (f'base_url = "{ANTHROPIC_URL}/v1"\nprotocol = "openai"', VendorProtocol.OPENAI),
        (f'base_url = "{ANTHROPIC_URL}/v1"\nprofile = "vllm"', VendorProtocol.OPENAI),
        ('base_url = "https://proxy.example.com"\nprotocol = "anthropic"', VendorProtocol.ANTHROPIC),
        ('base_url = "https://proxy.example.com"\nprofile = "anthropic"', VendorProtocol.ANTHROPIC),
        ('base_url = "https://api.openai.com/v1"', VendorProtocol.OPENAI),
    ],
)
def test_a_named_vendor(tmp_path: Path, table: str, protocol: VendorProtocol) -> None:
    settings = Places(tmp_path, user=f"[vendors.one]\n{table}\n").load()
    assert [place.protocol for place in settings.destinations if place.vendor == "one"] == [protocol]
    (chosen,) = Places(tmp_path, user=f"[vendors.one]\n{table}\n").load({"vendor": "one"}).destinations
    assert chosen.protocol is protocol


def test_an_address_on_the_command_line(tmp_path: Path) -> None:
    (place,) = Places(tmp_path).load({"base_url": f"{ANTHROPIC_URL}/v1"}).destinations
    assert place.protocol is VendorProtocol.ANTHROPIC


def test_a_protocol_that_is_none(tmp_path: Path) -> None:
    user = f'[vendors.one]\nbase_url = "{ANTHROPIC_URL}"\nprotocol = "grpc"\n'
    with pytest.raises(UsageError, match="protocol: expected openai or anthropic, found 'grpc'"):
        Places(tmp_path, user=user).load()
