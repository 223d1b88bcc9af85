from __future__ import annotations

import asyncio
import errno
import gzip
from pathlib import Path

import pytest
import zstandard

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec
from batchwright.core.errors import UsageError
from batchwright.core.failures import FailureKind
from batchwright.core.records import InputRow, Record
from batchwright.ports.batches import BatchStatus
from batchwright.runner.deliver import check_delivery, deliver
from batchwright.runner.earlier_file import begins_anything_else, holds_anything_else
from batchwright.runner.export import export, format_of
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.report import NOTHING_DONE
from batchwright.runner.request import Delivery
from batchwright.runner.seams import Seams
from batchwright.wire.output_lines import OutputFormat
from batchwright.wire.table_lines import ADDED
from support.batch_samples import spec_of
from support.memory_batches import MemoryBatch, MemoryBatches
from support.runner_parts import HandInterrupts, KeptDisplay, MemoryLocks, ScriptedWorkers, SteppedClock, echo, refused


def seams_of(batches: MemoryBatches, display: KeptDisplay | None = None) -> Seams:
    return Seams(
        batches=batches,
        workers=ScriptedWorkers(batches),
        display=display or KeptDisplay(),
        clock=SteppedClock(),
        locks=MemoryLocks(),
        interrupts=HandInterrupts(),
    )


def ended(spec: BatchSpec | None = None) -> tuple[MemoryBatches, BatchStatus]:
    """Four rows: an answer, a refusal, a cancelled one, an answer with a line separator in it."""
    batches = MemoryBatches()
    batch = MemoryBatch("batch_00", spec or spec_of(), 0, accepting=False)
    batches.batches[batch.batch_id] = batch
    for row in range(4):
        batch.rows.append(
            InputRow(
                body=b'{"model":"m","messages":[]}',
                custom_id=f"r{row}" if row else None,
                model="m",
                columns=b'{"id":"%d","text":"=1+%d"}' % (row, row),
                line=row + 1,
            )
        )
        batch.row_map.append(row_map.PENDING)
    batch.end(0, echo(0, batch.rows[0]))
    batch.end(1, refused(1))
    spoken = '{"choices":[{"message":{"content":"one\u2028two"},"finish_reason":"stop"}]}'.encode()
    batch.end(3, Record(row=3, byte=row_map.PLAIN_SUCCESS, attempts=2, used=2, body=spoken, vendor="acme", no_usage=1))
    batch.close(FailureKind.CANCELLED)
    return batches, batch.status()


def write(delivery: Delivery, spec: BatchSpec | None = None) -> None:
    batches, status = ended(spec)
    asyncio.run(export(status, delivery, seams_of(batches)))


def test_infrai_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(Delivery(output=path))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    assert lines[0] == (
        '{"ok":true,"request_index":0,"cost_usd":0,"vendor":"acme","region":null,"result":{"content":"echo 0",'
        '"finish_reason":"stop","model":"m","usage":null},"flags":[],"attempts":1,"response":{"choices":[{"message":'
        '{"content":"echo 0"},"finish_reason":"stop"}],"model":"m"}}'
    )
    assert '"content":"one\\u2028two"' in lines[3]


def test_openai_lines_are_in_row_order_and_one_a_row(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(Delivery(output=path, output_format="openai"))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[1] for line in lines] == [
        '"custom_id":null', '"custom_id":"r1"', '"custom_id":"r2"', '"custom_id":"r3"'
    ]  # fmt: skip
    assert '"response":null,"error":{"code":"batch_cancelled"' in lines[2]


def test_csv_keeps_the_inputs_own_columns(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write(Delivery(output=path), spec_of(csv_columns=("id", "text")))
    records = path.read_bytes().decode().split("\r\n")
    assert records[0].startswith("id,text,answer,")
    assert records[1].startswith("0,=1+0,echo 0,stop,")
    assert len(records) == 6


def test_failed_rows_are_written_beside_as_input(tmp_path: Path) -> None:
    failed = tmp_path / "failed.jsonl"
    write(Delivery(output=tmp_path / "out.jsonl", failed_output=failed))
    body = '"method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[]}}'
    assert failed.read_text().splitlines() == ['{"custom_id":"r1",' + body, '{"custom_id":"r2",' + body]


def test_an_interrupt_leaves_the_earlier_files(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("earlier")
    batches, status = ended()
    seams = seams_of(batches)

    class Pressing(KeptDisplay):
        def writing(self, done: int, total: int) -> None:
            seams.interrupts.press()  # type: ignore[attr-defined]

    seams = seams_of(batches, Pressing())
    with pytest.raises(Interrupted):
        asyncio.run(export(status, Delivery(output=path), seams))
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("out.jsonl", "earlier")]


def test_a_full_disk_is_named_with_the_command_that_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    batches, status = ended()
    delivery = Delivery(output=tmp_path / "out.jsonl")
    outcome = asyncio.run(deliver(status, delivery, NOTHING_DONE, seams_of(batches)))
    assert outcome.exit_code == 1
    assert outcome.closing[0] == f"The disk is full: {tmp_path / 'out.jsonl'} could not be written."
    assert outcome.closing[1].endswith(f"batchwright export batch_00 -o {tmp_path / 'out.jsonl'}")
    assert list(tmp_path.iterdir()) == []


def test_standard_output_gets_lines_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write(Delivery())
    assert len(capfdbinary.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "asked", "form"),
    [("a.jsonl", "", OutputFormat.INFRAI), ("a.csv", "", OutputFormat.CSV), ("a.CSV.gz", "", OutputFormat.CSV),
     ("a.csv.zst", "", OutputFormat.CSV), ("a", "", OutputFormat.INFRAI), ("a.csv", "openai", OutputFormat.OPENAI)],
)  # fmt: skip
def test_the_suffix_chooses_unless_told(name: str, asked: str, form: OutputFormat) -> None:
    assert format_of(Delivery(output=Path(name), output_format=asked)) is form


@pytest.mark.parametrize(
    ("name", "asked"), [("a.parquet.gz", ""), ("a.xlsx", ""), ("a.jsonl.bz2", ""), ("a.csv.xz", ""), ("a.jsonl", "xml")]
)
def test_a_form_that_is_not_written_is_refused(name: str, asked: str) -> None:
    with pytest.raises(UsageError):
        format_of(Delivery(output=Path(name), output_format=asked))


# ---------------------------------------------------------------------------------- what is there already


def delivered(delivery: Delivery, columns: tuple[str, ...] = ()) -> list[str]:
    """Writes four rows; what was said."""
    batches, status = ended(spec_of(csv_columns=columns))
    display = KeptDisplay()
    asyncio.run(export(status, delivery, seams_of(batches, display)))
    return display.said


@pytest.mark.parametrize(
    ("name", "form", "columns"),
    [
        ("out.jsonl", "", ()),
        ("out.jsonl", "openai", ()),
        ("out.jsonl.gz", "", ()),
        ("out.jsonl.zst", "", ()),
        ("out.csv", "", ()),
        ("out.csv", "", ("id", "text")),
        ("out.csv", "", ("id", "answer")),
    ],
)
def test_every_form_of_answers_may_be_written_anew(
    tmp_path: Path, name: str, form: str, columns: tuple[str, ...]
) -> None:
    failed = tmp_path / "failed.jsonl"
    delivery = Delivery(output=tmp_path / name, output_format=form, failed_output=failed)
    delivered(delivery, columns)
    assert failed.stat().st_size
    check_delivery(delivery, ())
    assert delivered(delivery, columns) == [], "and of the same rows nothing is said"


@pytest.mark.parametrize(
    "content", [b"my notes\n", b'{"prompt": "hi"}\n', b"id,text\n1,x\n", b"\x00\xff", b'{"custom_id":"a"}\n']
)
def test_anything_else_is_replaced_only_by_force(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    typed = ("batchwright", "run", "rows.jsonl")
    with pytest.raises(UsageError, match=r"holds something else, which would be lost.*--force"):
        check_delivery(Delivery(output=path, command=typed), ())
    with pytest.raises(UsageError, match="force=True"):
        check_delivery(Delivery(output=path), ())
    check_delivery(Delivery(output=path, command=typed, force=True), ())
    assert path.read_bytes() == content


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_of_answers_is_replaced_whatever_stands_between_its_columns(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "out.csv"
    path.write_text(delimiter.join(["id", "a, b; c" if delimiter == "\t" else "text", *ADDED]) + "\n")
    check_delivery(Delivery(output=path), ())


def test_what_is_empty_or_not_there_is_free(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    squeezed = tmp_path / "empty.gz"
    squeezed.write_bytes(gzip.compress(b""))
    for path in (empty, squeezed, tmp_path / "none"):
        assert not holds_anything_else(path, requests=False)
    no_gzip = tmp_path / "plain.gz"
    no_gzip.write_bytes(b"plain")
    assert holds_anything_else(no_gzip, requests=False)


def test_answers_of_another_number_of_rows_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    delivery = Delivery(output=path)
    delivered(delivery)
    path.write_bytes(path.read_bytes() * 15)
    (said,) = delivered(delivery)
    assert said.startswith(f"{path} held 60 lines of other answers, and now holds the 4 rows of batch_00.")


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.jsonl.gz"])
def test_as_many_answers_of_other_rows_are_told_of_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    delivery = Delivery(output=path)
    delivered(delivery)
    zipped = name.endswith(".gz")
    data = gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
    other = data.replace(b"echo 0", b"echo 9", 1)
    assert other != data
    path.write_bytes(gzip.compress(other) if zipped else other)
    (said,) = delivered(delivery)
    assert "of other answers, and now holds the 4 rows of batch_00." in said
    assert delivered(delivery) == []


def test_answers_with_lines_of_ones_own_below_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    delivery = Delivery(output=path)
    delivered(delivery)
    check_delivery(delivery, ())
    path.write_bytes(path.read_bytes() * 30_000 + b"a line of my own\n")
    with pytest.raises(UsageError, match="holds something else"):
        check_delivery(delivery, ())


class MovingDisplay(KeptDisplay):
    def __init__(self) -> None:
        super().__init__()
        self.moves = True

    def writing(self, done: int, total: int) -> None:
        self.moves = True

    def close(self) -> None:
        self.moves = False


def test_nothing_moves_on_the_screen_once_answers_go_to_it(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """What moves is wiped later, and the end of the last answer with it."""
    batches, status = ended()
    display = MovingDisplay()
    asyncio.run(export(status, Delivery(), seams_of(batches, display)))
    assert not display.moves
    assert capfdbinary.readouterr().out.count(b"\n") == 4


@pytest.mark.parametrize(("content", "lines"), [(b"a\nb\n", "2 lines"), (b"a\nb\nc\nd\n", "4 lines"), (b"a", "1 line")])
def test_what_force_replaced_is_called_no_answers(tmp_path: Path, content: bytes, lines: str) -> None:
    path = tmp_path / "two.txt"
    path.write_bytes(content)
    assert delivered(Delivery(output=path, force=True)) == [
        f"{path} held {lines} that were no answers, and now holds the 4 rows of batch_00. Those are gone."
    ]


def test_of_a_stream_that_is_written_on_nothing_is_said_to_be_gone(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"a\nb\n")
    with open(path, "ab") as log:
        assert delivered(Delivery(output=Path(f"/dev/fd/{log.fileno()}"), force=True)) == []
    assert path.read_bytes().startswith(b"a\nb\n{")


def squeeze(data: bytes) -> bytes:
    """Without the time, which would be in a test's name: processes that share the tests out must name them alike."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("stored", "lost"),
    [
        (b"", False),
        (squeeze(b""), False),
        (squeeze(b'{"ok":true}\n' * 999)[:40], False),
        (squeeze(b"my notes"), True),
        (b"plain", True),
        (squeeze(b"my notes")[:10], True),
    ],
)
def test_of_a_squeezed_object_the_first_bytes_tell(stored: bytes, lost: bool) -> None:
    assert begins_anything_else(stored, "out.jsonl.gz", requests=False) is lost


def test_of_zstd_they_tell_as_well() -> None:
    zstd = zstandard.ZstdCompressor().compress
    for stored, lost in ((zstd(b""), False), (zstd(b'{"ok":true}\n' * 999), False), (zstd(b"notes"), True)):
        assert begins_anything_else(stored, "out.jsonl.zst", requests=False) is lost
    assert begins_anything_else(zstd(b""), "out.jsonl.gz", requests=False), "it is no gzip"
