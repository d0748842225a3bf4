"""Chat templates: messages → the text that a model continues.

The template is a Jinja file beside the tokenizer of a run, `chat_template.jinja`, or the field
`chat_template` of `tokenizer_config.json`, as transformers has them. It is rendered in a sandbox.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .._json import parse_object
from ..errors import BytemillError, CheckpointError, require
from .replies import Refusal

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["find_template", "rendered"]

MAX_TEMPLATE = 1 << 20


def find_template(run: Path) -> str | None:
    """The chat template of a run; None if it has none."""
    text = _read(run / "chat_template.jinja")
    if text is not None:
        return text
    config = _read(run / "tokenizer_config.json")
    if config is None:
        return None
    found = parse_object(config.encode(), "tokenizer_config.json", CheckpointError)
    template = found.get("chat_template")
    return template if isinstance(template, str) else None


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > MAX_TEMPLATE:
            raise Refusal(400, f"{path.name} is too large")
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(400, f"{path.name} cannot be read: {error}") from None


def rendered(template: str, messages: list[dict[str, Any]], tokenizer: Tokenizer) -> str:
    """The prompt of some messages; raises if the template cannot be rendered."""
    jinja2 = require("jinja2", "the chat template of this model", extra="serve")
    sandbox = require("jinja2.sandbox", "the chat template of this model", extra="serve")

    def refuse(message: object) -> NoReturn:
        raise jinja2.TemplateError(str(message))

    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    from ..lm.generate import end_id

    end = end_id(tokenizer)
    eos = "" if end is None else tokenizer.decode([end])
    try:
        text: str = environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, bos_token="", eos_token=eos
        )
    except BytemillError:
        raise
    except Exception as error:
        # A template may fail in any way.
        raise Refusal(
            400, f"the chat template of the model failed: {str(error)[:300]}", param="messages"
        ) from None
    return text
