"""From raw text to a language model of your own.

>>> import bytemill
>>> tokenizer = bytemill.train_tokenizer(iter(["the cat sat on the mat"]), vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("the hat"))
'the hat'
"""

from ._native import UNICODE_VERSION, __version__
from .corpus import Corpus
from .counts import Counts, count_corpus
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
from .progress import ProgressEvent
from .tokenizer import Batch, Decoder, Offsets, Tokenizer
from .tokens import Documents, Tokens, verify_tokens
from .training import train_bpe, train_tokenizer

__all__ = [
    "UNICODE_VERSION",
    "Batch",
    "BytemillError",
    "CheckpointError",
    "ConfigError",
    "Corpus",
    "CorpusError",
    "Counts",
    "Decoder",
    "Documents",
    "MissingPackageError",
    "Offsets",
    "ProgressEvent",
    "Tokenizer",
    "TokenizerError",
    "Tokens",
    "TokensError",
    "TrainingError",
    "__version__",
    "count_corpus",
    "train_bpe",
    "train_tokenizer",
    "verify_tokens",
]
