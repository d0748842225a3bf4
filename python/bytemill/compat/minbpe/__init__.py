"""minbpe's tokenizers: its classes, modules, files and merges, without minbpe.

    from minbpe import RegexTokenizer    →    from bytemill.compat.minbpe import RegexTokenizer

Merges are learned by minbpe's own rule (`_first_met`). Encoding is the core's as long as it gives
what minbpe's loops would give, and those loops otherwise: merges that are assigned or changed and
methods that a subclass overrides count, as in minbpe. One difference: text that the pattern of a
`RegexTokenizer` does not match is kept, where minbpe drops it; the usual patterns match all text.
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
