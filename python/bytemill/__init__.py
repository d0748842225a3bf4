"""From raw text to a language model of your own.

>>> import bytemill
>>> tokenizer = bytemill.train_tokenizer(iter(["the cat sat on the mat"]), vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("the hat"))
'the hat'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import UNICODE_VERSION, __version__
    from .corpus.argument import Corpus
    from .counts import Counts, count_corpus, count_to_file
    from .encodings import encoding_for_model, get_encoding, list_encoding_names
    from .errors import (
        BytemillError,
        CheckpointError,
        ConfigError,
        CorpusError,
        MissingPackageError,
        TokenizerError,
        TokensError,
        TrainingError,
    )
    from .learn import train_bpe, train_tokenizer
    from .progress import ProgressEvent
    from .tokenizer import Batch, Decoder, Offsets, Tokenizer
    from .tokens.view import Documents, Tokens, verify_tokens

# In pipeline order: text, tokenizer, counts, tokens; then the errors.
__all__ = [  # noqa: RUF022
    "train_tokenizer",
    "train_bpe",
    "Tokenizer",
    "Batch",
    "Offsets",
    "Decoder",
    "get_encoding",
    "encoding_for_model",
    "list_encoding_names",
    "Corpus",
    "count_corpus",
    "count_to_file",
    "Counts",
    "Tokens",
    "Documents",
    "verify_tokens",
    "ProgressEvent",
    "BytemillError",
    "ConfigError",
    "CorpusError",
    "TokenizerError",
    "TokensError",
    "CheckpointError",
    "TrainingError",
    "MissingPackageError",
    "UNICODE_VERSION",
    "__version__",
]

# Modules are imported when one of their names is first used: a program that only parses its
# arguments starts at once, and Ctrl-C during slow imports reaches the command line's handler.
_MODULES = {
    "_native": ("UNICODE_VERSION", "__version__"),
    "corpus.argument": ("Corpus",),
    "counts": ("Counts", "count_corpus", "count_to_file"),
    "encodings": ("encoding_for_model", "get_encoding", "list_encoding_names"),
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "progress": ("ProgressEvent",),
    "tokenizer": ("Batch", "Decoder", "Offsets", "Tokenizer"),
    "tokens.view": ("Documents", "Tokens", "verify_tokens"),
    "learn": ("train_bpe", "train_tokenizer"),
}

# Public modules that need no import statement: `bytemill.lm.train`.
_SUBMODULES = ("encodings", "lm", "look")


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(importlib.import_module(f".{module}", __name__), name)
            globals()[name] = value
            return value
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES])
