"""Contenders in encoding: a text in memory to ids, in a fresh process and then once more.

Each gets the text in the form that it reads fastest, and returns its cheapest result, an array if
it can. The time of the first pass counts; `warm` is the second.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import EOT, Options, Outcome, digest_ids, documents, timed


def twice(work: Callable[[], Any], rows: Callable[[Any], Any]) -> Outcome:
    seconds, result = timed(work)
    ids = digest_ids(rows(result))
    del result
    warm, _ = timed(work)
    return seconds, {"ids": ids}, {"warm": warm}


def bytemill(options: Options) -> Outcome:
    # bytemill imports numpy with the first array, the others when imported; imports are not timed.
    import numpy as np  # noqa: F401

    import bytemill

    tokenizer = bytemill.Tokenizer.load(options["tokenizer"])
    text = Path(options["corpus"]).read_bytes()
    end = tokenizer.special_tokens[EOT]
    return twice(
        lambda: tokenizer.encode_array(text, threads=options["threads"]),
        # The others omit it.
        lambda ids: [ids[ids != end]],
    )


def gigatoken(options: Options) -> Outcome:
    import awkward
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(Path(options["tokenizer"]).read_bytes())
    text = Path(options["corpus"]).read_bytes()
    source = gigatoken.BytesSource([text], separator=EOT)
    return twice(
        lambda: tokenizer.encode_batch(source, parallel=options["threads"] > 1),
        lambda ids: [awkward.to_numpy(awkward.flatten(ids))],
    )


def fastokens(options: Options) -> Outcome:
    import fastokens
    import numpy as np

    tokenizer = fastokens.Tokenizer.from_file(options["tokenizer"])
    texts = documents(options)
    return twice(
        lambda: tokenizer.encode_batch_flat(texts),
        lambda result: [np.frombuffer(result[0], np.uint32)],
    )


def tokenizers(options: Options) -> Outcome:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(options["tokenizer"])
    texts = documents(options)
    return twice(
        lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
        lambda rows: (row.ids for row in rows),
    )


def as_tiktoken(path: str) -> Any:
    """The same tokenizer as tiktoken's."""
    import tiktoken

    import bytemill

    ours = bytemill.Tokenizer.load(path)
    specials = ours.special_tokens
    return tiktoken.Encoding(
        "ours",
        pat_str=bytemill._native.pattern_regex(ours.pattern),
        mergeable_ranks={t: i for i, t in ours.vocab.items() if i not in specials.values()},
        special_tokens=specials,
    )


def tiktoken(options: Options) -> Outcome:
    encoding = as_tiktoken(options["tokenizer"])
    texts = documents(options)
    return twice(
        lambda: encoding.encode_ordinary_batch(texts, num_threads=options["threads"]),
        lambda rows: rows,
    )


CONTENDERS = {
    "bytemill": bytemill,
    "gigatoken": gigatoken,
    "fastokens": fastokens,
    "tiktoken": tiktoken,
    "tokenizers": tokenizers,
}
