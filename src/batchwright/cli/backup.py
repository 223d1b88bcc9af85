"""`batchwright backup`."""

from __future__ import annotations

import click

from batchwright.cli import options


@click.command(name="backup")
@click.argument("file", type=click.Path(dir_okay=False))
def backup_command(file: str) -> None:
    """Copy the state of all batches to a file, while they run.

    The copy is what was durable at one moment. To go back to it, end every command here and put it in the place of
    batchwright.sqlite in the state folder (BATCHWRIGHT_HOME). A file that exists is never overwritten. Bodies in an
    object store (--blobs) stay there.

    \b
    Examples:
      batchwright backup batches.sqlite
      batchwright backup /backups/monday.sqlite
    """
    from pathlib import Path

    from batchwright import assemble
    from batchwright.cli.running import run_to_end

    settings = options.load_settings({})
    size = run_to_end(assemble.backup(settings, Path(file)))
    click.echo(f"{file}: {size:,} bytes.", err=True)
    if settings.blobs:
        click.echo(f"Bodies in {settings.blobs} are not in it: keep versions, or a copy, of what is there.", err=True)
