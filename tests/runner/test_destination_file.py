from __future__ import annotations

import errno
import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from batchwright.runner.destination_file import NoReaderYet, descriptor_of, open_sink


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_earlier_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("earlier")
    sink = open_sink(path)
    sink.write(b"new")
    sink.prepare()
    assert path.read_text() == "earlier"
    sink.commit()
    sink.abandon()
    assert (path.read_text(), names(tmp_path)) == ("new", ["out.jsonl"])


def test_what_is_abandoned_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("earlier")
    sink = open_sink(path)
    sink.write(b"half")
    sink.abandon()
    assert (path.read_text(), names(tmp_path)) == ("earlier", ["out.jsonl"])


def test_a_killed_writers_rest_is_removed_and_a_living_ones_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f".out.jsonl.{ended.pid}.part").write_text("half")
    (tmp_path / f".out.jsonl.{os.getppid()}.part").write_text("being written")
    (tmp_path / f".other.jsonl.{ended.pid}.part").write_text("not of this file")
    sink = open_sink(tmp_path / "out.jsonl")
    sink.prepare()
    sink.commit()
    assert names(tmp_path) == sorted([f".other.jsonl.{ended.pid}.part", f".out.jsonl.{os.getppid()}.part", "out.jsonl"])


def test_mode_and_link_of_the_earlier_file_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    path.write_text("earlier")
    path.chmod(0o640)
    link.symlink_to(path)
    sink = open_sink(link)
    sink.write(b"new")
    sink.prepare()
    sink.commit()
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)


def unzstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(data).read()


@pytest.mark.parametrize(("suffix", "plain"), [(".gz", gzip.decompress), (".zst", unzstd)])
def test_it_is_compressed_and_the_same_rows_give_the_same_bytes(
    tmp_path: Path, suffix: str, plain: Callable[[bytes], bytes]
) -> None:
    found = []
    for name in (f"a.jsonl{suffix}", f"b.jsonl{suffix}"):
        sink = open_sink(tmp_path / name)
        sink.write(b"line\n" * 1000)
        sink.prepare()
        sink.commit()
        found.append((tmp_path / name).read_bytes())
    assert plain(found[0]) == b"line\n" * 1000
    assert len(found[0]) < 200
    assert found[0] == found[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_names_the_file() -> None:
    sink = open_sink(Path("/dev/full"))
    with pytest.raises(OSError) as error:  # noqa: PT011
        sink.write(b"x" * 3_000_000)
    assert error.value.errno == errno.ENOSPC
    sink.abandon()


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="open files have no names here")
def test_an_open_file_is_written_on_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"earlier\n")
    with open(path, "ab") as file:
        place = Path(f"/dev/fd/{file.fileno()}")
        assert descriptor_of(place) == file.fileno()
        sink = open_sink(place)
        sink.write(b"new\n")
        sink.prepare()
        sink.commit()
    assert path.read_bytes() == b"earlier\nnew\n"
    assert [descriptor_of(Path(name)) for name in ("/dev/stdout", "/proc/self/fd/7", "/dev/null", "fd/1")] == [
        1, 7, None, None
    ]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_once_somebody_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(NoReaderYet):
        open_sink(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    sink = open_sink(path)
    sink.write(b"answers")
    sink.prepare()
    sink.commit()
    assert os.read(reader, 100) == b"answers"
    os.close(reader)
