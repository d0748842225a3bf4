"""minbpe's tokenizers: its classes, modules, files and merges, without minbpe.

    from minbpe import RegexTokenizer    →    from bytemill.compat.minbpe import RegexTokenizer

Merges are learned by minbpe's own rule (`_learner`). The core encodes where it gives the ids of
minbpe's loops; elsewhere, those loops run. Assigning or changing merges and overriding methods has
the same effect as in minbpe. One difference: text that the pattern of a `RegexTokenizer` does not
match is kept, where minbpe drops it. The published patterns match all text.
"""

from .base import Tokenizer
from .basic import BasicTokenizer
from .gpt4 import GPT4Tokenizer
from .regex import RegexTokenizer
from .regex_optimized import OptimizedRegexTokenizer

__all__ = [
    "BasicTokenizer",
    "GPT4Tokenizer",
    "OptimizedRegexTokenizer",
    "RegexTokenizer",
    "Tokenizer",
]
