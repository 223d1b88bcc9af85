"""Names of inputs as people and the store are told them."""

from __future__ import annotations

import os
from pathlib import Path

from batchwright.core.row_options import RowOptions
from batchwright.runner.source import open_source


def test_a_file_name_that_is_no_utf8_is_told_with_an_escape(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"bad\xff.jsonl")
    with open(path, "wb") as file:
        file.write(b'{"prompt": "a", "model": "m"}\n')
    with open_source(Path(os.fsdecode(path)), RowOptions()) as source:
        assert source.name == "bad\\xff.jsonl"
