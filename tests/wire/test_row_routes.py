"""Rows whose model name is a route's: what is sent at first, what is kept of the name, and what is written again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchwright.core import row_map
from batchwright.core.batch_spec import Destination, RouteStep
from batchwright.core.failures import FailureKind
from batchwright.core.records import Record
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import RowView, SourceRow
from batchwright.wire.openai_lines import request_line
from batchwright.wire.results import infrai_line
from batchwright.wire.row_shapes import with_model
from batchwright.wire.rows import RowDecoder

ACME = Destination(vendor="acme", base_url="https://acme.example/v1", key_env="ACME_KEY")
CORP = Destination(vendor="corp", base_url="https://corp.example/v1")
ROUTES = {
    "fast": (RouteStep(vendor="acme", model="a/b", weight=1), RouteStep(vendor="corp", model="c")),
    "spread": (RouteStep(vendor="acme", model="a", weight=1), RouteStep(vendor="corp", model="c", weight=1)),
    "gone": (RouteStep(vendor="nobody", model="x", weight=1),),
}
BODY = '{"messages":[{"role":"user","content":"hi"}],"model":%s,"seed":12345678901234567890123}'


def decode(model: str, number: int = 1, **options: Any) -> SourceRow:
    decoder = RowDecoder(RowOptions(destinations=(ACME, CORP), routes=ROUTES, **options))
    return decoder.decode(b'{"custom_id":"x","body":' + (BODY % json.dumps(model)).encode() + b"}", number)


def test_a_row_begins_as_its_first_choice_and_keeps_its_name() -> None:
    source = decode("fast")
    row = source.row
    assert (source.lane, row.model, row.route, row.model_prefix) == ("acme|ACME_KEY|a/b", "a/b", "fast", "")
    assert row.body == (BODY % '"a/b"').encode()
    assert (decode("acme/m").row.route, decode("acme/m").row.model_prefix) == ("", "acme/")


def test_a_default_model_may_be_a_route() -> None:
    options = RowOptions(destinations=(ACME, CORP), routes=ROUTES, model="fast")
    source = RowDecoder(options).decode(b'{"prompt":"hi"}', 1)
    assert (source.lane, source.row.route) == ("acme|ACME_KEY|a/b", "fast")


def test_rows_of_a_spread_route_begin_by_their_number() -> None:
    lanes = [decode("spread", number).lane for number in range(1, 21)]
    assert set(lanes) == {"acme|ACME_KEY|a", "corp||c"}
    assert lanes.count("corp||c") == pytest.approx(10, abs=1)
    decoder = RowDecoder(RowOptions(destinations=(ACME, CORP), routes=ROUTES))
    line = b'{"body":' + (BODY % '"spread"').encode() + b"}"
    assert [decoder.decode(line, number).lane for number in range(1, 21)] == lanes, "whichever rows came before"


def test_rows_that_cannot_go_anywhere_say_what_to_do() -> None:
    finding = decode("gone").finding
    assert finding is not None
    assert finding.code == "unroutable"
    assert finding.message == "the route 'gone' leads nowhere: there is no vendor 'nobody' here"
    line = b'{"body":' + (BODY % '"unheard-of"').encode() + b"}"
    unknown = RowDecoder(RowOptions(destinations=())).decode(line, 1).finding
    assert unknown is not None
    assert "The local model is called local/" in unknown.message
    auto = decode("auto").finding
    assert auto is not None
    assert (auto.code, auto.param) == ("unroutable", "body.model")
    assert "-m MODEL" in auto.message
    assert '[routes.auto] with to = ["VENDOR/MODEL"]' in auto.message


def test_another_model_leaves_every_other_field_as_it_was() -> None:
    assert with_model((BODY % '"a/b"').encode(), 'ü"') == (BODY % '"ü\\""').encode()
    assert with_model(b'{"input":"x"}', "m") == b'{"input":"x","model":"m"}'


def test_what_is_written_to_be_sent_again_names_the_route() -> None:
    view = RowView(
        request_index=0,
        byte=row_map.KIND_BYTES[FailureKind.OVERLOADED],
        record=Record(row=0, byte=33, attempts=1, used=1),
        input=decode("fast").row,
    )
    line = request_line(view)
    assert line is not None
    assert json.loads(line)["body"]["model"] == "fast"
    again = RowDecoder(RowOptions(destinations=(ACME, CORP), routes=ROUTES)).decode(line.strip(), 1)
    assert again.row.body == view.input.body


def test_a_line_says_what_each_failed_attempt_met() -> None:
    row = decode("fast").row
    body = b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"model":"c"}'
    for byte in (row_map.PLAIN_SUCCESS, row_map.KIND_BYTES[FailureKind.TIMEOUT]):
        record = Record(row=0, byte=byte, attempts=2, used=1, vendor="corp", body=body)
        record.met = 'ac"me: overloaded 503; corp: timeout (2x)'
        line = json.loads(infrai_line(RowView(request_index=0, byte=byte, record=record, input=row)))
        assert line["attempts_met"] == ['ac"me: overloaded 503', "corp: timeout (2x)"]
        record.met = ""
        line = json.loads(infrai_line(RowView(request_index=0, byte=byte, record=record, input=row)))
        assert "attempts_met" not in line
