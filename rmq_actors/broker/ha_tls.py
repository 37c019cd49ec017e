"""TLS on the HA port: the certificates are those of remoting, the keys `tls.` of a broker."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import attrs
import trio

from rmq_actors.remoting.tls import Tls, TlsClient, TlsConfigError, TlsHandshakeError, TlsServer, TlsTransport

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

#: What one call sends at most: a slave that takes this much in haHousekeepingInterval is not stuck.
_SEND_BYTES = 64 * 1024
#: What one call receives at most: OpenSSL gives one record, and has memory made for what is asked for. It cuts what is
#: sent into full records, so only the last one of a send is smaller.
RECORD_BYTES = 16 * 1024


@attrs.frozen
class BrokerTls:
    """An `HaTls`."""

    _server: TlsServer
    _client: TlsClient

    @classmethod
    def of(cls, tls: Tls | None) -> Self:
        """Raises `TlsConfigError` if there are no certificates."""
        if tls is None or tls.ha_server is None or tls.ha_client is None:
            raise TlsConfigError("haTlsEnable=true needs the settings of TLS: Tls.from_config(config, ha=True)")
        return cls(tls.ha_server, tls.ha_client)

    @property
    def record_bytes(self) -> int:
        """See `HaTls`."""
        return RECORD_BYTES

    async def accept(self, stream: trio.SocketStream) -> trio.socket.SocketType:
        """See `HaTls`. A slave of RocketMQ says nothing for 5 s, and then a report in plain text."""
        return TlsSocket(await self._server.accept_in_time(stream), stream.socket)

    async def connect(self, stream: trio.SocketStream, host: str) -> trio.socket.SocketType:
        """See `HaTls`."""
        try:
            return TlsSocket(await self._client.connect(stream, host), stream.socket)
        except TlsHandshakeError as error:
            if _is_distrust(error):
                raise
            raise TlsHandshakeError(f"{error}; is haTlsEnable=true at the master, too? This slave has it") from error


def _is_distrust(error: BaseException | None) -> bool:
    """Whether it was this side that did not like the other's certificate."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__
    return False


class TlsSocket(trio.socket.SocketType):
    """What replication asks of a socket, over TLS. Nothing can be sent without waiting."""

    def __init__(self, transport: TlsTransport, socket: trio.socket.SocketType) -> None:
        super().__init__()
        self._transport = transport
        self._socket = socket

    def __enter__(self) -> Self:
        """Close it at the end of a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    async def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """Wait for bytes; how many, 0 at the end. All of `buffer` is meant."""
        del nbytes, flags
        return await self._transport.receive_into(memoryview(buffer)[:RECORD_BYTES])

    async def send(self, bytes: Buffer, flags: int = 0, /) -> int:  # noqa: A002 - Trio's name
        """Send some of `bytes`; how many."""
        del flags
        return await self._transport.send_some(memoryview(bytes)[:_SEND_BYTES])

    async def sendmsg(
        self, buffers: Iterable[Buffer], ancdata: Iterable[Any] = (), flags: int = 0, address: None = None, /
    ) -> int:
        """Send some of several buffers as if they were one; how many bytes."""
        del ancdata, flags, address
        parts, room = [], _SEND_BYTES
        for buffer in buffers:
            part = memoryview(buffer)[:room]
            parts.append(part)
            room -= len(part)
            if not room:
                break
        return await self._transport.send_some(b"".join(parts))

    def close(self) -> None:
        """Close it at once; a second call does nothing."""
        self._socket.close()
