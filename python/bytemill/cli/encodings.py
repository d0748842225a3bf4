"""`bytemill encodings`: named encodings, and where their vocabularies are found."""

from __future__ import annotations

import click

from .. import _tables
from ..encodings import EncodingStatus, list_encoding_names, status
from . import options, streams

EXAMPLES = """\b
examples:
  bytemill encodings
  bytemill encodings --download o200k_base
  bytemill encodings --download cl100k_base --mirror https://files.example.org/encodings
  bytemill encode -t o200k_base comment.txt
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--download",
    "names",
    multiple=True,
    type=click.Choice(list_encoding_names()),
    metavar="NAME",
    help="Download the vocabulary of this encoding, unless it is found on this machine; may be "
    "repeated.",
)
@click.option(
    "--mirror",
    metavar="URL",
    help="Directory to download from, instead of where the vocabularies are published; the files "
    "are checked in either case.",
)
@options.report_options
def encodings(names: tuple[str, ...], mirror: str | None) -> None:
    """List the named encodings and where their vocabularies are found on this machine.

    Without --download, the network is not used.
    """
    if mirror is not None and not names:
        raise click.UsageError("--mirror needs --download")
    if names:
        from ..encodings.downloading import download

        for name in names:
            path = download(name, mirror=mirror, progress=options.progress())
            streams.inform(f"found   {name}: {path}")
    found = status(names or None)
    streams.emit([_fields(each) for each in found], text=[] if names else [_table(found)])


def _fields(status: EncodingStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "vocab_size": status.vocab_size,
        "ranks": status.ranks,
        "available": status.path is not None,
        "place": status.place,
        "path": None if status.path is None else str(status.path),
    }


def _table(found: list[EncodingStatus]) -> str:
    rows = (
        (
            each.name,
            f"{each.vocab_size:,}",
            "-" if each.path is None else f"{each.place}: {each.path}",
        )
        for each in found
    )
    return _tables.table("lrl", ("encoding", "ids", "found"), rows)
