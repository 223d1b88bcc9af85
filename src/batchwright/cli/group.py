"""The top command: a static table of commands, each imported when it is called.

The table holds the one-line helps, so that `--help` imports no command; a test compares them with the commands' own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import Any, NoReturn

import click

from batchwright.cli import exits
from batchwright.cli.store_options import with_store_options

COMMANDS: dict[str, str] = {
    "run": "Send a file of requests and write the answers.",
    "check": "Check vendors, keys, models, prices and routes of the settings.",
    "validate": "Check a file of requests; nothing is sent.",
    "attach": "Take over a batch that was created at a vendor elsewhere.",
    "estimate": "Say what a run would use and cost, as a range.",
    "list": "List batches, newest first.",
    "status": "Show how a batch stands.",
    "watch": "Follow a batch until it ends or pauses.",
    "rows": "Show rows of a batch, filtered.",
    "sample": "Show random rows with their answers.",
    "stats": "Show what a batch's rows look like together.",
    "diff": "Compare two sets of answers, row by row.",
    "retry": "Send rows without success again, as a new round.",
    "cancel": "Cancel a batch; answers it has are kept.",
    "priority": "Move a batch before others of its account.",
    "pause": "Pause a batch; what is out ends, and `resume` goes on.",
    "resume": "Clear a batch's pauses and go on with it.",
    "export": "Write a batch's answers to a file.",
    "reprice": "Apply today's prices to stored answers; nothing is sent.",
    "delete": "Delete batches that have ended, with their rows and answers.",
    "usage": "Sum up tokens and cost by day, vendor and model.",
    "work": "Work on all batches of this machine.",
    "ray": "Keep workers on a Ray cluster, with nobody at a terminal.",
    "workers": "Show who works on the batches, drain workers, end a drain.",
    "lanes": "Show vendors' models and their limits, close and open them.",
    "serve": "Serve this machine's batches over HTTP.",
    "backup": "Copy the state of all batches to a file, while they run.",
    "db": "Look at a database's schema, or bring it up to date.",
    "keys": "Make, list, bound and revoke keys of the service.",
    "model": "Manage the local model.",
}
ALIASES = {"forget": "delete"}
"""Other words for the same command; no help page lists them."""
WITHOUT_STORE = ("validate", "model")
"""Commands that have nothing to ask of a store."""
KEY_OPTION = re.compile(r"--?(([a-z0-9]+[-_])*api[-_]?key|key|token)(=.*)?", re.IGNORECASE | re.DOTALL)
"""`--api-key`, `--apikey=...`, `--openai-api-key` and their like; not `--api-key-env`, not a mistyped `--max-token`."""
KEY_REFUSED = (
    "a key has no place on the command line: other users see it in the list of processes, and the shell keeps it in "
    "its history. Put it into an environment variable (or a .env file) and give the variable's name: "
    "--api-key-env NAME. OPENAI_API_KEY is read without that."
)


class LazyGroup(click.Group):
    """Commands of `COMMANDS`, each from the module `batchwright.cli.NAME`, where it has its own name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module = import_module(f"batchwright.cli.{name}")
        command = getattr(module, f"{name}_command")
        assert isinstance(command, click.Command)
        if name not in WITHOUT_STORE:
            inner = command.commands.values() if isinstance(command, click.Group) else ()
            does_something = not isinstance(command, click.Group) or command.invoke_without_command
            for one in (*inner, *([command] if does_something else [])):
                with_store_options(one)
        return command if cmd_name == name else _under_its_other_name(command, name, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in ALIASES and not name.startswith("-"):
            raise click.UsageError(f"There is no command {name!r}.{exits.nearest_text(name, COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Before anything else is parsed: no other message may repeat an argument that is a key.
        before_operands = args[: args.index("--")] if "--" in args else args
        if any(KEY_OPTION.fullmatch(argument) for argument in before_operands):
            raise click.UsageError(KEY_REFUSED, ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        return exits.quiet_when_unread(lambda: super(LazyGroup, self).invoke(ctx))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        def call() -> Any:
            try:
                return super(LazyGroup, self).main(args, prog_name, complete_var, standalone_mode=False, **extra)
            except SystemExit:
                return exits.OK  # click ends so, with 1, when the reader of a help page has gone

        code = exits.code_of_call(call)
        exits.flush_streams()
        raise SystemExit(code)


def _under_its_other_name(command: click.Command, name: str, other: str) -> click.Command:
    """Its examples are given as it was called."""
    called = copy(command)
    called.name, called.help = other, (command.help or "").replace(f"batchwright {name} ", f"batchwright {other} ")
    return called


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"batchwright {version('batchwright')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    name="batchwright",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=exits.EPILOG,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def batchwright() -> None:
    """Thousands to millions of LLM requests as one job: a file in, one answer a row out, in order, nothing lost.

    \b
    Examples:
      batchwright run tickets.jsonl -o answers.jsonl -m gpt-4o-mini
      batchwright rows @last --outcome failed
    """
