"""Pages of results with filters: each looks at a bounded part of the batch, and together they miss nothing."""

from __future__ import annotations

import pytest

from batchwright.server.infrai import results
from support.service import BATCH, RunningService, chat, serving

ROWS = 60


def pages(service: RunningService, batch_id: str, **parameters: str) -> list[tuple[list[int], str | None]]:
    found: list[tuple[list[int], str | None]] = []
    cursor: str | None = "0"
    while cursor is not None:
        data = service.get(f"{BATCH}/results/{batch_id}", cursor=cursor, **parameters).json()["data"]
        cursor = data["next_cursor"]
        found.append(([item["request_index"] for item in data["items"]], cursor))
    return found


def test_a_page_with_few_rows_looks_no_further_than_its_bound(
    scripted: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SEARCHED_ROWS", 25)
    batch_id = scripted.submit([{"none": 1} if row in (3, 55) else chat(f"w{row}") for row in range(ROWS)])
    scripted.ended(batch_id)
    assert pages(scripted, batch_id, ok="false") == [([3], "25"), ([], "50"), ([55], None)]
    good = [row for row in range(ROWS) if row not in (3, 55)]
    assert [row for page, _ in pages(scripted, batch_id, ok="true", limit="10") for row in page] == good


def test_filters_are_combined(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("good"), {"none": 1}, chat("")])
    scripted.ended(batch_id)

    def rows(**parameters: str) -> list[int]:
        return [row for page, _ in pages(scripted, batch_id, **parameters) for row in page]

    assert rows(kind="invalid_row") == rows(ok="false") == [1]
    assert rows(kind="invalid_row", ok="true") == []
    assert sorted(rows(flag="plain") + rows(flag="empty")) == rows(ok="true") == [0, 2]
    assert rows(flag="plain", ok="false") == []


def test_rows_without_an_outcome_are_shown_on_request(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("pending"), works=False) as service:
        batch_id = service.submit([chat("waits"), {"none": 1}])
        assert pages(service, batch_id) == [([1], None)]
        assert pages(service, batch_id, include="pending") == [([0, 1], None)]
        assert pages(service, batch_id, include="pending,response", ok="true") == [([0], None)]
