"""`batchwright serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options

if TYPE_CHECKING:
    from batchwright.settings import Settings


@click.command(name="serve")
@click.option("--no-work", is_flag=True, help="Only serve; `batchwright work` sends the rows. [default: off]")
@options.endpoint_options
@options.transport_option
@options.serving_options
def serve_command(no_work: bool, **given: Any) -> int:
    """Serve this machine's batches over HTTP.

    Takes batches by Infrai's batch API and by OpenAI's (files, batches and single calls), and sends their rows to the
    vendors of the settings. The first time it prints a key, once; `batchwright keys create` makes others. Ctrl-C or
    SIGTERM once: answer what was asked, finish what is in flight, then end with exit code 0.

    \b
    Examples:
      batchwright serve
      batchwright serve --simulate --port 8081
    """
    from batchwright.assemble.service import THREADS, ServeRequest, serve
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end
    from batchwright.settings.table import LogForm

    def load() -> Settings:
        return options.load_settings(given, sends_rows=True)

    serving = load().serving
    request = ServeRequest(host=serving.host, port=serving.port, works=not no_work, ceilings=serving.ceilings)
    # In a log of objects a bare line would be none, and a key has no place in a log at all.
    show = click.echo if serving.log is LogForm.JSON else say
    return run_to_end(serve(load, request, say=say, show=show), sends=True, threads=THREADS)
