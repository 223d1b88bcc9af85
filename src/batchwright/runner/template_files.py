"""A template file, with all that it includes, read once: what is sent does not change with a file that is edited."""

from __future__ import annotations

from pathlib import Path

from batchwright.core.errors import UsageError
from batchwright.core.row_options import RowTemplate

MAX_TEMPLATE_BYTES = 1024 * 1024
"""Of one file. A prompt that is longer holds data, which belongs into a column."""
MAX_PARTS = 100
"""Files that a template includes, in all."""
GIVEN = "the template"
"""What a template is called that came as a text."""


def open_template(text: str | None, path: str | Path | None) -> RowTemplate | None:
    """From either, or none. Raises UsageError for what is not there, is no text or no template, and for an include from
    another folder."""
    if text is not None and path is not None:
        raise UsageError("template and template_file both say what is asked: give one of them")
    if text is not None:
        return _with_parts(GIVEN, text, None)
    if path is None:
        return None
    return _with_parts(Path(path).name, _read(Path(path), f"--template-file {path}"), Path(path).parent)


def _with_parts(name: str, text: str, folder: Path | None) -> RowTemplate:
    from batchwright.wire.jinja_template import names_of_parts

    parts: dict[str, str] = {}
    waiting = [(part, name) for part in names_of_parts(text, name)]
    while waiting:
        part, asker = waiting.pop()
        if part in parts:
            continue
        if folder is None:
            raise UsageError(f"{name} includes {part!r}: only a template file may include others, of its own folder")
        if len(parts) == MAX_PARTS:
            raise UsageError(f"{name} includes more than {MAX_PARTS} files")
        parts[part] = _read(_place_of_part(part, asker, folder), f"{asker} includes {part!r}")
        waiting += [(further, part) for further in names_of_parts(parts[part], part)]
    return RowTemplate(name=name, text=text, parts=parts)


def _place_of_part(part: str, asker: str, folder: Path) -> Path:
    home, place = folder.resolve(), (folder / part).resolve()  # links too: what is read lies there
    if not place.is_relative_to(home):
        raise UsageError(f"{asker} includes {part!r}, which is outside of the template's folder {home}; put it there")
    return place


def _read(file: Path, asked: str) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_TEMPLATE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{asked}: there is no such file (in {Path.cwd()})") from None
    except OSError as error:
        raise UsageError(f"{asked}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_TEMPLATE_BYTES:
        raise UsageError(f"{asked}: a template has at most {MAX_TEMPLATE_BYTES:,} bytes; data belongs into a column")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{asked}: byte 0x{data[error.start]:02x} at position {error.start + 1} is not UTF-8; save it as UTF-8"
        ) from None
