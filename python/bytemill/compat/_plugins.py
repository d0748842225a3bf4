"""Encodings of other packages, found as tiktoken finds them.

A plugin is a module in the namespace package `tiktoken_ext` with a dictionary
`ENCODING_CONSTRUCTORS`: a name → a function that returns the arguments of `Encoding`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from typing import Any

from ..encodings import list_encoding_names

__all__ = ["constructors", "plugin_modules"]

PACKAGE = "tiktoken_ext"
# tiktoken's own module would download vocabularies; `bytemill.encodings` has its encodings.
PUBLISHED = f"{PACKAGE}.openai_public"

Constructor = Callable[[], dict[str, Any]]


@functools.cache
def plugin_modules() -> tuple[str, ...]:
    """The names of the modules, found without importing them."""
    found = importlib.util.find_spec(PACKAGE)
    paths = (found and found.submodule_search_locations) or ()
    return tuple(name for _, name, _ in pkgutil.iter_modules(paths, f"{PACKAGE}."))


@functools.cache
def constructors() -> dict[str, Constructor | None]:
    """Encoding name → constructor; None for the encodings of `bytemill.encodings`."""
    modules = plugin_modules()
    found: dict[str, Constructor | None] = {}
    for module in modules if PUBLISHED in modules else (PUBLISHED, *modules):
        for name, constructor in _defined_in(module).items():
            if name in found:
                raise ValueError(f"{module}: there is another encoding of the name {name}")
            found[name] = constructor
    return found


def _defined_in(module: str) -> dict[str, Constructor | None]:
    if module == PUBLISHED:
        return dict.fromkeys(list_encoding_names())
    try:
        return dict(importlib.import_module(module).ENCODING_CONSTRUCTORS)
    except AttributeError as error:
        raise ValueError(f"{module}: a plugin must define ENCODING_CONSTRUCTORS") from error
