"""Every field of a file and of a batch, in every status, as golden JSON; and that the stock SDK reads it whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types import Batch, FileObject

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec
from batchwright.core.batch_state import BatchState, Counts
from batchwright.core.failures import FailureKind
from batchwright.core.records import Tally
from batchwright.core.tenants import LOCAL
from batchwright.ports.batches import BatchStatus
from batchwright.ports.file_batches import FileBatch
from batchwright.ports.files import FileBatchRow, LineError, StoredFile
from batchwright.server.openai.views import batch_view, file_view, list_view

GOLDEN = json.loads((Path(__file__).parent / "openai_shapes.json").read_text(encoding="utf-8"))
ID = "batch_0123456789abcdef01234567"
INPUT = "file-89abcdef0123456789abcdef"
OUTPUT, ERRORS = "file-0123456789abcdef012345670000o", "file-0123456789abcdef012345670000e"
CREATED_MS, IN_PROGRESS_MS, CANCELLING_MS, ENDED_MS = (
    1_767_225_600_900,
    1_767_225_601_000,
    1_767_225_700_000,
    1_767_225_800_999,
)

ROW = FileBatchRow(batch_id=ID, file_id=INPUT, endpoint="/v1/chat/completions", completion_window="24h")
TAKEN_IN = replace(ROW, in_progress_at_ms=IN_PROGRESS_MS, model="gpt-x")
CANCELLED = replace(TAKEN_IN, cancelling_at_ms=CANCELLING_MS)
WITH_FILES = replace(TAKEN_IN, output_file_id=OUTPUT, error_file_id=ERRORS)
REFUSED = replace(
    ROW,
    errors=(
        LineError(code="empty_file", line=None, message="The file has no lines.", param=None),
        LineError(code="duplicate_custom_id", line=3, message="Used before, on line 1.", param="custom_id"),
    ),
)
PLAIN, BAD = row_map.PLAIN_SUCCESS, row_map.KIND_BYTES[FailureKind.INVALID_REQUEST]


def status(state: BatchState, *, total: int = 4, round_: int = 0, **counts: int) -> BatchStatus:
    ended = {"succeeded": 0, "failed": 0, "cancelled": 0, "expired": 0, "stopped": 0, **counts}
    tally = Tally(counts={PLAIN: ended["succeeded"]}, prompt_tokens=40, cached_tokens=8, completion_tokens=12)
    return BatchStatus(
        batch_id=ID,
        tenant=LOCAL,
        state=state,
        terminal=state.terminal,
        spec=BatchSpec(name="rows.jsonl", destinations=(), metadata={"job": "nightly"}),
        round=round_,
        total=total,
        counts=Counts(**ended, open=total - sum(ended.values())),
        by_byte=dict(tally.counts),
        tally=tally,
        created_at_ms=CREATED_MS,
        settled_at_ms=ENDED_MS if state.terminal else 0,
        deadline_ms=CREATED_MS + 86_400_000,
        pauses=(),
        budget_taken_picousd=0,
        live=not state.terminal,
    )


CASES: dict[str, tuple[FileBatchRow, BatchStatus]] = {
    "validating": (ROW, status(BatchState.ACCEPTING, total=2)),
    "cancelled while validating": (replace(ROW, cancelling_at_ms=CANCELLING_MS), status(BatchState.ACCEPTING)),
    "failed": (REFUSED, status(BatchState.REFUSED, total=0)),
    "queued": (TAKEN_IN, status(BatchState.QUEUED)),
    "running": (TAKEN_IN, status(BatchState.RUNNING, succeeded=1)),
    "paused": (TAKEN_IN, status(BatchState.PAUSED, succeeded=1)),
    "cancelling": (CANCELLED, status(BatchState.CANCELLING, succeeded=1)),
    "cancelled": (
        replace(CANCELLED, output_file_id=OUTPUT, error_file_id=ERRORS),
        status(BatchState.CANCELLED, succeeded=1, cancelled=3),
    ),
    "expired": (WITH_FILES, status(BatchState.EXPIRED, succeeded=1, expired=3)),
    "completed": (replace(WITH_FILES, error_file_id=""), status(BatchState.COMPLETED, succeeded=4)),
    "completed in part": (WITH_FILES, status(BatchState.PARTIAL, succeeded=3, failed=1)),
    "all rows failed": (replace(WITH_FILES, output_file_id=""), status(BatchState.FAILED, failed=4)),
    "being reopened": (TAKEN_IN, status(BatchState.ACCEPTING, round_=1, succeeded=3)),
    "a second round": (CANCELLED, status(BatchState.RUNNING, round_=1, succeeded=3)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch(name: str) -> None:
    view = batch_view(FileBatch(row=CASES[name][0], status=CASES[name][1]))
    assert view == GOLDEN["batches"][name]
    read_by_sdk(Batch, view)


def test_every_state_is_shown() -> None:
    assert {case[1].state for case in CASES.values()} == set(BatchState)


FILES = {
    "upload": StoredFile(
        file_id=INPUT,
        account="local",
        purpose="batch",
        filename="rows.jsonl",
        size=1_234,
        pieces=1,
        created_at_ms=CREATED_MS,
        expires_at_ms=CREATED_MS + 3_600_000,
    ),
    "output": StoredFile(
        file_id=OUTPUT,
        account="local",
        purpose="batch_output",
        filename=f"{ID}_output.jsonl",
        size=5_678,
        pieces=0,
        created_at_ms=ENDED_MS,
        expires_at_ms=0,
        batch_id=ID,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file(name: str) -> None:
    view = file_view(FILES[name])
    assert view == GOLDEN["files"][name]
    read_by_sdk(FileObject, view)


def test_a_list() -> None:
    assert list_view([{"id": "a"}, {"id": "b"}], more=True) == GOLDEN["lists"]["two of more"]
    assert list_view([], more=False) == GOLDEN["lists"]["none"]


def read_by_sdk(kind: Any, view: dict[str, Any]) -> None:
    """Each field that the SDK's type has is there, and there is no other."""
    assert set(view) == set(kind.model_fields)
    shown = (
        {**view, "usage": None} if "usage" in view else view
    )  # one of its counts is null, see docs/protocols/openai.md
    kind.model_validate(shown)
