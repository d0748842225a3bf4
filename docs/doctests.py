"""An extension of griffe: doctests in docstrings become code blocks on the documentation site."""

from __future__ import annotations

import re
from typing import Any

import griffe

# From the first prompt of a paragraph to the next empty line.
DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    """Puts every doctest between fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
