"""`--dry-run`: list the files a command would read, and estimate time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _numbers, _tables
from ..corpus.argument import Corpus
from ..preview import Preview, Work, preview
from . import arguments, streams


def show(corpus: Corpus, work: Work) -> None:
    """Prints the preview of work on a corpus."""
    print_previews([preview(corpus, work)])


def print_previews(previews: Sequence[Preview]) -> None:
    """Prints previews."""
    facts = [_facts(one) for one in previews]
    streams.emit(
        facts if len(facts) > 1 else facts[0],
        text=(part for one in previews for part in _text(one)),
    )


def _facts(one: Preview) -> dict[str, Any]:
    return {
        "dry_run": True,
        "files": [
            {"file": entry.name, "format": entry.format, "file_bytes": entry.size}
            for entry in one.listing.entries
        ],
        "skipped_files": arguments.skipped_files(one.listing),
        "bytes": one.text_bytes,
        "file_bytes": one.listing.file_bytes,
        "estimate": {
            "seconds": None if one.seconds is None else round(one.seconds, 1),
            "memory": one.memory,
            "sample_bytes": one.sample_bytes,
        },
    }


def _text(one: Preview) -> list[str]:
    entries, skipped = one.listing.entries, one.listing.skipped
    rows = [(entry.name, entry.format, _numbers.size(entry.size)) for entry in entries]
    parts = [_tables.table("llr", ("file", "format", "size"), rows)]
    if skipped:
        named = [(file.name, file.reason) for file in skipped]
        parts.append("\n" + _tables.table("ll", ("skipped", "reason"), named))
    n = len(entries)
    total = _numbers.text_size(one.text_bytes, one.listing.file_bytes)
    parts.append(f"\ntotal: {n:,} file{'' if n == 1 else 's'}, about {total}\n")
    if one.seconds is not None:
        parts.append(
            f"estimate, from a sample of {_numbers.size(one.sample_bytes)}: "
            f"{_numbers.duration(one.seconds)}, {_numbers.size(one.memory)} of memory\n"
        )
    return parts
