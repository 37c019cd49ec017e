"""What all sockets of a simulated node have in common: identity, options, addresses, and an end.

They mirror Trio's own: a checkpoint in every call, one task at a time for each direction, BlockingIOError never seen,
closing wakes the tasks that wait. TCP is in `stream_socket`, UDP in `datagram_socket`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

import trio
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    cancel_shielded_checkpoint,
    checkpoint,
    checkpoint_if_cancelled,
    wait_task_rescheduled,
)

from sim_net.net.segment import Address
from sim_net.net.socket_options import SocketOptions, Value, as_answer

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

    from sim_net.net.network import Network
    from sim_net.node import Incarnation

T = TypeVar("T")
A = TypeVar("A")
AbortFn = Callable[[RaiseCancelT], Abort]

# An accidental os.sendfile or select on it must fail with EBADF, not hit a real file.
_FIRST_FILENO: Final = 1_000_000_000
ANY: Final = "0.0.0.0"  # noqa: S104 - the meaning of the address, not a binding
LAST_PORT: Final = 65535


class SimSocket(trio.socket.SocketType):
    """A socket of one incarnation of a node. Once that is killed, every operation raises OSError EBADF."""

    def __init__(
        self, network: Network, incarnation: Incarnation, kind: int, proto: int, options: SocketOptions | None = None
    ) -> None:
        super().__init__()
        self._network = network
        self._incarnation = incarnation
        self._kind = kind
        self._proto = proto
        self._serial = network.next_serial()
        self._options = options or SocketOptions(kind, network.send_buffer_bytes, network.receive_buffer_bytes)
        self._local: Address | None = None
        self._closed = False
        incarnation.sockets[self._serial] = self

    def __hash__(self) -> int:
        """By serial number: Trio keeps sets of sockets, and their order must not depend on addresses."""
        return self._serial

    def __eq__(self, other: object) -> bool:
        """Identity."""
        return self is other

    def __repr__(self) -> str:
        """Kind, serial, node and both addresses."""
        state = "closed" if self._closed else f"{self._local} -> {self._remote()}"
        return f"<{type(self).__name__} {self._serial} of {self._incarnation.node.name}: {state}>"

    def __enter__(self) -> Self:
        """The socket itself."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def family(self) -> Any:
        """IPv4."""
        return trio.socket.AF_INET

    @property
    def type(self) -> Any:
        """SOCK_STREAM or SOCK_DGRAM."""
        return self._kind

    @property
    def proto(self) -> int:
        """As it was asked for."""
        return self._proto

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802 - Trio's name
        """Whether the sending side was shut down here."""
        return False

    def fileno(self) -> int:
        """A number that no real file has; -1 when closed."""
        return -1 if self._closed else _FIRST_FILENO + self._serial

    def detach(self) -> NoReturn:
        """Not possible: there is no real descriptor."""
        raise socket_error(errno.EOPNOTSUPP)

    def dup(self) -> NoReturn:
        """Not possible: there is no real descriptor."""
        raise socket_error(errno.EOPNOTSUPP)

    def get_inheritable(self) -> bool:
        """A simulated process has no children."""
        return False

    def getsockname(self) -> Address:
        """The local address."""
        self._check()
        return (ANY, 0) if self._local is None else self._local

    def getpeername(self) -> Address:
        """The other end's address. OSError ENOTCONN without one."""
        self._check()
        remote = self._remote()
        if remote is None:
            raise socket_error(errno.ENOTCONN)
        return remote

    def setsockopt(self, level: int, optname: int, value: int | Buffer | None, optlen: int | None = None) -> None:
        """Remember an option. SO_SNDBUF and SO_RCVBUF size the buffers of connections opened or accepted later."""
        self._check()
        self._options.set(level, optname, value)

    def getsockopt(self, level: int, optname: int, buflen: int | None = None) -> Any:
        """An option: what was set, or what the connection knows, or 0. Buffer sizes are doubled, as Linux does."""
        self._check()
        value: Value
        if level == trio.socket.SOL_SOCKET and optname == trio.socket.SO_ERROR:
            value = self._take_error()
        elif level == trio.socket.SOL_SOCKET and optname == trio.socket.SO_ACCEPTCONN:
            value = int(self.listens)
        else:
            value = self._options.get(level, optname)
        return as_answer(value, buflen)

    # --- addresses --------------------------------------------------------------------------------------------------

    @property
    def listens(self) -> bool:
        """Whether others can connect to it."""
        return False

    @property
    def host(self) -> str:
        """The local address that it is bound to, or `ANY`."""
        return ANY if self._local is None else self._local[0]

    @property
    def reuses_address(self) -> bool:
        """Whether others who say so too may share its port."""
        return self._options.reuses_address

    def takes(self, host: str) -> bool:
        """Whether what is sent to `host` is for this socket."""
        return self._local is not None and self._local[0] in (ANY, host)

    async def bind(self, address: Any) -> None:
        """Take a local address. OSError EADDRINUSE, EADDRNOTAVAIL or EINVAL (bound already)."""
        self._check()
        host, port = await self._resolve(address, no_host=ANY)
        await checkpoint()
        self._check()
        if self._local is not None:
            raise socket_error(errno.EINVAL)
        node = self._incarnation.node
        if self._network.node_at(host, node) is not node:
            raise socket_error(errno.EADDRNOTAVAIL)
        self._local = (host, node.ports.bind(self, host, port))

    def _own_host(self) -> str:
        """Where the wildcard address leads as a target: to this very machine, by the address it is bound to."""
        return "127.0.0.1" if self.host == ANY else self.host

    def _bind_to_any_port(self) -> None:
        self._local = (ANY, self._incarnation.node.ports.bind(self, ANY, 0))

    async def _resolve(self, address: Any, no_host: str = "127.0.0.1") -> Address:
        """(host, port) with the host as a number, as Trio's sockets do; `no_host` is what "" and None stand for."""
        if not isinstance(address, tuple) or len(address) != 2:
            raise ValueError("address should be a (host, port) tuple")
        host, port = address
        if isinstance(port, int) and not 0 <= port <= LAST_PORT:
            raise OverflowError(f"port must be 0-65535, not {port}")
        if host in ("", None):
            return (no_host, int(port))
        try:
            trio.socket.inet_pton(trio.socket.AF_INET, host)
        except (OSError, TypeError):
            found = await trio.socket.getaddrinfo(host, port, self.family, self.type, self.proto)
            return found[0][4][0], int(found[0][4][1])  # type: ignore[return-value]
        return (host, int(port))

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close; tasks that wait on the socket get ClosedResourceError. A second call does nothing."""
        if not self._closed:
            self._leave()
            self._end("closed")
            self.wake_waiters()

    def fence(self) -> None:
        """The process died: peers see resets, and nothing works here any more."""
        if not self._closed:
            self._leave()
            self._end("killed")

    def vanish(self) -> None:
        """The machine lost its power: nothing works here any more, and nobody is told."""
        if not self._closed:
            self._leave()
            self._end("vanished")

    def wake_waiters(self) -> None:
        """Let tasks that wait on the socket look again: after a fence, those that survived their cancellation."""
        raise NotImplementedError

    def _leave(self) -> None:
        self._closed = True
        self._incarnation.sockets.pop(self._serial, None)
        if self._local is not None:
            self._incarnation.node.ports.release(self, self._local[1])

    # --- for each kind of socket ------------------------------------------------------------------------------------

    def _end(self, how: str) -> None:
        """End what the socket has: it was `closed`, its process was `killed`, or its machine has `vanished`."""
        raise NotImplementedError

    def _remote(self) -> Address | None:
        """The other end's address, while there is one."""
        raise NotImplementedError

    def _take_error(self) -> int:
        """The pending error's number, once; 0 when there is none."""
        return 0

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise socket_error(errno.EBADF)

    def _check_after_wait(self) -> None:
        """Raise if the task that was woken finds the socket closed: by another task, or because the process died."""
        if not self._closed:
            return
        if self._incarnation.fenced:
            raise socket_error(errno.EBADF)
        raise trio.ClosedResourceError("another task closed this socket")

    async def _nonblocking(self, attempt: Callable[[A], T | None], argument: A, begin_wait: Callable[[], AbortFn]) -> T:
        """Trio's sandwich: a checkpoint whether or not the operation waits; None from `attempt` means "wait".

        `begin_wait` notes who is to be woken, and gives the function that undoes it when the wait is cancelled.
        """
        await checkpoint_if_cancelled()
        try:
            result = attempt(argument)
        except BaseException:
            await cancel_shielded_checkpoint()
            raise
        if result is not None:
            await cancel_shielded_checkpoint()
            return result
        while True:
            await wait_task_rescheduled(begin_wait())
            self._check_after_wait()
            result = attempt(argument)
            if result is not None:
                return result


def socket_error(number: int) -> OSError:
    """The OSError of an errno, with the system's words."""
    return OSError(number, os.strerror(number))


def bytes_view(buffer: Buffer) -> memoryview:
    """The bytes of any buffer."""
    view = memoryview(buffer)
    return view if view.itemsize == 1 and view.ndim == 1 else view.cast("B")


def writable_view(buffer: Buffer, nbytes: int) -> memoryview:
    """The bytes to receive into: `nbytes`, or all for 0. TypeError if read-only, ValueError if there are too few."""
    view = bytes_view(buffer)
    if view.readonly:
        raise TypeError("recv_into() argument 1 must be read-write bytes-like object")
    nbytes = index(nbytes)
    if nbytes < 0:
        raise ValueError("negative buffersize in recv_into")
    if nbytes > len(view):
        raise ValueError("buffer too small for requested bytes")
    return view[:nbytes] if nbytes else view


def nothing_of(buflen: int) -> bytes:
    """What Python gives for no bytes, without asking the system; ValueError for fewer than none."""
    if buflen < 0:
        raise ValueError("negative buffersize in recv")
    return b""
