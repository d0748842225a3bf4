"""Contenders in learning: from a text file to a tokenizer.

Each returns its merges in order or, if it breaks ties differently, its tokens in order of creation.
If it needs text in memory, reading and splitting the file is part of the measured time.
"""

from __future__ import annotations

from typing import Any

from jobs import EOT, Options, Outcome, byte_letters, digest, documents, timed


def bytemill(options: Options) -> Outcome:
    import bytemill

    # The tie rule of tokenizers and gigatoken, so that the merges can be compared.
    seconds, tokenizer = timed(
        lambda: bytemill.train_tokenizer(
            options["corpus"],
            vocab_size=options["vocab_size"],
            special_tokens=[EOT],
            tie_break="huggingface",
            threads=options["threads"],
            memory_limit=options.get("memory_limit"),
            progress=False,
        )
    )
    return seconds, {"merges": digest(tokenizer.merges), "n": len(tokenizer.merges)}, {}


def gigatoken(options: Options) -> Outcome:
    import gigatoken

    seconds, (_, merges) = timed(
        lambda: gigatoken.train_bpe(options["corpus"], options["vocab_size"], [EOT])
    )
    return seconds, {"merges": digest(merges), "n": len(merges)}, {}


def tokenizers(options: Options) -> Outcome:
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=options["vocab_size"],
        special_tokens=[EOT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    seconds, _ = timed(lambda: tokenizer.train_from_iterator(documents(options), trainer))
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    pairs = [tuple(map(byte_letters, pair)) for pair in merges]
    return seconds, {"merges": digest(pairs), "n": len(pairs)}, {}


def rustbpe(options: Options) -> Outcome:
    import rustbpe

    from bytemill import _native

    tokenizer = rustbpe.Tokenizer()
    pattern = _native.pattern_regex("gpt2")

    def train() -> None:
        # It has no special tokens: one id is reserved for ours.
        tokenizer.train_from_iterator(
            iter(documents(options)), options["vocab_size"] - 1, pattern=pattern
        )

    seconds, _ = timed(train)
    tokens: list[Any] = [bytes(token) for token, _ in tokenizer.get_mergeable_ranks()]
    # It breaks ties between equally common pairs differently, so only the number can be
    # compared; ties.py compares the merges.
    return seconds, {"n": len(tokens) - 256}, {}


CONTENDERS = {
    "bytemill": bytemill,
    "gigatoken": gigatoken,
    "rustbpe": rustbpe,
    "tokenizers": tokenizers,
}
