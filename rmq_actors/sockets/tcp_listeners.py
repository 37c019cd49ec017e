"""Listens, with errors that name the address: the system's only say that an address is in use."""

from __future__ import annotations

import errno

import trio


async def open_tcp_listeners(
    host: str, port: int, *, settings: str, backlog: int | None = None
) -> list[trio.SocketListener]:
    """Listen on all addresses of `host`. Raises `OSError` naming host and port, and the settings that hold them."""
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=backlog)
    except OSError as error:
        raise OSError(error.errno, f"{host}:{port}: {error.strerror or error} ({settings})") from error
    except UnicodeError as error:  # the text cannot be a host's name
        raise OSError(errno.EINVAL, f"{host}:{port}: {error} ({settings})") from error
