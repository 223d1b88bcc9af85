"""What goes in from columns: options of `run`, `validate` and `estimate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def column_options(function: F) -> F:
    return click.option(
        "--template-file",
        metavar="FILE",
        help="The user message as a Jinja template, {{ column }}; or blocks called system and user. [default: none]",
    )(function)


def of_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of these `Settings.to_request` takes."""
    return {"template_file": given["template_file"]}
