"""`batchwright serve`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options


@click.command(name="serve")
@click.option("--host", default="127.0.0.1", help="Address to listen at. [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, help="Port; 0: any free one. [default: 8080]")
@click.option("--no-work", is_flag=True, help="Only serve; `batchwright work` sends the rows. [default: off]")
@options.endpoint_options
@options.transport_option
def serve_command(host: str, port: int, no_work: bool, **given: Any) -> int:
    """Serve this machine's batches over HTTP.

    Takes batches by Infrai's batch API and sends their rows to the vendors of the settings. The first time it prints
    a key, once; `batchwright keys create` makes others. Ctrl-C or SIGTERM once: answer what was asked, finish what is
    in flight, then end.

    \b
    Examples:
      batchwright serve
      batchwright serve --simulate --port 8081
    """
    from batchwright.assemble.service import ServeRequest, serve
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end
    from batchwright.server.service import Ceilings

    settings = options.load_settings(given)
    request = ServeRequest(host=host, port=port, works=not no_work, ceilings=Ceilings())
    return run_to_end(serve(settings, request, say=say), sends=True)
