"""`batchwright db`."""

from __future__ import annotations

import click

from batchwright.cli import options


@click.group(name="db")
def db_command() -> None:
    """Look at a database's schema, or bring it up to date.

    \b
    Examples:
      batchwright db check --database postgresql://batchwright@db.example.com/batches
      batchwright db upgrade
    """


@db_command.command(name="check")
def check_command() -> None:
    """Say whether this version can work on it; nothing is changed.

    Ends with 0 if it can, an empty database included, which gets its tables at the first use; else with 1.

    \b
    Examples:
      batchwright db check
      batchwright db check --database postgresql://db.example.com/batches
    """
    from batchwright import assemble

    click.echo(assemble.check_database(options.load_settings({})), err=True)


@db_command.command(name="upgrade")
def upgrade_command() -> None:
    """Make the tables, or bring them to this version's schema.

    One transaction: all of it or none. End the processes of the older version before; they would not know the new
    schema. A state folder's file is brought up to date by whichever command opens it.

    \b
    Examples:
      batchwright db upgrade
      batchwright db upgrade --database postgresql://db.example.com/batches
    """
    from batchwright import assemble

    click.echo(assemble.upgrade_database(options.load_settings({})), err=True)
