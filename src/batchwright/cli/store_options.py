"""The options that say which store the batches are in; every command that opens it has them."""

from __future__ import annotations

import re

import click

DATABASE_OPTION = "database"
BLOBS_OPTIONS = ("blobs", "blobs_endpoint")
PASSWORD_IN_URL = re.compile(r"^[^/]*//[^/@]*:[^/@]+@|[?&]password=")


def with_store_options(command: click.Command) -> None:
    """They are taken from the context when the command loads its settings."""
    if any(param.name == DATABASE_OPTION for param in command.params):
        return
    command.params += [
        _option(
            "--database",
            "The batches of this PostgreSQL database: postgresql://USER@HOST/NAME; its password in PGPASSWORD or "
            "~/.pgpass. [default: those of the state folder]",
        ),
        _option(
            "--blobs",
            "Larger bodies in this object store: s3://BUCKET/PREFIX, gs://, az:// or file:///FOLDER; keys in its own "
            "variables (AWS_...). [default: in the database]",
        ),
        _option("--blobs-endpoint", "Where S3 is: MinIO and its like. [default: AWS_ENDPOINT_URL, else Amazon's]"),
    ]


def given_stores() -> dict[str, str]:
    """--database, --blobs and --blobs-endpoint, as they were given."""
    context = click.get_current_context(silent=True)
    meta = context.find_root().meta if context is not None else {}
    return {name: meta[name] for name in (DATABASE_OPTION, *BLOBS_OPTIONS) if name in meta}


def _option(flag: str, help_text: str) -> click.Option:
    return click.Option([flag], metavar="URL", expose_value=False, callback=_keep, help=help_text)


def _keep(context: click.Context, param: click.Parameter, url: str | None) -> None:
    if url is None:
        return
    assert param.name is not None, "an option has a name"
    if param.name == DATABASE_OPTION and PASSWORD_IN_URL.search(url):
        raise click.BadParameter(
            "a password has no place on the command line: other users see it in the list of processes. Put it into "
            "PGPASSWORD or ~/.pgpass, or the whole URL into BATCHWRIGHT_DATABASE",
            context,
            param,
        )
    context.find_root().meta[param.name] = url
