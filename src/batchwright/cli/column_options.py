"""What goes in from columns: options of `run`, `validate` and `estimate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--template-file",
        metavar="FILE",
        help="The user message as a Jinja template, {{ column }}; or blocks called system and user. [default: none]",
    ),
    click.option(
        "--image",
        multiple=True,
        metavar="COLUMN",
        help="Column of pictures, paths from the input's folder or URLs, for the user message; may be repeated. Files "
        "are read as they are sent. [default: none]",
    ),
    click.option(
        "--where",
        metavar="CONDITION",
        help="Take only rows of which this is true: \"lang == 'de' and stars >= 4\"; and, or, not, in, is null. Text "
        "that is compared with a number is read as one; rows where it is none are left out, and told. [default: all]",
    ),
    click.option(
        "--select",
        metavar="A,B,C",
        help="Columns that are kept beside the row and written with its answer, in this order. [default: all]",
    ),
)


def column_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def of_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of these `Settings.to_request` takes."""
    return {name: given[name] for name in ("template_file", "image", "where", "select")}
