"""Chat templates of a tokenizer's directory: kept and written as transformers does, not applied.

A template is a text, or several by name. transformers reads `chat_template.jinja` and
`additional_chat_templates/NAME.jinja`, in their absence the `chat_template` of the configuration,
and writes the former.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Template = str | dict[str, str]
FILE = "chat_template.jinja"
DIRECTORY = "additional_chat_templates"


def checked(template: Any) -> Template | None:
    """A template as transformers keeps it: a text, texts by name, or None."""
    if isinstance(template, list | tuple):
        template = {each["name"]: each["template"] for each in template}
    if isinstance(template, Mapping):
        # A name is that of a file.
        if all(isinstance(text, str) and Path(k).name == k for k, text in template.items()):
            return dict(template)
    elif template is None or isinstance(template, str):
        return template
    raise TypeError(f"chat_template must be a text, or texts by name, not {template!r}")


def read(directory: Path) -> Template | None:
    """The templates in files; None if there are none."""
    found = {
        file.stem: file.read_text(encoding="utf-8")
        for file in sorted((directory / DIRECTORY).glob("*.jinja"))
    }
    default = directory / FILE
    if default.is_file():
        text = default.read_text(encoding="utf-8")
        return {"default": text} | found if found else text
    return found or None


def files(template: Template | None) -> dict[str, str]:
    """File name → text of what `read` reads back."""
    if template is None:
        return {}
    if isinstance(template, str):
        return {FILE: template}
    return {
        FILE if name == "default" else f"{DIRECTORY}/{name}.jinja": text
        for name, text in template.items()
    }
