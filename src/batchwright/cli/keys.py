"""`batchwright keys create|list|revoke|budget`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from batchwright.cli import amounts, options
from batchwright.core.money import usd_text
from batchwright.core.tenants import LOCAL_ACCOUNT, Scope

if TYPE_CHECKING:
    from batchwright.ports.keys import ApiKey


@click.group(name="keys")
def keys_command() -> None:
    """Make, list, bound and revoke keys of the service.

    \b
    Examples:
      batchwright keys create --name analytics
      batchwright keys list
    """


@keys_command.command(name="create")
@click.option("--name", default="", help="Your word for it. [default: none]")
@click.option("--account", default=LOCAL_ACCOUNT, help="Whose batches it sees and makes. [default: local]")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    help="What it may do; several times for several. [default: submit and read]",
)
@click.option("--expires", callback=amounts.read_time, help="How long it holds (90d). [default: until it is revoked]")
@click.option(
    "--budget", callback=amounts.read_usd, help="What may be spent under it in all, in USD. [default: no bound]"
)
@click.option("--rpm", type=click.IntRange(1), default=None, help="Requests a minute, at most. [default: no bound]")
def create_command(
    name: str,
    account: str,
    scopes: tuple[str, ...],
    expires: float,
    budget: int,
    rpm: int | None,
) -> None:
    """Make a key and print it, this once.

    \b
    Examples:
      batchwright keys create --name analytics --budget 20
      batchwright keys create --name dashboard --scope read --expires 90d
    """
    from batchwright.assemble.keys import create_key
    from batchwright.cli.running import run_to_end
    from batchwright.server.new_key import KeyWish

    chosen = [Scope(scope) for scope in scopes] or [Scope.SUBMIT, Scope.READ]
    text, key = run_to_end(
        create_key(
            options.load_settings({}, sends_rows=False),
            KeyWish(
                account=account,
                name=name,
                scopes=frozenset(chosen),
                expires_s=expires,
                budget_picousd=budget,
                rpm=rpm or 0,
            ),
        )
    )
    click.echo(text)
    click.echo(f"{key.key_id} of account {key.account}; it is not shown again.", err=True)


@keys_command.command(name="list")
def list_command() -> None:
    """List keys, oldest first; of each only its first characters are known.

    \b
    Examples:
      batchwright keys list
      batchwright keys list | grep analytics
    """
    from batchwright.assemble.keys import list_keys
    from batchwright.cli.running import run_to_end

    for key in run_to_end(list_keys(options.load_settings({}, sends_rows=False))):
        click.echo(_line(key))


@keys_command.command(name="revoke")
@click.argument("key")
def revoke_command(key: str) -> None:
    """Revoke a key by its id, or a unique prefix of it. Within a second it is refused everywhere.

    \b
    Examples:
      batchwright keys revoke key_3f
      batchwright keys revoke key_3f9a1c2b7d604e85
    """
    from batchwright.assemble.keys import revoke_key
    from batchwright.cli.running import run_to_end

    revoked = run_to_end(revoke_key(options.load_settings({}, sends_rows=False), key))
    click.echo(f"{revoked.key_id} is revoked.", err=True)


@keys_command.command(name="budget")
@click.argument("key")
@click.argument("usd", required=False, callback=amounts.read_usd)
def budget_command(key: str, usd: int) -> None:
    """Set what may be spent under a key in all, in USD; without an amount it has no bound.

    Batches that were paused because it was spent go on with `batchwright resume`.

    \b
    Examples:
      batchwright keys budget key_3f 50
      batchwright keys budget key_3f
    """
    from batchwright.assemble.keys import set_budget
    from batchwright.cli.running import run_to_end

    changed = run_to_end(set_budget(options.load_settings({}, sends_rows=False), key, usd))
    bound = f"${usd_text(usd)}" if usd >= 0 else "no bound"
    click.echo(f"{changed.key_id}: {bound}.", err=True)


def _line(key: ApiKey) -> str:
    words = [key.key_id, f"{key.shown}...", key.account, key.name or "-", ",".join(sorted(key.scopes))]
    words.append(f"used {_day(key.last_used_ms)}" if key.last_used_ms else "never used")
    if key.budget_picousd >= 0:
        words.append(f"budget ${usd_text(key.budget_picousd)}")
    if key.rpm:
        words.append(f"{key.rpm} a minute")
    if key.expires_at_ms:
        words.append(f"until {_day(key.expires_at_ms)}")
    if key.revoked_at_ms:
        words.append(f"revoked {_day(key.revoked_at_ms)}")
    return "  ".join(words)


def _day(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d")
