"""How an HA connection ends, on either side."""

from __future__ import annotations


class PeerClosed(ConnectionError):
    """The other side ended the connection in order."""


def close_reason(cause: BaseException) -> str:
    """A short, stable word for why a connection ended, for traces."""
    if isinstance(cause, PeerClosed):
        return "peer_closed"
    return str(getattr(cause, "reason", "connection_lost"))
