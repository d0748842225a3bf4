"""Several tokenizers on the same text: how well they compress, how fast, and where they differ.

`compare` sets tokenizers beside each other on one corpus, `report` on several, and adds what their
vocabularies hold and which tokens never came. `to_html` makes a page of a report.
"""

from .comparing import Comparison, compare
from .compression import Row
from .differences import Difference, Passage
from .report_page import to_html
from .reporting import PILE, Report, Vocabulary, report

__all__ = [
    "PILE",
    "Comparison",
    "Difference",
    "Passage",
    "Report",
    "Row",
    "Vocabulary",
    "compare",
    "report",
    "to_html",
]
