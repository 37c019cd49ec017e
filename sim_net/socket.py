"""A Trio socket whose other end is simulated.

It mirrors Trio's own: a checkpoint in every call, one task at a time for each direction, BlockingIOError never seen,
closing wakes whoever waits. The TCP behind it is in `connection`.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

import trio
from trio.lowlevel import (
    cancel_shielded_checkpoint,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    wait_task_rescheduled,
)

from sim_net.connection import Address, Endpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType

    from trio.lowlevel import Abort, RaiseCancelT, Task
    from typing_extensions import Buffer

    from sim_net.network import Network
    from sim_net.node import Incarnation

T = TypeVar("T")

# An accidental os.sendfile or select on it must fail with EBADF, not hit a real file.
_FIRST_FILENO: Final = 1_000_000_000
_ANY: Final = "0.0.0.0"  # noqa: S104 - the meaning of the address, not a binding


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class SimSocket(trio.socket.SocketType):
    """A TCP socket of one incarnation of a node. Once that is killed, every operation raises OSError EBADF."""

    def __init__(self, network: Network, incarnation: Incarnation, endpoint: Endpoint | None = None) -> None:
        super().__init__()
        self._network = network
        self._incarnation = incarnation
        self._endpoint = endpoint
        self._serial = network.next_serial()
        self._local: Address | None = None if endpoint is None else endpoint.local
        self._bound_port = 0
        self._closed = False
        self._did_shut_down_write = False
        self._backlog = 0
        self._accepted: deque[Endpoint] = deque()
        self._acceptor: Task | None = None
        self._options: dict[tuple[int, int], int | bytes] = {}
        incarnation.sockets[self._serial] = self

    def __hash__(self) -> int:
        """By serial number: Trio keeps sets of sockets, and their order must not depend on addresses."""
        return self._serial

    def __eq__(self, other: object) -> bool:
        """Identity."""
        return self is other

    def __repr__(self) -> str:
        """Node, serial and both addresses."""
        state = (
            "closed"
            if self._closed
            else f"{self._local} -> {None if self._endpoint is None else self._endpoint.remote}"
        )
        return f"<SimSocket {self._serial} of {self._incarnation.node.name}: {state}>"

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
        """A stream."""
        return trio.socket.SOCK_STREAM

    @property
    def proto(self) -> int:
        """TCP."""
        return trio.socket.IPPROTO_TCP

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802 - Trio's name
        """Whether the sending side was shut down here."""
        return self._did_shut_down_write

    def fileno(self) -> int:
        """A number that no real file has; -1 when closed."""
        return -1 if self._closed else _FIRST_FILENO + self._serial

    def detach(self) -> NoReturn:
        """Not possible: there is no real descriptor."""
        raise _error(errno.EOPNOTSUPP)

    def dup(self) -> NoReturn:
        """Not possible: there is no real descriptor."""
        raise _error(errno.EOPNOTSUPP)

    def get_inheritable(self) -> bool:
        """A simulated process has no children."""
        return False

    def getsockname(self) -> Address:
        """The local address."""
        self._check()
        return (_ANY, 0) if self._local is None else self._local

    def getpeername(self) -> Address:
        """The other end's address. OSError ENOTCONN without one."""
        self._check()
        endpoint = self._connected()
        if endpoint.torn or not endpoint.established:
            raise _error(errno.ENOTCONN)
        return endpoint.remote

    def setsockopt(self, level: int, optname: int, value: int | Buffer | None, optlen: int | None = None) -> None:
        """Remember an option. SO_SNDBUF and SO_RCVBUF size the buffers of connections opened or accepted later."""
        self._check()
        if value is None:
            raise TypeError("a simulated socket takes no option without a value")
        self._options[level, optname] = value if isinstance(value, int) else bytes(value)

    def getsockopt(self, level: int, optname: int, buflen: int | None = None) -> Any:
        """An option: what was set, or what the connection knows, or 0. Buffer sizes are doubled, as Linux does."""
        self._check()
        if level == trio.socket.SOL_SOCKET:
            if optname == trio.socket.SO_ACCEPTCONN:
                return int(self._backlog > 0)
            if optname == trio.socket.SO_TYPE:
                return int(trio.socket.SOCK_STREAM)
            if optname == trio.socket.SO_ERROR:
                return 0 if self._endpoint is None else self._endpoint.take_error()
            if optname == trio.socket.SO_SNDBUF:
                return 2 * self.buffer_sizes()[0]
            if optname == trio.socket.SO_RCVBUF:
                return 2 * self.buffer_sizes()[1]
        return self._options.get((level, optname), 0)

    def buffer_sizes(self) -> tuple[int, int]:
        """Bytes that a connection of this socket may have waiting to be sent, and to be read."""
        send = self._options.get((trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF), self._network.send_buffer_bytes)
        receive = self._options.get((trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF), self._network.receive_buffer_bytes)
        return (max(1, int(send)), max(1, int(receive)))

    # --- listening --------------------------------------------------------------------------------------------------

    async def bind(self, address: Any) -> None:
        """Take a local address. OSError EADDRINUSE, EADDRNOTAVAIL or EINVAL (bound already)."""
        self._check()
        host, port = await self._resolve(address)
        await checkpoint()
        self._check()
        if self._local is not None:
            raise _error(errno.EINVAL)
        node = self._incarnation.node
        if self._network.node_at(host, node) is not node:
            raise _error(errno.EADDRNOTAVAIL)
        self._bound_port = node.ports.bind(self, port)
        self._local = (host, self._bound_port)

    def listen(self, backlog: int = 128) -> None:
        """Let others connect; at most `backlog` wait to be accepted."""
        self._check()
        if self._local is None:
            self._bound_port = self._incarnation.node.ports.bind(self, 0)
            self._local = (_ANY, self._bound_port)
        self._backlog = max(1, backlog)

    def listens_to(self, host: str) -> bool:
        """Whether a connection request to `host` is for this socket."""
        return self._backlog > 0 and self._local is not None and self._local[0] in (_ANY, host)

    @property
    def backlog_full(self) -> bool:
        """Whether connection requests are ignored for now."""
        return len(self._accepted) >= self._backlog

    def connection_ready(self, endpoint: Endpoint) -> None:
        """A handshake is complete: someone may accept the connection."""
        if self._closed:
            endpoint.refuse()
            return
        self._accepted.append(endpoint)
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            self._network.kernel.wake(acceptor)

    async def accept(self) -> tuple[SimSocket, Address]:
        """Wait for a connection. OSError EINVAL when the socket does not listen."""
        return await self._nonblocking(self._try_accept, self._wait_acceptable)

    def _try_accept(self) -> tuple[SimSocket, Address] | None:
        self._check()
        if not self._backlog:
            raise _error(errno.EINVAL)
        if not self._accepted:
            return None
        endpoint = self._accepted.popleft()
        endpoint.listener = None
        return SimSocket(self._network, self._incarnation, endpoint), endpoint.remote

    async def _wait_acceptable(self) -> None:
        if self._acceptor is not None:
            raise trio.BusyResourceError("another task is already accepting on this socket")
        self._acceptor = current_task()

        def abort(_: RaiseCancelT) -> Abort:
            self._acceptor = None
            return trio.lowlevel.Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        self._check_woken()

    # --- connecting -------------------------------------------------------------------------------------------------

    async def connect(self, address: Any) -> None:
        """Connect. OSError ECONNREFUSED or ETIMEDOUT; cancelled, the socket is closed, as Trio's is."""
        try:
            await self._connect(address)
        except trio.Cancelled:
            self.close()
            raise

    async def _connect(self, address: Any) -> None:
        self._check()
        host, port = await self._resolve(address)
        await checkpoint_if_cancelled()
        if self._endpoint is not None or self._backlog:
            await cancel_shielded_checkpoint()
            raise _error(errno.EISCONN)
        node = self._incarnation.node
        if self._local is None or self._local[0] == _ANY:
            if self._local is None:
                self._bound_port = node.ports.bind(self, 0)
            source = "127.0.0.1" if host.startswith("127.") else node.address
            self._local = (source, self._bound_port)
        send_bytes, receive_bytes = self.buffer_sizes()
        endpoint = self._network.open_endpoint(
            node, self._local, (host, port), send_bytes=send_bytes, receive_bytes=receive_bytes
        )
        self._endpoint = endpoint
        kernel = self._network.kernel
        timer = kernel.timer_at(kernel.now_s + self._network.connect_timeout_s, endpoint.give_up)
        endpoint.connect()
        try:
            while not endpoint.established and endpoint.error is None:
                await self._wait_writer(endpoint)
        finally:
            timer.cancel()
        error = endpoint.take_error()
        if not error:
            endpoint.record("net.connect", status="ok")
            return
        endpoint.record("net.connect", status="timed_out" if error == errno.ETIMEDOUT else "refused")
        endpoint.abort("closed")
        self._endpoint = None
        raise OSError(error, f"Error connecting to {(host, port)!r}: {os.strerror(error)}")

    # --- receiving --------------------------------------------------------------------------------------------------

    async def recv(self, buflen: int, flags: int = 0, /) -> bytes:
        """Up to `buflen` bytes; b"" at the end. OSError ECONNRESET after a reset, once what came before it was read."""
        return await self._nonblocking(lambda: self._try_recv(buflen), self._wait_readable)

    def _try_recv(self, buflen: int) -> bytes | None:
        self._check()
        endpoint = self._connected()
        size = endpoint.available(buflen)
        if size is None:
            return None
        if not size:
            return b""
        received = endpoint.received
        data = bytes(received) if size == len(received) else bytes(memoryview(received)[:size])
        endpoint.consumed(size)
        return data

    async def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """Like `recv`, into `buffer`; how many bytes."""
        view = _bytes_view(buffer)
        if nbytes:
            view = view[:nbytes]
        return await self._nonblocking(lambda: self._try_recv_into(view), self._wait_readable)

    def _try_recv_into(self, view: memoryview) -> int | None:
        self._check()
        endpoint = self._connected()
        size = endpoint.available(len(view))
        if size:
            with memoryview(endpoint.received) as received:
                view[:size] = received[:size]
            endpoint.consumed(size)
        return size

    def is_readable(self) -> bool:
        """Whether `recv` or `accept` would not wait."""
        self._check()
        return bool(self._accepted) if self._backlog else self._endpoint is not None and self._endpoint.readable

    async def _wait_readable(self) -> None:
        endpoint = self._connected()
        if endpoint.reader is not None:
            raise trio.BusyResourceError("another task is already receiving on this socket")
        endpoint.reader = current_task()

        def abort(_: RaiseCancelT) -> Abort:
            endpoint.reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        self._check_woken()

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(self, bytes: Buffer, flags: int = 0, /) -> int:  # noqa: A002 - Trio's name
        """Send some of `bytes`, at least one; how many. OSError EPIPE or ECONNRESET when the connection is gone."""
        views = [_bytes_view(bytes)]
        return await self._nonblocking(lambda: self._try_send(views), self._wait_for_room)

    async def sendmsg(
        self, buffers: Iterable[Buffer], ancdata: Iterable[Any] = (), flags: int = 0, address: None = None, /
    ) -> int:
        """Send from several buffers as if they were one. No ancillary data."""
        if list(ancdata) or address is not None:
            raise _error(errno.EOPNOTSUPP)
        views = [_bytes_view(buffer) for buffer in buffers]
        return await self._nonblocking(lambda: self._try_send(views), self._wait_for_room)

    def _try_send(self, views: list[memoryview]) -> int | None:
        self._check()
        if self._endpoint is None:
            raise _error(errno.EPIPE)
        return self._endpoint.write(views)

    async def wait_writable(self) -> None:
        """Return when there is room in the send buffer."""
        await checkpoint()
        self._check()
        endpoint = self._connected()
        while not endpoint.writable:
            await self._wait_writer(endpoint)

    async def _wait_for_room(self) -> None:
        endpoint = self._connected()
        endpoint.record("net.stall")
        await self._wait_writer(endpoint)

    async def _wait_writer(self, endpoint: Endpoint) -> None:
        if endpoint.writer is not None:
            raise trio.BusyResourceError("another task is already sending on this socket")
        endpoint.writer = current_task()

        def abort(_: RaiseCancelT) -> Abort:
            endpoint.writer = None
            return trio.lowlevel.Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        self._check_woken()

    # --- ending -----------------------------------------------------------------------------------------------------

    def shutdown(self, flag: int) -> None:
        """Shut down one direction or both. OSError ENOTCONN without a connection."""
        self._check()
        endpoint = self._connected()
        if endpoint.torn or not endpoint.established:
            raise _error(errno.ENOTCONN)
        if flag in (trio.socket.SHUT_RD, trio.socket.SHUT_RDWR):
            endpoint.shut_read = True
            endpoint.wake()
        if flag in (trio.socket.SHUT_WR, trio.socket.SHUT_RDWR):
            self._did_shut_down_write = True
            endpoint.shut_down_write()

    def close(self) -> None:
        """Close; whoever waits on the socket gets ClosedResourceError. A second call does nothing."""
        if self._closed:
            return
        self._leave()
        endpoint = self._endpoint
        if endpoint is not None:
            endpoint.close()
            endpoint.wake()
        self._end_listening(lambda waiting: waiting.abort("closed"))

    def fence(self) -> None:
        """The process died: peers see resets, and nothing works here any more."""
        if self._closed:
            return
        self._leave()
        if self._endpoint is not None:
            self._endpoint.abort("killed")
        self._end_listening(lambda waiting: waiting.abort("killed"))

    def wake_waiters(self) -> None:
        """After a fence: let those who survived the cancellation behind a shield see that the socket is dead."""
        if self._endpoint is not None:
            self._endpoint.wake()
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            self._network.kernel.wake(acceptor)

    def _leave(self) -> None:
        self._closed = True
        self._incarnation.sockets.pop(self._serial, None)
        if self._bound_port:
            self._incarnation.node.ports.release(self._bound_port)

    def _end_listening(self, drop: Callable[[Endpoint], None]) -> None:
        while self._accepted:
            drop(self._accepted.popleft())
        if self._acceptor is not None and not self._incarnation.fenced:
            acceptor, self._acceptor = self._acceptor, None
            self._network.kernel.wake(acceptor)

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise _error(errno.EBADF)

    def _check_woken(self) -> None:
        if self._incarnation.fenced:
            raise _error(errno.EBADF)
        if self._closed:
            raise trio.ClosedResourceError("another task closed this socket")

    def _connected(self) -> Endpoint:
        if self._endpoint is None:
            raise _error(errno.ENOTCONN)
        return self._endpoint

    async def _resolve(self, address: Any) -> Address:
        """(host, port) with the host as a number, as Trio's sockets do."""
        if not isinstance(address, tuple) or len(address) != 2:
            raise ValueError("address should be a (host, port) tuple")
        host, port = address
        if host in ("", None):
            return (_ANY, int(port))
        try:
            trio.socket.inet_pton(trio.socket.AF_INET, host)
        except (OSError, TypeError):
            found = await trio.socket.getaddrinfo(host, port, self.family, self.type, self.proto)
            return found[0][4][0], int(found[0][4][1])  # type: ignore[return-value]
        return (host, int(port))

    async def _nonblocking(self, attempt: Callable[[], T | None], wait: Callable[[], Awaitable[None]]) -> T:
        """Trio's sandwich: a checkpoint whether or not the operation waits; None from `attempt` means "wait"."""
        await checkpoint_if_cancelled()
        try:
            result = attempt()
        except BaseException:
            await cancel_shielded_checkpoint()
            raise
        if result is not None:
            await cancel_shielded_checkpoint()
            return result
        while True:
            await wait()
            result = attempt()
            if result is not None:
                return result


def _bytes_view(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view if view.itemsize == 1 and view.ndim == 1 else view.cast("B")
