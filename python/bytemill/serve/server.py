"""The server: uvicorn on a socket, with timeouts, until it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import ConfigError
from .app import make_app
from .state import OtherSettings, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["serve"]

DEFAULT_PORT = 8300
# Ports to try, from the default on.
N_PORTS = 20
# Time for the headers of a request to arrive.
HEADER_SECONDS = 10.0
MAX_CONNECTIONS = 256


def serve(
    paths: Sequence[str | os.PathLike[str]] = (".",),
    *,
    port: int | None = None,
    open_browser: bool = False,
    on_start: Callable[[str], None] | None = None,
    **settings: Unpack[OtherSettings],
) -> None:
    """Serves the web app until the process is interrupted.

    Args:
        paths: where tokenizers, runs and sweeps are looked for.
        port: the port; 0 for any that is free, None for 8300 or the next that is free.
        open_browser: open the app in the browser.
        on_start: called with the address when the server listens.
        settings: other fields of `Settings`.
    """
    places = [Path(path) for path in paths]
    for place in places:
        if not place.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(place))
    chosen = Settings(paths=places, **settings)
    with _bound(chosen.host, port) as listener:
        number = listener.getsockname()[1]
        app = make_app(replace(chosen, port=number))
        address = f"http://{_in_url(chosen.host)}:{number}/"

        def started() -> None:
            if on_start is not None:
                on_start(address)
            if open_browser:
                query = "" if chosen.api_key is None else f"?key={chosen.api_key}"
                webbrowser.open(address + query)

        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            loop="asyncio",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=2,
        )
        _Server(config, started).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that reports when it listens."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        await asyncio.to_thread(self._on_start)


class _Protocol(H11Protocol):
    """Closes connections whose request does not arrive.

    uvicorn itself waits for headers as long as a client likes.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Starts to wait for headers, unless a request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._patience is None:
            self._patience = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _unwatch(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


# --- the address ----------------------------------------------------------------------------------


def _bound(host: str, port: int | None) -> contextlib.closing[socket.socket]:
    """A socket that listens on `host`."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(
            f"host={host!r} is not an address of this machine", "127.0.0.1 is the default"
        ) from None
    # Browsers try 127.0.0.1 for localhost in any case.
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    ports = range(DEFAULT_PORT, DEFAULT_PORT + N_PORTS) if port is None else [port]
    for number in ports:
        try:
            return contextlib.closing(
                socket.create_server((str(address[0]), number), family=family, backlog=128)
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            if error.errno in (errno.EACCES, errno.EPERM):
                raise ConfigError(
                    f"port={number} may not be used by this user", "use a port above 1023"
                ) from None
            raise ConfigError(
                f"host={host!r}: {os.strerror(error.errno or 0)}",
                "give an address of this machine; 0.0.0.0 is all of them",
            ) from None
    which = f"port={port} is" if port is not None else f"ports {ports[0]} to {ports[-1]} are"
    raise ConfigError(f"{which} in use", "port=0 takes any that is free")


def _in_url(host: str) -> str:
    """The host of an address that a browser on this machine can open."""
    if host in ("", "0.0.0.0"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host
