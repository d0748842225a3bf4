"""State that all handlers share: the settings, the catalog and the loaded models."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..errors import ConfigError
from .catalog import Catalog

if TYPE_CHECKING:
    from .models import Models

__all__ = ["OtherSettings", "Settings", "State", "is_loopback"]

MIN_KEY_LENGTH = 8


class OtherSettings(TypedDict, total=False):
    """The fields of `Settings` that are keywords of `serve` as they are."""

    host: str
    api_key: str | None
    insecure: bool
    cors: Sequence[str]
    device: str
    max_body: int
    body_seconds: float
    max_queue: int
    max_batch: int
    max_models: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the server was started.

    Attributes:
        paths: where tokenizers, runs and sweeps are looked for.
        host: the address to listen on.
        port: the port to listen on.
        api_key: required with every request; None for no key.
        insecure: whether a host that others can reach may go without a key.
        cors: the origins whose pages may call the server.
        device: the device of models, as in `bytemill.lm.load`.
        max_body: bytes of a request.
        body_seconds: time for a request to arrive.
        max_queue: requests for text that may wait.
        max_batch: samples that are decoded together.
        max_models: models kept in memory.
    """

    paths: Sequence[Path] = (Path(),)
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    insecure: bool = False
    cors: Sequence[str] = ()
    device: str = "auto"
    # The page Tokens sends up to 4 MB of text; in JSON, a line end or a quote takes two bytes.
    max_body: int = 8 << 20
    body_seconds: float = 30.0
    max_queue: int = 64
    max_batch: int = 16
    max_models: int = 2

    def __post_init__(self) -> None:
        key = self.api_key
        if key is not None and not (
            len(key) >= MIN_KEY_LENGTH and all("!" <= char <= "~" for char in key)
        ):
            raise ConfigError(
                f"api_key must be ≥ {MIN_KEY_LENGTH} printable ASCII characters without spaces",
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes one",
            )
        if not (is_loopback(self.host) or key or self.insecure):
            raise ConfigError(
                f"host={self.host!r} lets other machines use this server, so it needs a key",
                "give api_key=, or insecure=True to let everyone in",
            )
        for origin in self.cors:
            scheme, _, rest = origin.partition("://")
            if origin != "*" and (scheme not in ("http", "https") or not rest or "/" in rest):
                raise ConfigError(
                    f"cors must be an origin, got {origin!r}",
                    "an origin is scheme, name and port: https://example.org",
                )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass
class State:
    """State of the server; passed to `routes(state)` of each module.

    Attributes:
        settings: how the server was started.
        catalog: tokenizers, runs and sweeps under the paths.
        models: the models in memory; None until the first request for one.
        at_exit: called when the server ends.
    """

    settings: Settings
    catalog: Catalog
    models: Models | None = None
    at_exit: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Ends the threads that handlers started."""
        for end in reversed(self.at_exit):
            end()
