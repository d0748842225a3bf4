"""Contenders in encoding: documents in memory to ids, in a fresh process."""

from __future__ import annotations

from jobs import Options, Outcome, digest_ids, documents, timed


def bytemill(options: Options) -> Outcome:
    import bytemill

    tokenizer = bytemill.Tokenizer.load(options["tokenizer"])
    texts = documents(options)
    seconds, batch = timed(lambda: tokenizer.encode_batch(texts, threads=options["threads"]))
    return seconds, {"ids": digest_ids([batch.ids])}


def tokenizers(options: Options) -> Outcome:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(options["tokenizer"])
    texts = documents(options)
    seconds, rows = timed(lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    return seconds, {"ids": digest_ids(row.ids for row in rows)}


def tiktoken(options: Options) -> Outcome:
    import tiktoken

    import bytemill

    ours = bytemill.Tokenizer.load(options["tokenizer"])
    specials = ours.special_tokens
    encoding = tiktoken.Encoding(
        "ours",
        pat_str=bytemill._native.pattern_regex(ours.pattern),
        mergeable_ranks={t: i for i, t in ours.vocab.items() if i not in specials.values()},
        special_tokens=specials,
    )
    texts = documents(options)
    seconds, rows = timed(
        lambda: encoding.encode_ordinary_batch(texts, num_threads=options["threads"])
    )
    return seconds, {"ids": digest_ids(rows)}


CONTENDERS = {"bytemill": bytemill, "tiktoken": tiktoken, "tokenizers": tokenizers}
