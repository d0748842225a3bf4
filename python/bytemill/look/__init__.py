"""Inspection and comparison of tokenizers.

`statistics` describes a vocabulary, `tokenized` shows the tokens of a text, `compare` compares
tokenizers on one corpus, `report` on several. Each returns a `Result`, which has `to_text`,
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
