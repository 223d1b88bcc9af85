"""What can be wrong with a row, as a finding without its line."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """A finding without its line."""

    code: str
    message: str
    param: str = ""


def nested_too_deeply(param: str) -> Problem:
    return Problem("invalid_json_line", "brackets are nested too deeply to be read", param)


CODES: dict[str, str] = {
    "invalid_json_line": "the line is no JSON value",
    "invalid_utf8": "the line is not UTF-8",
    "invalid_type": "a value is of another type than expected: the row, its body, messages, input, model ...",
    "missing_required_parameter": "the row lacks a body, or a body lacks its messages, input or prompt",
    "row_too_large": "the line is longer than one row may be",
    "missing_custom_id": "the row has no custom_id, by which a batch that is there already knows it",
    "duplicate_custom_id": "an earlier line has the same custom_id",
    "invalid_custom_id": "custom_id is no string, or too long to be a label",
    "invalid_method": "method is another than POST",
    "invalid_url": "url is no endpoint: an absolute address, a query, an odd path",
    "url_mismatch": "url is another endpoint than that of the first row",
    "unsupported_capability": "an item's capability is none that can be sent",
    "stream_not_supported": "the row asks for a streamed answer",
    "background_not_supported": "the row asks for an answer that would have to be fetched later",
    "schema_not_applicable": "--schema was given, but answers of the row's endpoint are no texts",
    "unroutable": "no configured vendor serves the row's model",
    "template_not_applicable": "--prompt, --template-file or --system was given, but the row has messages of its own",
    "missing_column": "the row lacks a column that the template names",
    "template_failed": "the template file cannot be filled from the row's values",
    "template_too_large": "what the template file makes of the row is too large, or takes too many steps",
    "image_unusable": "a picture is not there, too large, or none of PNG, JPEG, GIF and WebP",
    "ragged_row": "a table's row has more or fewer fields than its header",
    "empty_file": "the input has no rows",
    "json_array": "the input is one JSON value over many lines instead of one object a line",
}
"""Every code a finding can have. Those that OpenAI's batch validation has too carry its names."""
