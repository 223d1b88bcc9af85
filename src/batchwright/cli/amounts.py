"""Times, days, numbers and amounts of money on the command line, read as everywhere else."""

from __future__ import annotations

import math
from datetime import date

import click

from batchwright.core.durations import read_duration, shown
from batchwright.core.money import read_amount


def read_time(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float:
    """Of an option, in seconds; 0: it was not given."""
    if value is None:
        return 0.0
    try:
        return read_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_day(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    """Of an option: a day as 2026-03-01; empty: it was not given."""
    if value is None:
        return ""
    try:
        return date.fromisoformat(value.strip()).isoformat()
    except ValueError:
        raise click.BadParameter(f"expected a date such as 2026-03-01, found {shown(value)}") from None


def read_usd(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int:
    """Of an option, in 1e-12 USD; -1: it was not given."""
    if value is None:
        return -1
    try:
        return read_amount(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_bound(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Of an argument, in 1e-12 USD; -1 for `none`, None where it was not given."""
    if value is None:
        return None
    return -1 if value.strip().lower() == "none" else read_usd(context, parameter, value)


def read_number(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """Of an option with bounds, which `nan` passes."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("expected a number, found 'nan'")
    return value
