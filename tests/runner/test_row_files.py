"""Pictures of this machine: found beside the input, told by their bytes, and read again as they were."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

from batchwright.core.records import InputRow, RowFile
from batchwright.ports.row_files import FileUnusable
from batchwright.runner.row_files import KEPT_LOOKS, MAX_IMAGE_BYTES, FileLooks, LocalFiles, folder_of
from batchwright.wire.images import media_type_of
from batchwright.wire.messages import messages

PNG = b"\x89PNG\r\n\x1a\n" + b"data" * 30


def looked(folder: Path, name: str) -> RowFile:
    found = FileLooks(folder).look(name)
    assert isinstance(found, RowFile), found
    return found


def test_the_size_that_is_told_is_the_one_that_is_sent(tmp_path: Path) -> None:
    for extra in range(4):
        data = PNG + b"x" * extra
        (tmp_path / "a.png").write_bytes(data)
        file = looked(tmp_path, "a.png")
        assert file == RowFile(
            path=str(tmp_path / "a.png"),
            digest=hashlib.sha256(data).hexdigest(),
            size=len(data),
            media_type="image/png",
        )
        row = InputRow(body=messages("what?", "", [file.reference, file.reference]), files=(file, file))
        filled = LocalFiles().filled(row)
        assert filled.count(base64.b64encode(data)) == 2
        assert len(filled) <= row.sent_bytes <= len(filled) + 2 * len(file.reference)


def test_a_text_that_reads_like_a_reference_stays(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    file = looked(tmp_path, "a.png")
    text = f'{{"url":"{file.reference}"}} {file.reference}'
    filled = LocalFiles().filled(InputRow(body=messages(text, text, [file.reference]), files=(file,)))
    assert filled.count(file.reference.encode()) == 4
    assert filled.count(b"base64,") == 1


@pytest.mark.parametrize("change", ["other", "longer", "shorter", "gone", "folder"])
def test_what_changed_is_not_read(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    file = looked(tmp_path, "a.png")
    match change:
        case "gone" | "folder":
            path.unlink()
            if change == "folder":
                path.mkdir()
        case _:
            path.write_bytes({"other": PNG[:-1] + b"X", "longer": PNG + b"x", "shorter": PNG[:-1]}[change])
    with pytest.raises(FileUnusable) as caught:
        LocalFiles().filled(InputRow(body=b"{}", files=(file,)))
    assert caught.value.code == ("file_missing" if change in ("gone", "folder") else "file_changed")
    assert str(path) in str(caught.value)


def test_the_bound_is_what_it_says(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.write(PNG)
        file.truncate(MAX_IMAGE_BYTES)
    assert looked(tmp_path, "a.png").size == MAX_IMAGE_BYTES
    os.truncate(tmp_path / "a.png", MAX_IMAGE_BYTES + 1)
    assert "at most 20,971,520" in str(FileLooks(tmp_path).look("a.png"))


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, word in (
        ("a\x00b", "no name"),
        ("\ud800", "no name"),
        ("pipe", "no file"),
        ("x" * 5000, "cannot be read"),
    ):
        found = FileLooks(tmp_path).look(name)
        assert isinstance(found, str)
        assert word in found
        assert len(found) < 500


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    looks = FileLooks(tmp_path)
    first = looks.look("a.png")
    with monkeypatch.context() as patched:
        patched.delattr(Path, "open")
        assert looks.look("a.png") is first
    (tmp_path / "a.png").write_bytes(PNG + b"more")
    assert looks.look("a.png") != first
    assert len(looks._found) <= KEPT_LOOKS


def test_where_relative_paths_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1.csv", "a/2.csv", "b/3.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    monkeypatch.chdir(tmp_path)
    assert folder_of("a/1.csv") == tmp_path / "a"
    assert folder_of(str(tmp_path / "a" / "*.csv")) == tmp_path / "a"
    assert folder_of("*/*.csv") is None
    for source in ("-", [{"a": 1}], "s3://bucket/rows.csv"):
        assert folder_of(source) == tmp_path
    assert "relative path" in str(FileLooks(None).look("one.png"))


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xdb........", "image/jpeg"),
        (b"GIF87a......", "image/gif"),
        (b"GIF89a......", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBP", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", ""),
        (b"%PDF-1.7....", ""),
        (b"<svg xmlns=", ""),
        (b"", ""),
    ],
)
def test_kinds_by_their_first_bytes(head: bytes, media_type: str) -> None:
    assert media_type_of(head) == media_type
