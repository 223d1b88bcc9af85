"""A Hugging Face dataset that was saved to disk: a folder of Arrow files, in the order that its `state.json` says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from batchwright.core.errors import UsageError

STATE, SPLITS = "state.json", "dataset_dict.json"


def files_of_dataset(source: object) -> list[Path]:
    """Its files in order; none for what is no such folder. Raises UsageError for one that is no one table."""
    if not isinstance(source, str | Path) or not os.path.isdir(source):
        return []
    folder = Path(source)
    if (folder / SPLITS).is_file():
        splits = [name for name in _read(folder / SPLITS).get("splits", ()) if isinstance(name, str)]
        shown = ", ".join(str(folder / name) for name in splits) or "none"
        raise UsageError(f"{folder} is a dataset of several splits; give one of them: {shown}")
    if not (folder / STATE).is_file():
        return []
    state = _read(folder / STATE)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UsageError(
            f"{folder} was saved as a selection of rows beside all of them; save it anew after "
            "dataset.flatten_indices()"
        )
    listed = state.get("_data_files")
    entries = listed if isinstance(listed, list) else []
    names = [each["filename"] for each in entries if isinstance(each, dict) and isinstance(each.get("filename"), str)]
    if not names or len(names) < len(entries):
        raise UsageError(f"{folder / STATE} names no data files; expected a folder of Dataset.save_to_disk")
    paths = [folder / name for name in names]
    if missing := [path for path in paths if not path.is_file()]:
        raise UsageError(f"{missing[0]}: there is no such file, and {folder / STATE} names it; copy the whole folder")
    return paths


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON: {error}") from error
    return found if isinstance(found, dict) else {}
