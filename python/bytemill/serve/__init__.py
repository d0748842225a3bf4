"""A local web app over tokenizers, runs and sweeps, and an OpenAI-compatible API.

Needs the extra `serve` (Starlette and uvicorn), which is imported when the server starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import require

if TYPE_CHECKING:
    from .app import make_app
    from .server import serve
    from .state import Settings

__all__ = ["Settings", "make_app", "serve"]

_HOMES = {"Settings": "state", "make_app": "app", "serve": "server"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in ("starlette", "uvicorn"):
        require(package, "bytemill serve", extra="serve")
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
