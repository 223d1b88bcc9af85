"""Inputs that are objects: copied as they are read, for they are read more than once and may change meanwhile.

The copy of one object has its bytes, so that it is the same input as a file of them. Those below a prefix become one
input in the order of their names (`joining`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from batchwright.core.object_urls import ObjectURL
from batchwright.ports.object_files import ObjectFiles
from batchwright.runner.joining import Part, PartMark, joined
from batchwright.runner.spool import CopiedInput

OpenObjects = Callable[[], ObjectFiles]


def open_objects_input(url: ObjectURL, files: ObjectFiles, spool_dir: Path | None) -> CopiedInput:
    """Raises UsageError, InputRefused, StoreError."""
    found = files.found(url)
    if not url.is_prefix:
        return CopiedInput(files.blocks(found[0]), spool_dir)
    marks: list[PartMark] = []
    parts = [Part(str(each.url), partial(files.blocks, each)) for each in found]
    return CopiedInput(joined(parts, marks), spool_dir, marks)
