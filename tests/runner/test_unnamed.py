"""Rows without the name of a model, on their way to an endpoint that may want one."""

from __future__ import annotations

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.runner.unnamed import no_model_texts

OURS = (
    Destination(vendor="local", base_url="", protocol=VendorProtocol.LOCAL),
    Destination(vendor="simulated", base_url="", protocol=VendorProtocol.SIMULATED),
)
HOUSE = Destination(vendor="house", base_url="https://house.example/v1")


def test_rows_without_a_model_are_told_of_with_their_endpoint() -> None:
    lanes = {"house|HOUSE_KEY|": 3000, "house|HOUSE_KEY|m": 2}
    (text,) = no_model_texts(lanes, (*OURS, HOUSE))
    assert text.startswith("3,000 rows name no model")
    assert "https://house.example/v1" in text
    assert no_model_texts({"house||": 1}, (HOUSE,))[0].startswith("1 row names no model")


def test_models_of_our_own_need_no_name() -> None:
    assert no_model_texts({"local||": 2, "simulated||": 2, "and more": 5}, (*OURS, HOUSE)) == []
