"""Socket options: what was set is remembered and answered as Linux answers it."""

from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING, Final

import trio
from trio.socket import IPPROTO_TCP, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF, SO_REUSEADDR, SO_SNDBUF, SOL_SOCKET

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Linux's numbers, where the module has none.
_SO_DOMAIN: Final = getattr(trio.socket, "SO_DOMAIN", 39)
_SO_PROTOCOL: Final = getattr(trio.socket, "SO_PROTOCOL", 38)
_FLAGS: Final = {
    (SOL_SOCKET, trio.socket.SO_BROADCAST),
    (SOL_SOCKET, SO_KEEPALIVE),
    (SOL_SOCKET, trio.socket.SO_OOBINLINE),
    (SOL_SOCKET, SO_REUSEADDR),
    (SOL_SOCKET, getattr(trio.socket, "SO_REUSEPORT", 15)),
    (IPPROTO_TCP, trio.socket.TCP_NODELAY),
}
_READ_ONLY: Final = {
    trio.socket.SO_ACCEPTCONN, trio.socket.SO_ERROR, trio.socket.SO_TYPE, _SO_DOMAIN, _SO_PROTOCOL,
}  # fmt: skip
_int: Final = struct.Struct("i")
_linger: Final = struct.Struct("ii")

Value = int | bytes


class SocketOptions:
    """The options of one socket, but for SO_ERROR and SO_ACCEPTCONN, which its connection and its state answer."""

    def __init__(self, kind: int, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._kind = kind
        self._set: dict[tuple[int, int], Value] = {}

    def copy(self) -> SocketOptions:
        """The options of an accepted socket: its listener's."""
        copy = SocketOptions(self._kind, self._send_buffer_bytes, self._receive_buffer_bytes)
        copy._set = dict(self._set)
        return copy

    def set(self, level: int, name: int, value: int | Buffer | None) -> None:
        """Remember one. OSError ENOPROTOOPT for those that tell of a state, EINVAL for one that is too short."""
        if value is None:
            raise TypeError("a simulated socket takes no option without a value")
        if level == SOL_SOCKET and name in _READ_ONLY:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        raw: Value = value if isinstance(value, int) else bytes(value)
        if (level, name) == (SOL_SOCKET, SO_LINGER):
            if isinstance(raw, int) or len(raw) < _linger.size:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        elif isinstance(raw, bytes):
            if len(raw) < _int.size:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            raw = _int.unpack_from(raw)[0] if len(raw) == _int.size else raw
        self._set[level, name] = int(raw != 0) if (level, name) in _FLAGS else raw

    def get(self, level: int, name: int) -> Value:
        """One that was set, or 0. Buffer sizes are doubled."""
        if level == SOL_SOCKET:
            if name == trio.socket.SO_TYPE:
                return self._kind
            if name == _SO_DOMAIN:
                return int(trio.socket.AF_INET)
            if name == _SO_PROTOCOL:
                stream = self._kind == trio.socket.SOCK_STREAM
                return int(IPPROTO_TCP if stream else trio.socket.IPPROTO_UDP)
            if name == SO_SNDBUF:
                return 2 * self.send_buffer_bytes
            if name == SO_RCVBUF:
                return 2 * self.receive_buffer_bytes
            if name == SO_LINGER:
                return self._set.get((level, name), bytes(_linger.size))
        return self._set.get((level, name), 0)

    @property
    def send_buffer_bytes(self) -> int:
        """Bytes that may wait to be sent."""
        return max(1, self._number(SO_SNDBUF, self._send_buffer_bytes))

    @property
    def receive_buffer_bytes(self) -> int:
        """Bytes that may wait to be read."""
        return max(1, self._number(SO_RCVBUF, self._receive_buffer_bytes))

    @property
    def reuses_address(self) -> bool:
        """SO_REUSEADDR."""
        return bool(self._number(SO_REUSEADDR, 0))

    @property
    def resets_on_close(self) -> bool:
        """SO_LINGER with no time to linger: close sends a reset."""
        value = self._set.get((SOL_SOCKET, SO_LINGER))
        if not isinstance(value, bytes):
            return False
        is_on, linger_s = _linger.unpack_from(value)
        return bool(is_on) and not linger_s

    def _number(self, name: int, default: int) -> int:
        value = self._set.get((SOL_SOCKET, name), default)
        return value if isinstance(value, int) else default


def as_answer(value: Value, size: int | None) -> Value:
    """An option as `getsockopt` gives it: a number, or its first `size` bytes if a size was asked for."""
    if size is None:
        return value if isinstance(value, int) else int(_int.unpack_from(value)[0])
    raw = _int.pack(value) if isinstance(value, int) else value
    return raw[:size]
