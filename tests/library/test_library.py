"""The library end to end, on the simulated vendor and a store of its own."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pydantic
import pytest

import batchwright
from batchwright import Flag, InputRefused, Result, RowsFailed
from batchwright.cli.status_view import status_facts, status_json
from batchwright.core import row_map
from batchwright.core.errors import BatchPaused, UsageError
from batchwright.core.failures import FailureKind
from batchwright.library.result import result_of
from batchwright.library.run import Options
from support.batch_samples import failed, ok, view_of
from support.scripted_vendor import ScriptedVendor

pytestmark = pytest.mark.filterwarnings("error")


def rows(count: int) -> list[dict[str, object]]:
    return [
        {"custom_id": f"r{i}", "model": "m-small", "messages": [{"role": "user", "content": f"say {i}"}]}
        for i in range(count)
    ]


def test_list_in_results_out_in_order(tmp_path: Path) -> None:
    results = batchwright.run(rows(30), simulate=True, home=tmp_path, progress="none")
    found = list(results)
    assert [result.index for result in found] == list(range(30))
    assert [result.custom_id for result in found] == [f"r{i}" for i in range(30)]
    assert len(results) == 30
    assert all(isinstance(result, Result) and result.ok and result.attempts for result in found)
    assert found[0].response["choices"][0]["message"]["content"] == found[0].content
    assert sum((result.cost_usd or Decimal(0) for result in found), Decimal(0)) * 10**12 == (
        results.report.status.tally.cost_picousd
    )
    assert [result.index for result in results] == list(range(30)), "a second time"


def test_results_by_position_as_of_a_list(tmp_path: Path) -> None:
    results = batchwright.run(rows(520), simulate=True, home=tmp_path, progress="none")
    assert [results[place].index for place in (0, -1, 505, 3)] == [0, 519, 505, 3]
    assert [result.index for result in results[498:503]] == list(range(498, 503))
    assert results[5:5] == []
    for place in (520, -521):
        with pytest.raises(IndexError, match="the batch has 520"):
            results[place]


def test_a_report_reads_as_its_first_line(tmp_path: Path) -> None:
    results = batchwright.run(rows(2), simulate=True, home=tmp_path, progress="none")
    assert str(results.report).startswith("2 ok of 2")
    assert repr(results.report) == f"<Report on {results.batch_id}: {results.report}>"


def test_rows_with_nowhere_to_go_are_told_where_rows_can_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "BATCHWRIGHT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputRefused) as caught:
        batchwright.run(rows(2), home=tmp_path, progress="none")
    assert caught.value.__context__ is None, "nothing else went wrong"
    assert "Where rows can go:" in "\n".join(caught.value.__notes__)


def test_the_same_rows_again_are_not_sent_again(tmp_path: Path) -> None:
    first = batchwright.run(rows(5), simulate=True, home=tmp_path, progress="none")
    again = batchwright.run(rows(5), simulate=True, home=tmp_path, progress="none")
    anew = batchwright.run(rows(5), simulate=True, home=tmp_path, progress="none", fresh=True)
    assert first.batch_id == again.batch_id != anew.batch_id


def test_file_to_file(tmp_path: Path) -> None:
    source, output = tmp_path / "rows.csv", tmp_path / "out.csv"
    source.write_text("id,text\n1,good\n2,bad\n")
    results = batchwright.run(
        source, output=output, prompt="One word: {text}", model="m-small", simulate=True, home=tmp_path, progress="none"
    )
    assert output.read_text().startswith("id,text,answer")
    assert len(list(results)) == 2


def test_inside_a_running_loop_both_ways(tmp_path: Path) -> None:
    async def notebook() -> tuple[list[int], list[int]]:
        blocking = batchwright.run(rows(3), simulate=True, home=tmp_path, progress="none")
        awaited = await batchwright.run_async(rows(3), simulate=True, home=tmp_path, progress="none")
        return [result.index for result in blocking], [result.index async for result in awaited]

    assert asyncio.run(notebook()) == ([0, 1, 2], [0, 1, 2])


def test_iteration_that_is_left_early_leaves_no_thread_behind(tmp_path: Path) -> None:
    import threading

    results = batchwright.run(rows(1_600), simulate=True, home=tmp_path, progress="none")
    before = threading.active_count()
    iterator = iter(results)
    assert next(iterator).index == 0
    iterator.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_bad_row_is_refused_or_a_result(tmp_path: Path) -> None:
    bad = [*rows(2), {"custom_id": "x", "model": "m", "messages": "none"}]
    with pytest.raises(InputRefused):
        batchwright.run(bad, simulate=True, home=tmp_path, progress="none")
    results = batchwright.run(bad, skip_invalid=True, simulate=True, home=tmp_path, progress="none")
    (failure,) = results.failures()
    assert (failure.index, failure.ok, failure.content) == (2, False, None)
    assert failure.error is not None
    assert failure.error.kind is FailureKind.INVALID_ROW
    with pytest.raises(RowsFailed) as raised:
        batchwright.run(bad, skip_invalid=True, raise_on_failure=True, simulate=True, home=tmp_path, progress="none")
    assert len(list(raised.value.results)) == 3


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="temprature"):
        batchwright.run([], temprature=0)  # type: ignore[call-arg]


def test_cost_that_is_not_known_is_none_and_not_zero() -> None:
    assert result_of(view_of(0, ok(), unpriced=1)).cost_usd is None
    assert result_of(view_of(0, ok(), price_id="free")).cost_usd == Decimal(0)
    assert result_of(view_of(0, ok(), cost_picousd=1_500_000_000_000)).cost_usd == Decimal("1.5")


def test_a_failure_says_what_the_vendor_said() -> None:
    result = result_of(
        view_of(0, failed(FailureKind.INVALID_REQUEST), code="bad", param="n", message="no", http_status=400)
    )
    assert result.error is not None
    assert (result.error.code, result.error.param, str(result.error)) == ("bad", "n", "invalid_request: no")
    assert result.flag is Flag.PLAIN
    assert result.response is None


def test_a_cut_off_row_does_not_blame_an_earlier_attempt() -> None:
    result = result_of(view_of(0, row_map.KIND_BYTES[FailureKind.EXPIRED], code="server_error", http_status=500))
    assert result.error is not None
    assert (result.error.kind, result.error.code) == (FailureKind.EXPIRED, "BATCH_EXPIRED")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, batchwright; dir(batchwright); "
        "print([name for name in ('sqlalchemy', 'rich', 'msgspec', 'asyncio', 'uvloop') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_metadata_is_kept_with_the_batch_and_shown(tmp_path: Path) -> None:
    results = batchwright.run(rows(1), simulate=True, home=tmp_path, progress="none", metadata={"team": "support"})
    status = results.report.status
    assert status_json(status)["metadata"] == {"team": "support"}
    assert [cell.raw for name, cell in status_facts(status) if name == "metadata_team"] == ["support"]


def test_under_a_cap_status_says_how_much_of_it_is_taken(tmp_path: Path) -> None:
    capped = [row | {"max_tokens": 5} for row in rows(3)]
    results = batchwright.run(capped, simulate=True, home=tmp_path, progress="none", max_cost="0.5")
    status = results.report.status
    facts = {name: cell.raw for name, cell in status_facts(status)}
    assert (facts["cap_usd"], facts["cap_taken_usd"]) == ("0.5", facts["cost_usd"])
    assert status_json(status)["cost"]["cap_taken_usd"] is not None


def test_a_soft_cap_learns_what_the_vendor_states(tmp_path: Path) -> None:
    """No table has a price for these rows: what they cost is known from their answers alone."""
    says = '[[header="x-infrai-cost-usd: 0.002"]] word'
    asked = [{"model": "m", "messages": [{"role": "user", "content": says}], "max_tokens": 5} for _ in range(200)]
    with ScriptedVendor() as vendor:
        with pytest.raises(BatchPaused):
            batchwright.run(
                asked,
                base_url=vendor.base_url,
                api_key_env="",
                home=tmp_path,
                progress="none",
                max_cost="0.041",
                allow_unpriced=True,
            )
        assert 20 <= len(vendor.hits) <= 22, "of which each cost 0.002"


def test_what_the_gate_does_is_one_of_two(tmp_path: Path) -> None:
    rows = [{"prompt": "one"}]
    with pytest.raises(UsageError, match="expected pause or stop, found 'halt'"):
        batchwright.run(rows, model="m", on_gate="halt", simulate=True, home=tmp_path, progress="none")
    assert (
        batchwright.run(rows, model="m", on_gate="stop", simulate=True, home=tmp_path, progress="none").report.ok == 1
    )


def test_an_answer_with_a_number_out_of_range_can_be_read() -> None:
    body = b'{"choices":[{"message":{"content":"yes"}}],"logprob":-1e999,"big":%s,"fine":1}' % (b"9" * 5000)
    result = result_of(view_of(0, ok(), body=body))
    assert result.content == "yes"
    assert result.response["logprob"] == -float("inf")
    assert (result.response["big"], result.response["fine"]) == (float("inf"), 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": 3}, "prompt: expected a text, found 3"),
        ({"system": b"x"}, "system: expected a text, found b'x'"),
        ({"limit": "5"}, "limit: expected a whole number, found '5'"),
        ({"limit": True}, "limit: expected a whole number, found True"),
        ({"params": [1]}, "params: expected a mapping with names, found [1]"),
        ({"metadata": {"a": 1}}, "metadata: expected a mapping of texts to texts, found {'a': 1}"),
        ({"output": 7}, "output: expected a text or a path, found 7"),
        ({"failed": ["a"]}, "failed: expected a text or a path, found ['a']"),
        ({"fresh": "no"}, "fresh: expected True or False, found 'no'"),
        ({"skip_invalid": 1}, "skip_invalid: expected True or False, found 1"),
        ({"on_gate": 5}, "on_gate: expected a text, found 5"),
        ({"service": 5}, "service: expected a text, found 5"),
        ({"model": 5}, "expected"),
        ({"max_cost": [1]}, "expected"),
        ({"deadline": [1]}, "expected"),
        ({"gate": "perhaps"}, "expected"),
        ({"prices": 5}, "expected"),
        ({"concurrency": 1.5}, "expected"),
    ],
)
def test_a_value_of_another_type_is_a_usage_error(options: dict[str, object], said: str) -> None:
    simulated = {} if "service" in options else {"simulate": True}
    with pytest.raises(UsageError, match=re.escape(said)):
        batchwright.run(rows(1), **{**simulated, **options})  # type: ignore[arg-type]


def test_none_is_an_option_that_was_not_given(tmp_path: Path) -> None:
    nothing = dict.fromkeys(set(Options.__annotations__) - {"simulate", "home", "progress"})
    results = batchwright.run(rows(1), **nothing, simulate=True, home=tmp_path, progress="none")  # type: ignore[arg-type]
    assert len(results) == 1


def test_the_callers_loop_keeps_its_own_threads(tmp_path: Path) -> None:
    executor = ThreadPoolExecutor(7)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(executor)
        results = await batchwright.run_async(rows(3), simulate=True, home=tmp_path, progress="none")
        assert [result.index async for result in results] == [0, 1, 2]
        assert await loop.run_in_executor(None, threading.current_thread) in executor._threads

    asyncio.run(main())


class Label(pydantic.BaseModel):
    label: str
    score: int

    @pydantic.field_validator("score")
    @classmethod
    def is_even(cls, score: int) -> int:
        if score % 2:
            raise ValueError("the score is odd")
        return score


def test_answers_are_instances_of_a_class(tmp_path: Path) -> None:
    texts = [f"[[say=\"{{'label':'x','score':{score}}}\" then=again]] {score}" for score in (2, 3, "'no'")]
    with ScriptedVendor() as vendor:
        results = batchwright.run(
            [{"model": "m", "messages": [{"role": "user", "content": text}]} for text in texts],
            base_url=vendor.base_url,
            api_key_env="",
            schema=Label,
            repair=1,
            home=tmp_path,
            progress="none",
        )
        even, odd, wrong = results
    assert even.parsed == Label(label="x", score=2)
    assert (odd.parsed, odd.ok, odd.flag) == (None, True, Flag.PLAIN)
    assert "the score is odd" in odd.mismatch
    assert (wrong.parsed, wrong.flag, wrong.attempts) == (None, Flag.SCHEMA_MISMATCH, 2)
    assert results.report.repairs is not None
    assert results.report.repairs.asked == 1


@pytest.mark.parametrize("as_path", [True, False])
def test_a_schema_may_be_a_dict_or_a_path(tmp_path: Path, as_path: bool) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    given = path if as_path else schema
    results = batchwright.run(rows(3), schema=given, simulate=True, home=tmp_path, progress="none")
    assert all(result.parsed["label"] in ("a", "b") and not result.mismatch for result in results)
    assert batchwright.run(rows(1), simulate=True, home=tmp_path, progress="none")[0].parsed is None


def test_what_is_no_schema_is_told(tmp_path: Path) -> None:
    for wrong, words in ((5, "a dict, a path or a Pydantic class"), ("none.json", "cannot be read"), ([], "a dict")):
        with pytest.raises(UsageError, match=words):
            batchwright.run(rows(1), schema=wrong, simulate=True, home=tmp_path)
    with pytest.raises(UsageError, match="give a schema too"):
        batchwright.run(rows(1), repair=1, simulate=True, home=tmp_path)
