"""A Trio socket whose other end is simulated: TCP. What happens between the two ends is in `endpoint`."""

from __future__ import annotations

import errno
import os
from operator import index
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import (
    cancel_shielded_checkpoint,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    wait_task_rescheduled,
)

from sim_net.net.accept_queue import AcceptQueue
from sim_net.net.endpoint import Endpoint
from sim_net.net.segment import Address
from sim_net.net.socket import ANY, AbortFn, SimSocket, bytes_view, nothing_of, socket_error, writable_view
from sim_net.net.socket_options import SocketOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

    from sim_net.kernel.kernel import Kernel
    from sim_net.net.network import Network
    from sim_net.node import Incarnation

#: Linux's net.core.somaxconn and IOV_MAX.
_BACKLOG_MAX: Final = 4096
_BUFFERS_MAX: Final = 1024
_STATUS_OF_ATTEMPT: Final = {0: "ok", errno.ETIMEDOUT: "timed_out"}
_PEEK: Final = int(trio.socket.MSG_PEEK)


class StreamSocket(SimSocket):
    """A TCP socket."""

    def __init__(
        self,
        network: Network,
        incarnation: Incarnation,
        proto: int,
        endpoint: Endpoint | None = None,
        options: SocketOptions | None = None,
    ) -> None:
        super().__init__(network, incarnation, trio.socket.SOCK_STREAM, proto, options)
        self._endpoint = endpoint
        # An attempt to connect was made, and nobody has asked by a second one what came of it.
        self._connecting = False
        self._did_shut_down_write = False
        self._accepted = AcceptQueue(network.kernel)
        if endpoint is not None:
            self._local = endpoint.local
            incarnation.node.ports.share(self, endpoint.local[1])

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802 - Trio's name
        """Whether the sending side was shut down here."""
        return self._did_shut_down_write

    def _remote(self) -> Address | None:
        endpoint = self._endpoint
        return endpoint.remote if endpoint is not None and endpoint.state.is_open else None

    def _take_error(self) -> int:
        return 0 if self._endpoint is None else self._endpoint.stream.take_error()

    # --- listening --------------------------------------------------------------------------------------------------

    @property
    def listens(self) -> bool:
        """Whether others can connect to it."""
        return self._accepted.is_open

    def listen(self, backlog: int = 128) -> None:
        """Let others connect; at most `backlog` and one more wait to be accepted. OSError EINVAL, EADDRINUSE."""
        backlog = index(backlog)
        self._check()
        if self._endpoint is not None or self._connecting:
            raise socket_error(errno.EINVAL)
        if self._local is None:
            self._bind_to_any_port()
        elif not self.listens:
            self._incarnation.node.ports.check(self, self._local)
        self._accepted.open(min(max(0, backlog), _BACKLOG_MAX))

    @property
    def backlog_full(self) -> bool:
        """Whether connection requests are ignored for now."""
        return self._accepted.is_full

    @property
    def options(self) -> SocketOptions:
        """What accepted sockets inherit."""
        return self._options

    def connection_ready(self, endpoint: Endpoint) -> None:
        """A handshake is complete: someone may accept the connection."""
        if self.listens and not self._closed:
            self._accepted.add(endpoint)
        else:
            endpoint.refuse()

    async def accept(self) -> tuple[StreamSocket, Address]:
        """Wait for a connection. OSError EINVAL when the socket does not listen."""
        return await self._nonblocking(StreamSocket._try_accept, self, self._accepted.begin_wait)

    def _try_accept(self) -> tuple[StreamSocket, Address] | None:
        self._check()
        if not self.listens:
            raise socket_error(errno.EINVAL)
        endpoint = self._accepted.take()
        if endpoint is None:
            return None
        accepted = StreamSocket(self._network, self._incarnation, self._proto, endpoint, self._options.copy())
        return accepted, endpoint.remote

    # --- connecting -------------------------------------------------------------------------------------------------

    async def connect(self, address: Any) -> None:
        """Connect. OSError ECONNREFUSED, ETIMEDOUT or EISCONN; cancelled, the socket is closed, as Trio's is.

        As of any non-blocking socket of Linux, a second call tells what came of the first: ECONNABORTED if it failed.
        """
        try:
            await self._connect(address)
        except trio.Cancelled:
            self.close()
            raise

    async def _connect(self, address: Any) -> None:
        self._check()
        host, port = await self._resolve(address)
        await checkpoint_if_cancelled()
        if self._endpoint is not None or self._connecting or self.listens:
            await cancel_shielded_checkpoint()
            self._conclude_connecting()
            return
        node = self._incarnation.node
        if self._local is None:
            self._bind_to_any_port()
        assert self._local is not None
        remote = (self._own_host() if host == ANY else host, port)
        self._network.check_route(node, self._local[0], remote[0])
        if self._local[0] == ANY:
            self._local = ("127.0.0.1" if remote[0].startswith("127.") else node.address, self._local[1])
        endpoint = self._network.open_endpoint(node, self._local, remote, self._options)
        self._endpoint = endpoint
        self._connecting = True
        error = await _shake_hands(
            endpoint, self._network.kernel, self._network.connect_timeout_s, self._check_after_wait
        )
        if error:
            raise OSError(error, f"Error connecting to {(host, port)!r}: {os.strerror(error)}")

    def _conclude_connecting(self) -> None:
        """A second attempt to connect: what came of the first, unless that was asked before."""
        endpoint = self._endpoint
        if endpoint is None or not self._connecting:
            raise socket_error(errno.EISCONN)
        if endpoint.state.is_over:
            self._connecting = False
            self._endpoint = None
            raise socket_error(endpoint.stream.take_error() or errno.ECONNABORTED)
        if endpoint.state.connects:
            raise socket_error(errno.EALREADY)
        self._connecting = False

    # --- receiving --------------------------------------------------------------------------------------------------

    async def recv(self, buflen: int, flags: int = 0, /) -> bytes:
        """Up to `buflen` bytes; b"" at the end. OSError ECONNRESET after a reset, once what came before it was read."""
        if flags:
            return await self._nonblocking(self._try_peek, (buflen, flags), self._wait_readable)
        return await self._nonblocking(self._try_recv, buflen, self._wait_readable)

    async def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """Like `recv`; a stream has no address to tell."""
        return (await self.recv(bufsize, flags), None)

    def _try_recv(self, buflen: int) -> bytes | None:
        buflen = index(buflen)  # TypeError for what is no whole number, before anything else, as Python has it
        if buflen <= 0:
            return nothing_of(buflen)
        self._check()
        endpoint = self._connected()
        size = endpoint.stream.available(buflen)
        if size is None:
            return None
        if not size:
            return b""
        received = endpoint.stream.incoming.data
        data = bytes(received) if size == len(received) else bytes(memoryview(received)[:size])
        endpoint.consumed(size)
        return data

    def _try_peek(self, asked: tuple[int, int]) -> bytes | None:
        buflen, flags = map(index, asked)
        if flags != _PEEK:
            raise socket_error(errno.EOPNOTSUPP)
        if buflen <= 0:
            return nothing_of(buflen)
        self._check()
        endpoint = self._connected()
        size = endpoint.stream.available(buflen)
        return None if size is None else bytes(memoryview(endpoint.stream.incoming.data)[:size])

    async def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """Like `recv`, into `buffer`; how many bytes."""
        view = writable_view(buffer, nbytes)
        if flags:
            data = await self.recv(len(view), flags)
            view[: len(data)] = data
            return len(data)
        return await self._nonblocking(self._try_recv_into, view, self._wait_readable)

    async def recvfrom_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        """Like `recv_into`; a stream has no address to tell."""
        return (await self.recv_into(buffer, nbytes, flags), None)

    def _try_recv_into(self, view: memoryview) -> int | None:
        if not view:
            return 0
        self._check()
        endpoint = self._connected()
        size = endpoint.stream.available(len(view))
        if size:
            with memoryview(endpoint.stream.incoming.data) as received:
                view[:size] = received[:size]
            endpoint.consumed(size)
        return size

    def is_readable(self) -> bool:
        """Whether `recv` or `accept` would not wait."""
        self._check()
        return bool(self._accepted) if self.listens else self._endpoint is None or self._endpoint.stream.readable

    def _wait_readable(self) -> AbortFn:
        endpoint = self._connected()
        if endpoint.stream.reader is not None:
            raise trio.BusyResourceError("another task is already receiving on this socket")
        endpoint.stream.reader = current_task()
        return endpoint.stream.forget_reader

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(self, bytes: Buffer, flags: int = 0, /) -> int:  # noqa: A002 - Trio's name
        """Send some of `bytes`, at least one; how many. OSError EPIPE or ECONNRESET when the connection is gone."""
        return await self._nonblocking(self._try_send, [bytes_view(bytes)], self._wait_for_room)

    async def sendmsg(
        self, buffers: Iterable[Buffer], ancdata: Iterable[Any] = (), flags: int = 0, address: None = None, /
    ) -> int:
        """Send from several buffers as if they were one; 1024 at most (EMSGSIZE). No ancillary data."""
        if list(ancdata) or address is not None:
            raise socket_error(errno.EOPNOTSUPP)
        return await self._nonblocking(self._try_send, [bytes_view(each) for each in buffers], self._wait_for_room)

    def try_sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        """`sendmsg` without a checkpoint: how many bytes, 0 when there is no room. Trio has no such call."""
        return self._try_send([bytes_view(each) for each in buffers]) or 0

    def _try_send(self, views: list[memoryview]) -> int | None:
        self._check()
        if len(views) > _BUFFERS_MAX:
            raise socket_error(errno.EMSGSIZE)
        if self._endpoint is None:
            raise socket_error(errno.EPIPE)
        return self._endpoint.stream.write(views)

    async def wait_writable(self) -> None:
        """Return when there is room in the send buffer."""
        await checkpoint()
        if self._closed and not self._incarnation.fenced:
            raise ValueError("Invalid file descriptor: -1")
        self._check()
        endpoint = self._connected()
        while not endpoint.stream.writable:
            await wait_task_rescheduled(_wait_for(endpoint))
            self._check_after_wait()

    def _wait_for_room(self) -> AbortFn:
        endpoint = self._connected()
        endpoint.record("net.stall")
        return _wait_for(endpoint)

    # --- ending -----------------------------------------------------------------------------------------------------

    def shutdown(self, flag: int) -> None:
        """Shut down one direction or both; of a listener, SHUT_RD ends listening. OSError ENOTCONN, EINVAL."""
        self._check()
        if flag not in (trio.socket.SHUT_RD, trio.socket.SHUT_WR, trio.socket.SHUT_RDWR):
            raise socket_error(errno.EINVAL)
        if self.listens:
            if flag != trio.socket.SHUT_WR:
                self._accepted.shut()
            return
        endpoint = self._connected()
        if not endpoint.state.is_open:
            raise socket_error(errno.ENOTCONN)
        if flag != trio.socket.SHUT_WR:
            endpoint.stream.shut_down_read()
        if flag != trio.socket.SHUT_RD:
            self._did_shut_down_write = True
            endpoint.shut_down_write()
        self._connecting = False

    def wake_waiters(self) -> None:
        """Let tasks that wait on the socket look again: after a fence, those that survived their cancellation."""
        if self._endpoint is not None:
            self._endpoint.stream.wake()
        self._accepted.wake()

    def _end(self, how: str) -> None:
        endpoint = self._endpoint
        if endpoint is not None:
            if how == "vanished":
                endpoint.vanish()
            elif how == "killed":
                endpoint.abort(how)
            elif self._options.resets_on_close:
                endpoint.abort("linger")
            else:
                endpoint.close()
        self._accepted.drop(how)

    def _connected(self) -> Endpoint:
        if self._endpoint is None:
            raise socket_error(errno.ENOTCONN)
        return self._endpoint


def _wait_for(endpoint: Endpoint) -> AbortFn:
    """Note the current task as the one that waits to write, or to be connected."""
    if endpoint.stream.writer is not None:
        raise trio.BusyResourceError("another task is already sending on this socket")
    endpoint.stream.writer = current_task()
    return endpoint.stream.forget_writer


async def _shake_hands(
    endpoint: Endpoint, kernel: Kernel, timeout_s: float, check_after_wait: Callable[[], object]
) -> int:
    """Ask for a connection, and wait until it is made or the attempt has failed: 0, or the errno."""
    timer = kernel.timer_at(kernel.now_s + timeout_s, endpoint.handshake.give_up)
    endpoint.handshake.ask()
    try:
        while endpoint.state.connects and endpoint.stream.error is None:
            await wait_task_rescheduled(_wait_for(endpoint))
            check_after_wait()
    finally:
        timer.cancel()
    error = endpoint.stream.take_error()
    endpoint.record("net.connect", status=_STATUS_OF_ATTEMPT.get(error, "refused"))
    if error and endpoint.state.is_broken:
        endpoint.close()
    elif error:
        endpoint.abort("closed")  # an answer that has come too late, or comes yet, is answered by a reset
    return error
