"""`batchwright keys create|list|revoke|budget|share`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import amounts, options
from batchwright.cli.table import Cell, Column
from batchwright.core.fair_share import IN_FLIGHT_MAX, WEIGHT_MAX, WEIGHT_MIN, WEIGHT_ONE
from batchwright.core.money import usd_text
from batchwright.core.tenants import LOCAL_ACCOUNT, Scope
from batchwright.wire.infrai_keys import MAX_RPM

if TYPE_CHECKING:
    from batchwright.assemble.keys import ListedKey
    from batchwright.ports.keys import ApiKey
    from batchwright.ports.stored import Share

COLUMNS = (
    Column(heading="ID"),
    Column(heading="NAME", cut_to=8),
    Column(heading="ACCOUNT", cut_to=7),
    Column(heading="SPENT"),
    Column(heading="BUDGET"),
    Column(heading="A MINUTE", short="RPM", leaves=2),
    Column(heading="STATE"),
    Column(heading="LAST USED (UTC)", short="USED (UTC)", leaves=1),
    Column(heading="MAY", leaves=3),
    Column(heading="KEY", leaves=4),
)
SHARE_COLUMNS = (Column(heading="WEIGHT", leaves=2), Column(heading="AT ONCE", leaves=2))
"""Of the key's account; in a table only where some account was given a share."""
SHORT_KEY_ID = 12
"""Of a key's id where room is short: a prefix that names one key among millions."""


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
@click.option(
    "--account",
    default=LOCAL_ACCOUNT,
    help="Whose batches it sees and makes; `local` is the account of this machine's own runs. [default: local]",
)
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
@click.option(
    "--rpm",
    type=click.IntRange(1, MAX_RPM),
    default=None,
    help="Requests a minute, at most; a tenth of them may come at once. [default: no bound]",
)
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
      batchwright keys create --name ana --account ana --budget 20
      batchwright keys create --name dashboard --scope read --expires 90d
    """
    from batchwright.assemble.keys import create_key
    from batchwright.cli.running import run_to_end
    from batchwright.server.new_key import KeyWish

    chosen = [Scope(scope) for scope in scopes] or [Scope.SUBMIT, Scope.READ]
    text, key, twins = run_to_end(
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
    if key.account == LOCAL_ACCOUNT:
        ends = ", cancels and deletes" if Scope.SUBMIT in chosen else ""
        click.echo(
            f"Whoever has it sees{ends} this machine's own runs too; --account NAME gives a colleague a place apart.",
            err=True,
        )
    if twins:
        others = ", ".join(twins)
        click.echo(f"Also named {name!r}: {others}; `keys revoke` and `keys budget` want their ids now.", err=True)


@keys_command.command(name="list", short_help="List keys, oldest first.")
@options.json_option("One JSON object a line.")
def list_command(as_json: bool) -> None:
    """List keys, oldest first; of each only its first characters are known.

    With what was spent under each, beside its budget, and what `keys share` gave its account. Moments are UTC, the last
    use to within some seconds. In a pipe: tab-separated lines without headings.

    \b
    Examples:
      batchwright keys list
      batchwright keys list --json
    """
    from batchwright.assemble.keys import list_keys
    from batchwright.cli import screen
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end

    found, without_keys = run_to_end(list_keys(options.load_settings({}, sends_rows=False)))
    if as_json:
        for each in found:
            screen.print_json(_json(each))
        return
    given = any(not each.share.is_everybodys for each in found)
    columns = (*COLUMNS, *(replace(column, pipe_only=not given) for column in SHARE_COLUMNS))
    screen.print_rows(columns, [_cells(each) for each in found])
    for share in without_keys:
        say(f"An account without a key, {_share_text(share)}")
    if not found:
        say("There are no keys; `batchwright keys create` makes one.")


@keys_command.command(name="revoke", short_help="Revoke a key by its name or id.")
@click.argument("key")
def revoke_command(key: str) -> None:
    """Revoke a key by its name or id, or a unique prefix of that. Within a second it is refused everywhere.

    \b
    Examples:
      batchwright keys revoke key_3f
      batchwright keys revoke key_3f9a1c2b7d604e85
    """
    from batchwright.assemble.keys import revoke_key
    from batchwright.cli.running import run_to_end

    revoked = run_to_end(revoke_key(options.load_settings({}, sends_rows=False), key))
    click.echo(f"{revoked.key_id} is revoked.", err=True)


@keys_command.command(name="budget", short_help="Show or set what may be spent under a key, in USD.")
@click.argument("key")
@click.argument("usd", required=False, metavar="[USD|none]", callback=amounts.read_bound)
def budget_command(key: str, usd: int | None) -> None:
    """Show or set what may be spent under a key in all, in USD; `none`: there is no bound.

    KEY is its name or id, or a unique prefix of that. Batches that were paused because it was spent go on with
    `batchwright resume`. Without an amount it is only shown.

    \b
    Examples:
      batchwright keys budget analytics 50
      batchwright keys budget key_3f none
    """
    from batchwright.assemble.keys import budget
    from batchwright.cli.running import run_to_end

    found, bound_picousd = run_to_end(budget(options.load_settings({}, sends_rows=False), key, usd))
    bound = f"${usd_text(bound_picousd)}" if bound_picousd >= 0 else "no bound"
    click.echo(f"{found.key_id}: {bound}.", err=True)


@keys_command.command(name="share", short_help="Show or set an account's weight and bound among others.")
@click.argument("account")
@click.option(
    "--weight",
    type=click.FloatRange(WEIGHT_MIN / WEIGHT_ONE, WEIGHT_MAX / WEIGHT_ONE),
    callback=amounts.read_number,
    help="Of 2 accounts the one of 2 gets twice that of 1, which is everybody's. [default: as it is]",
)
@click.option(
    "--in-flight",
    type=click.IntRange(0, IN_FLIGHT_MAX),
    help="Segments (of up to 500 rows) that workers may hold of it at once; 0: no bound. [default: as it is]",
)
def share_command(account: str, weight: float | None, in_flight: int | None) -> None:
    """Show or set how much of the workers an account gets while others wait too, and how much at most at once.

    Workers take rows from the account that was served the fewest tokens, divided by its weight; both hold from their
    next claim on. Without an option it is only shown.

    \b
    Examples:
      batchwright keys share analytics --weight 2
      batchwright keys share nightly --weight 0.5 --in-flight 4
    """
    from batchwright.assemble.keys import share
    from batchwright.cli.running import run_to_end

    hundredths = None if weight is None else round(weight * WEIGHT_ONE)
    settings = options.load_settings({}, sends_rows=False)
    stands = run_to_end(share(settings, account, weight=hundredths, in_flight=in_flight))
    click.echo(_share_text(stands), err=True)


def _share_text(share: Share) -> str:
    from batchwright.runner.figures import plural

    bound = f"at most {plural(share.in_flight, 'segment')} at once" if share.in_flight else "no bound"
    return f"{share.account}: weight {share.weight / WEIGHT_ONE:g}, {bound}."


def _cells(listed: ListedKey) -> tuple[Cell, ...]:
    from batchwright.cli import screen
    from batchwright.runner.figures import money_text

    key, at_once = listed.key, listed.share.in_flight
    bounded = key.budget_picousd >= 0
    budget = Cell(
        money_text(key.budget_picousd) if bounded else "-",
        usd_text(key.budget_picousd) if bounded else "",
        right=True,
    )
    return (
        Cell(key.key_id, key.key_id, short=key.key_id[:SHORT_KEY_ID]),
        screen.text_cell(key.name),
        screen.text_cell(key.account),
        screen.cost_cell(listed.spent_picousd, complete=True),
        budget,
        Cell(f"{key.rpm:,}" if key.rpm else "-", str(key.rpm or ""), right=True),
        _state_cell(key),
        screen.moment_cell(key.last_used_ms) if key.last_used_ms else Cell("never", ""),
        screen.text_cell(",".join(sorted(key.scopes))),
        Cell(f"{key.shown}...", key.shown),
        screen.weight_cell(listed.share),
        Cell(f"{at_once:,}" if at_once else "-", str(at_once or ""), right=True),
    )


def _state_cell(key: ApiKey) -> Cell:
    """Whether it holds: what ended it, or will."""
    from batchwright.cli import screen

    for word, moment_ms in (("revoked", key.revoked_at_ms), ("until", key.expires_at_ms)):
        if moment_ms:
            text = screen.moment_text(moment_ms) or ""
            shown = f"{word} {text[:16].replace('T', ' ')}"
            return Cell(shown, f"{word} {text}", short=word if moment_ms == key.revoked_at_ms else shown)
    return Cell("holds", "holds")


def _json(listed: ListedKey) -> dict[str, Any]:
    from batchwright.cli import screen
    from batchwright.runner.standing import usd_json

    key, share = listed.key, listed.share
    return {
        "key_id": key.key_id,
        "shown": key.shown,
        "name": key.name or None,
        "account": key.account,
        "scopes": sorted(key.scopes),
        "spent_usd": usd_json(listed.spent_picousd),
        "budget_usd": usd_json(key.budget_picousd) if key.budget_picousd >= 0 else None,
        "rpm": key.rpm or None,
        "share": {"weight": share.weight / WEIGHT_ONE, "in_flight": share.in_flight or None},
        "created_at": screen.moment_text(key.created_at_ms),
        "last_used_at": screen.moment_text(key.last_used_ms),
        "expires_at": screen.moment_text(key.expires_at_ms),
        "revoked_at": screen.moment_text(key.revoked_at_ms),
    }
