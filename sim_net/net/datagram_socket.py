"""UDP: datagrams that arrive whole, once and in order, as long as no fault has it otherwise.

A datagram that nobody takes is answered, as ICMP does, by ECONNREFUSED at the next call of a connected sender; one that
finds a full receive buffer is dropped. No broadcast, no multicast.
"""

from __future__ import annotations

import errno
from collections import deque
from operator import index
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import Abort, RaiseCancelT, checkpoint, current_task

from sim_net.net.segment import Address
from sim_net.net.socket import ANY, AbortFn, SimSocket, bytes_view, nothing_of, socket_error, writable_view

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trio.lowlevel import Task
    from typing_extensions import Buffer

    from sim_net.net.link import Link
    from sim_net.net.network import Network
    from sim_net.node import Incarnation, Node

#: The largest payload of UDP over IPv4 (RFC 768).
_PAYLOAD_BYTES_MAX: Final = 65_507
_PEEK: Final = int(trio.socket.MSG_PEEK)


class DatagramSocket(SimSocket):
    """A UDP socket."""

    def __init__(self, network: Network, incarnation: Incarnation, proto: int) -> None:
        super().__init__(network, incarnation, trio.socket.SOCK_DGRAM, proto)
        self._inbox: deque[tuple[bytes, Address]] = deque()
        self._inbox_bytes = 0
        self._peer: Address | None = None
        self._error = 0
        self._reader: Task | None = None
        self._shut_write = False

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802 - Trio's name
        """Whether the sending side was shut down here."""
        return self._shut_write

    def _remote(self) -> Address | None:
        return self._peer

    def _take_error(self) -> int:
        error, self._error = self._error, 0
        return error

    def listen(self, backlog: int = 128) -> None:
        """Not with datagrams: OSError EOPNOTSUPP."""
        self._check()
        raise socket_error(errno.EOPNOTSUPP)

    async def accept(self) -> tuple[SimSocket, Address]:
        """Not with datagrams: OSError EOPNOTSUPP."""
        await checkpoint()
        self._check()
        raise socket_error(errno.EOPNOTSUPP)

    async def connect(self, address: Any) -> None:
        """Send to `address` from now on, and receive from there alone."""
        self._check()
        host, port = await self._resolve(address)
        await checkpoint()
        self._check()
        if self._local is None:
            self._bind_to_any_port()
        assert self._local is not None
        host = self._own_host() if host == ANY else host
        source_host = self._source_host(host)
        self._peer = (host, port)
        self._local = (source_host, self._local[1])

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(self, bytes: Buffer, flags: int = 0, /) -> int:  # noqa: A002 - Trio's name
        """Send a datagram to the connected address. OSError EDESTADDRREQ without one, ECONNREFUSED, EMSGSIZE."""
        return await self._nonblocking(self._try_send, ([bytes_view(bytes)], self._peer), self._never)

    async def sendto(self, *args: Any) -> int:
        """Send `data[, flags], address`. OSErrors as of `send`."""
        data, address = bytes_view(args[0]), args[-1]
        return await self._nonblocking(self._try_send, ([data], await self._resolve(address)), self._never)

    async def sendmsg(
        self, buffers: Iterable[Buffer], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """Send one datagram from several buffers. No ancillary data."""
        if list(ancdata):
            raise socket_error(errno.EOPNOTSUPP)
        target = self._peer if address is None else await self._resolve(address)
        return await self._nonblocking(self._try_send, ([bytes_view(each) for each in buffers], target), self._never)

    def _try_send(self, what: tuple[list[memoryview], Address | None]) -> int:
        views, target = what
        self._check()
        if self._shut_write:
            raise socket_error(errno.EPIPE)
        if target is None:
            raise socket_error(errno.EDESTADDRREQ)
        data = b"".join(views)
        if len(data) > _PAYLOAD_BYTES_MAX:
            raise socket_error(errno.EMSGSIZE)
        if not target[1]:
            raise socket_error(errno.EINVAL)
        if self._error:
            raise socket_error(self._take_error())
        if self._local is None:
            self._bind_to_any_port()
        assert self._local is not None
        host = self._own_host() if target[0] == ANY else target[0]
        source = (self._source_host(host), self._local[1])
        Flight(self._network, self._incarnation.node, source, (host, target[1]), data).leave()
        return len(data)

    def _source_host(self, target_host: str) -> str:
        """What a datagram to `target_host` comes from. OSError EINVAL from loopback to another machine."""
        assert self._local is not None
        if self._local[0] != ANY:
            self._network.check_route(self._incarnation.node, self._local[0], target_host)
            return self._local[0]
        return "127.0.0.1" if target_host.startswith("127.") else self._incarnation.node.address

    async def wait_writable(self) -> None:
        """A datagram can be sent at any time."""
        await checkpoint()
        self._check()

    def _never(self) -> AbortFn:
        raise AssertionError("sending a datagram does not wait")

    # --- receiving --------------------------------------------------------------------------------------------------

    async def recv(self, buflen: int, flags: int = 0, /) -> bytes:
        """The next datagram, or its first `buflen` bytes. OSError ECONNREFUSED if one that was sent found nobody."""
        return (await self.recvfrom(buflen, flags))[0]

    async def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """Like `recv`, with the sender's address."""
        return await self._nonblocking(self._try_receive, (bufsize, flags), self._wait_readable)

    async def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """Like `recv`, into `buffer`; how many bytes."""
        return (await self.recvfrom_into(buffer, nbytes, flags))[0]

    async def recvfrom_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        """Like `recv_into`, with the sender's address."""
        view = writable_view(buffer, nbytes)
        data, address = await self.recvfrom(len(view), flags)
        view[: len(data)] = data
        return len(data), address

    def _try_receive(self, asked: tuple[int, int]) -> tuple[bytes, Any] | None:
        bufsize, flags = map(index, asked)
        if bufsize <= 0:
            return nothing_of(bufsize), None
        self._check()
        if flags not in (0, _PEEK):
            raise socket_error(errno.EOPNOTSUPP)
        if self._error:
            raise socket_error(self._take_error())
        if not self._inbox:
            return None
        data, source = self._inbox[0]
        if not flags:
            self._inbox.popleft()
            self._inbox_bytes -= len(data)
        return data[:bufsize], source

    def is_readable(self) -> bool:
        """Whether `recv` would not wait."""
        self._check()
        return bool(self._inbox or self._error)

    def _wait_readable(self) -> AbortFn:
        if self._reader is not None:
            raise trio.BusyResourceError("another task is already receiving on this socket")
        self._reader = current_task()
        return self._forget_reader

    def _forget_reader(self, _: RaiseCancelT) -> Abort:
        self._reader = None
        return Abort.SUCCEEDED

    # --- for datagrams ----------------------------------------------------------------------------------------------

    def takes_from(self, source: Address) -> bool:
        """Whether a datagram of `source` is for this socket: a connected one listens to its peer alone."""
        return self._peer is None or self._peer == source

    @property
    def is_connected(self) -> bool:
        """Whether it has a peer."""
        return self._peer is not None

    @property
    def serial(self) -> int:
        """What stands for the socket in the digest."""
        return self._serial

    def receive(self, data: bytes, source: Address, peer: str) -> None:
        """A datagram has arrived, from node `peer`."""
        if self._inbox_bytes + len(data) > self._options.receive_buffer_bytes:
            self._network.journal.record(self._incarnation.node.name, "net.dropped", peer=peer, size=len(data))
            return
        self._inbox.append((data, source))
        self._inbox_bytes += len(data)
        self._wake_reader()

    def refused_by(self, address: Address) -> None:
        """Nobody has taken what was sent to `address`; a connected socket learns of it."""
        if self._peer == address:
            self._error = errno.ECONNREFUSED
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            self._network.kernel.wake(reader)

    # --- ending -----------------------------------------------------------------------------------------------------

    def shutdown(self, flag: int) -> None:
        """Send no more, by SHUT_WR; SHUT_RD does nothing, as on Linux. OSError ENOTCONN if it is not connected."""
        self._check()
        if flag not in (trio.socket.SHUT_RD, trio.socket.SHUT_WR, trio.socket.SHUT_RDWR):
            raise socket_error(errno.EINVAL)
        if self._peer is None:
            raise socket_error(errno.ENOTCONN)
        if flag != trio.socket.SHUT_RD:
            self._shut_write = True

    def wake_waiters(self) -> None:
        """Let tasks that wait on the socket look again: after a fence, those that survived their cancellation."""
        self._wake_reader()

    def _end(self, how: str) -> None:
        self._inbox.clear()


class Flight:
    """One datagram on its way."""

    __slots__ = ("_data", "_link", "_network", "_node", "_source", "_target")

    def __init__(self, network: Network, node: Node, source: Address, target: Address, data: bytes) -> None:
        self._network = network
        self._node = node
        self._source = source
        self._target = target
        self._data = data
        there = network.node_at(target[0], node)
        self._link: Link = network.link(node.name, target[0] if there is None else there.name)

    def leave(self) -> None:
        """Put it on the wire: it may be lost there, doubled or delayed."""
        network, link = self._network, self._link
        size = len(self._data)
        now_s = network.kernel.now_s
        if link.impeded and not link.blocked and link.loses():
            self._record("net.lost", count=1)
            return
        arrives_s = now_s + link.queueing_s(size) + link.latency_s()
        late_s = link.reordering_s()
        if late_s:
            self._record("net.reordered")
            network.kernel.call_at(arrives_s + late_s, self.arrive)
        else:
            link.last_datagram_s = max(link.last_datagram_s, arrives_s)
            network.kernel.call_at(link.last_datagram_s, self.arrive)
        if link.duplicates():
            self._record("net.duplicated")
            network.kernel.call_at(max(link.last_datagram_s, now_s + link.latency_s()), self.arrive)

    def arrive(self) -> None:
        """The end of the wire."""
        network, link = self._network, self._link
        if link.cuts:
            self._record("net.lost", count=1)
        elif link.holds:
            self._record("net.held")
            link.waiting.append(self)
        else:
            there = network.node_at(self._target[0], self._node)
            if there is None:
                return  # nobody lives there, and nobody says so
            socket = there.ports.receiver(self._target, self._source)
            network.digest_datagram(0 if socket is None else socket.serial, self._data)
            if socket is None:
                self._answer_by_icmp(there)
            else:
                socket.receive(self._data, self._source, self._node.name)

    def go_on(self) -> None:
        """The link that held it lets it pass."""
        self._network.kernel.call_at(self._network.kernel.now_s + self._link.latency_s(), self.arrive)

    def _answer_by_icmp(self, there: Node) -> None:
        """Port unreachable (RFC 792); like any packet it may be lost."""
        back = self._network.link(there.name, self._node.name)
        if not back.blocked and not back.loses():
            self._network.kernel.call_at(self._network.kernel.now_s + back.latency_s(), self._refuse)

    def _refuse(self) -> None:
        sender = self._node.ports.receiver(self._source, self._target)
        if sender is not None:
            sender.refused_by(self._target)

    def _record(self, kind: str, **attributes: float) -> None:
        self._network.journal.record(
            self._node.name, kind, peer=self._link.target_name, size=len(self._data), **attributes
        )
