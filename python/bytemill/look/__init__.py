"""Tokenizers looked at and compared.

`statistics` describes a vocabulary, `tokenized` shows how a text is cut, `compare` sets tokenizers
beside each other on one corpus, `report` on several. Each returns a `Result`, which has `to_text`,
`to_json` and `to_html`.
"""

from .comparison import PILE, Comparison, Report, Vocabulary, compare, report
from .measures import Difference, Passage, Row
from .result import Result
from .tokenized import Span, TokenizedText, tokenized
from .vocabulary import Statistics, statistics

__all__ = [
    "PILE",
    "Comparison",
    "Difference",
    "Passage",
    "Report",
    "Result",
    "Row",
    "Span",
    "Statistics",
    "TokenizedText",
    "Vocabulary",
    "compare",
    "report",
    "statistics",
    "tokenized",
]
