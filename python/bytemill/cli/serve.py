"""`bytemill serve`: a local web app."""

from __future__ import annotations

from typing import Any

import click

from . import options, streams

EXAMPLES = """\b
examples:
  bytemill serve
  bytemill serve demo/ --open
  bytemill serve runs/ tokenizer.json --port 8080
  BYTEMILL_API_KEY=... bytemill serve runs/ --host 0.0.0.0
"""


@click.command(epilog=EXAMPLES)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True,
              help="Address to listen on; any but a loopback address needs --api-key.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), metavar="N",
              help="Port; 0 for any free one.  [default: 8300, or the next free one]")  # fmt: skip
@click.option("--open", "open_browser", is_flag=True, help="Open the app in the browser.")
@click.option("--api-key", envvar="BYTEMILL_API_KEY", metavar="KEY",
              help="Require this key with every request; also from BYTEMILL_API_KEY.")  # fmt: skip
@click.option("--insecure", is_flag=True,
              help="Accept requests without a key on any --host.")  # fmt: skip
@click.option("--cors", multiple=True, metavar="ORIGIN",
              help="Allow requests from web pages of this origin; may be repeated.")  # fmt: skip
@options.device_option
@click.option("--max-batch", type=click.IntRange(min=1), metavar="N", default=16, show_default=True,
              help="Maximum number of samples decoded together.")  # fmt: skip
@click.option("--max-queue", type=click.IntRange(min=0), metavar="N", default=64, show_default=True,
              help="Maximum number of waiting requests; more are refused.")  # fmt: skip
@click.option("--max-models", type=click.IntRange(min=1), metavar="N", default=2, show_default=True,
              help="Maximum number of models in memory.")  # fmt: skip
@click.pass_context
def serve(ctx: click.Context, /, paths: tuple[str, ...], **settings: Any) -> None:
    """Serve a web app for the tokenizers, runs and sweeps under each PATH, and an OpenAI-compatible
    API.

    The default PATH is the current directory. Ctrl-C ends the server.
    """
    from .. import serve as server

    if settings["insecure"] and not settings["api_key"]:
        streams.note(ctx, "--insecure: everyone who reaches this server may use it")
    key = settings["api_key"]
    server.serve(
        paths or (".",),
        on_start=lambda address: _announce(address, key is not None),
        **settings,
    )


def _announce(address: str, with_key: bool) -> None:
    """Prints the address to stdout, and how to use it."""
    click.echo(address)
    if with_key:
        streams.say("login   add ?key= and the key to the address, once per browser")
    streams.say("stop    Ctrl-C")
