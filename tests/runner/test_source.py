"""Inputs of every kind as chunks of rows: what is read, what is refused, and that every line is accounted for."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.errors import Finding, InputRefused
from batchwright.core.rows import SourceRow
from batchwright.runner.source import CHUNK_ROWS
from batchwright.runner.validation import MAX_FINDINGS
from batchwright.wire.line_reader import BLOCK_BYTES, LongLine, read_lines
from support.sources import read, refused, row, source, write


def prompts(rows: Iterable[SourceRow]) -> list[str]:
    return [json.loads(row.row.body)["messages"][-1]["content"] for row in rows]


def where(findings: Iterable[Finding]) -> list[tuple[int, str]]:
    return [(finding.line, finding.code) for finding in findings]


class TestLines:
    def test_separators_inside_strings_do_not_end_a_line(self, tmp_path: Path) -> None:
        texts = ["one\u2028two", "three\u2029four\u0085five", "vertical\x0btab form\x0cfeed \x1c\x1d\x1e"]
        rows = read(write(tmp_path / "a.jsonl", [row(str(n), text) for n, text in enumerate(texts)]))
        assert prompts(rows) == texts

    @pytest.mark.parametrize("separator", [b"\n", b"\r\n", b"\n\n", b"\r\n \r\n"])
    @pytest.mark.parametrize("end", [b"\n", b"", b"\n\n \n"])
    def test_line_ends_and_blank_lines(self, tmp_path: Path, separator: bytes, end: bytes) -> None:
        path = write(tmp_path / "a.jsonl", [row("a"), row("b"), row("c")], separator=separator, end=end)
        with source(path) as found:
            rows = [row for chunk in found.chunks() for row in chunk]
            assert [row.row.custom_id for row in rows] == ["a", "b", "c"]
            assert found.rows + found.blank == found.lines
            assert found.lines == path.read_bytes().count(b"\n") + (end == b"")

    def test_byte_order_marks(self, tmp_path: Path) -> None:
        mark = b"\xef\xbb\xbf"
        joined = mark + row("a") + b"\n" + row("b") + b"\n" + mark + row("c") + b"\n" + mark + b"\n" + row("d")
        path = write(tmp_path / "a.jsonl", [joined])
        assert [row.row.custom_id for row in read(path)] == ["a", "b", "c", "d"]

    def test_a_line_above_the_limit_is_named_and_reading_goes_on(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row("a"), row("big", "x" * 8_000_000), row("c")])
        assert [row.row.custom_id for row in read(path)] == ["a", "big", "c"]
        error = refused(path, max_row_bytes=1024 * 1024)
        assert where(error.findings) == [(2, "row_too_large")]
        assert "1,048,576" in error.findings[0].message
        rows = read(path, max_row_bytes=1024 * 1024, skip_invalid=True)
        assert [row.finding is None for row in rows] == [True, False, True]
        assert len(rows[1].row.body) <= 4096

    def test_a_long_line_costs_a_few_times_its_size(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row("a"), row("big", "x" * 8_000_000), row("c")])
        tracemalloc.start()
        try:
            read(path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 5 * 8_000_000

    @given(
        st.lists(st.sampled_from([b"", b"a", b"bb", b"c" * 9, b"d" * 30, b"\r"]), max_size=12),
        st.integers(min_value=1, max_value=40),
        st.integers(min_value=1, max_value=12),
    )
    def test_any_cut_of_blocks_gives_the_same_lines(self, lines: list[bytes], block: int, limit: int) -> None:
        data = b"\n".join(lines)

        class Drip(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                assert size == BLOCK_BYTES
                return super().read(block)

        wanted = data.split(b"\n")
        if wanted[-1] == b"":
            wanted.pop()
        found = [line for part in read_lines(Drip(data), limit) for line in part]
        assert [line.size if isinstance(line, LongLine) else len(line) for line in found] == [
            len(line) for line in wanted
        ]
        for got, want in zip(found, wanted, strict=True):
            assert got == want if len(want) <= limit else isinstance(got, LongLine) and want.startswith(got.head)


class TestFindings:
    def test_lines_that_are_no_rows(self, tmp_path: Path) -> None:
        twice = b'{"custom_id":"e","url":"/v1/chat/completions","body":"{\\"model\\":\\"m\\"}"}'
        path = write(tmp_path / "a.jsonl", [row("a"), b"[1, 2]", b"null", b'"text"', twice, b'{"custom_id":"f"}'])
        error = refused(path)
        assert [finding.line for finding in error.findings] == [2, 3, 4, 5, 6]
        assert error.total == 5
        assert "5 of 6" in str(error)

    def test_url_of_another_endpoint_or_host(self, tmp_path: Path) -> None:
        urls = ["/v1/chat/completions", "/chat/completions", "v1/chat/completions/", "/v1/embeddings"]
        rows = [row(str(n), url=url) for n, url in enumerate([*urls, "http://127.0.0.1:9/v1/chat/completions"])]
        error = refused(write(tmp_path / "a.jsonl", rows))
        assert where(error.findings) == [(4, "url_mismatch"), (5, "invalid_url")]

    def test_stream(self, tmp_path: Path) -> None:
        rows = [row("a", stream=False), row("b", stream=True, stream_options={}), row("c", stream=None)]
        assert where(refused(write(tmp_path / "a.jsonl", rows)).findings) == [(2, "stream_not_supported")]

    def test_different_faults_in_line_order(self, tmp_path: Path) -> None:
        rows = [row(str(n)) for n in range(1, 10)]
        rows[1], rows[4], rows[8] = b'{"custom_id": "2", "method": ', row("1"), row("9", url="/v1/embeddings")
        error = refused(write(tmp_path / "a.jsonl", rows))
        assert where(error.findings) == [(2, "invalid_json_line"), (5, "duplicate_custom_id"), (9, "url_mismatch")]

    def test_repeated_ids_name_both_lines(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "a.jsonl", [row("q1", "alpha"), row("q2"), b"", row("q1"), row(None), row(None), row("q1")]
        )
        error = refused(path)
        assert [finding.message for finding in error.findings] == ["custom_id 'q1' already used at line 1"] * 2
        assert where(error.findings) == [(4, "duplicate_custom_id"), (7, "duplicate_custom_id")]

    def test_skipping_keeps_every_row_in_place(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row("q1", "alpha"), b"nonsense", row("q1", "beta"), row("q2")])
        rows = read(path, skip_invalid=True)
        assert [row.finding.code if row.finding else "" for row in rows] == [
            "",
            "invalid_json_line",
            "duplicate_custom_id",
            "",
        ]
        assert [bool(row.lane) for row in rows] == [True, False, False, True]

    def test_nothing_is_given_out_from_the_first_finding_on(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row(None) for _ in range(3 * CHUNK_ROWS)] + [b"x"] + [row(None)] * 2000)
        with source(path) as found:
            chunks = found.chunks()
            assert [len(next(chunks)) for _ in range(3)] == [CHUNK_ROWS] * 3
            with pytest.raises(InputRefused):
                next(chunks)

    def test_findings_are_bounded_and_counted(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [b"x"] * (MAX_FINDINGS + 7))
        error = refused(path)
        assert (len(error.findings), error.total) == (MAX_FINDINGS, MAX_FINDINGS + 7)

    def test_validation_adds_up(self, tmp_path: Path) -> None:
        rows = [row("a"), b"", row("b", model="m-big"), row("a"), b"x", row("e", stream=True, messages=[])]
        with source(write(tmp_path / "a.jsonl", rows)) as found:
            report = found.validate()
        assert (report.lines, report.rows, report.blank, report.refused, report.sendable) == (6, 5, 1, 3, 2)
        assert report.total == 4
        assert report.by_code == {
            "duplicate_custom_id": 1,
            "invalid_json_line": 1,
            "invalid_type": 1,
            "stream_not_supported": 1,
        }
        assert report.lanes == {"any||m-small": 1, "any||m-big": 1}
        assert report.endpoints == {"/chat/completions": 2}
        assert [finding.line for finding in report.findings] == [4, 5, 6, 6]

    @given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ")), min_size=1, max_size=20))
    def test_any_lines_are_all_accounted_for(self, lines: list[bytes]) -> None:
        data = b"\n".join([row("a"), *lines, row("b")])
        with source("-", stdin=data, skip_invalid=True) as found:
            rows = [row for chunk in found.chunks() for row in chunk]
            assert found.rows + found.blank == found.lines == len(lines) + 2
            assert len(rows) == found.rows
