"""The simulated network: addresses, names, ports and power; Trio's socket factory and name resolver.

What passes from one node to another is decided in `link`; what a connection does about it is in `endpoint`.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from typing import TYPE_CHECKING, Any, Final

import trio

from sim_net.kernel.entropy import derive
from sim_net.kernel.identity import current_incarnation
from sim_net.net.datagram_socket import DatagramSocket
from sim_net.net.endpoint import Endpoint
from sim_net.net.impairment import Cut
from sim_net.net.link import Link, LinkConfig
from sim_net.net.names import asked_name, lookup_name
from sim_net.net.segment import Address, pack_datagram_arrival
from sim_net.net.socket import ANY, LAST_PORT
from sim_net.net.stream_socket import StreamSocket

if TYPE_CHECKING:
    from sim_net.kernel.journal import Journal
    from sim_net.kernel.kernel import Kernel
    from sim_net.net.socket import SimSocket
    from sim_net.net.socket_options import SocketOptions
    from sim_net.node import Incarnation, Node

_FIRST_EPHEMERAL_PORT: Final = 49152
#: What is wrong with each link to a machine that is off.
_NO_POWER: Final = Cut()


class Network(trio.abc.SocketFactory, trio.abc.HostnameResolver):
    """All links, addresses and listening sockets of a world."""

    def __init__(
        self,
        kernel: Kernel,
        journal: Journal,
        seed: int,
        link_config: LinkConfig,
        *,
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
        connect_timeout_s: float,
    ) -> None:
        self.kernel = kernel
        self.journal = journal
        self.link_config = link_config
        self.send_buffer_bytes = send_buffer_bytes
        self.receive_buffer_bytes = receive_buffer_bytes
        self.connect_timeout_s = connect_timeout_s
        #: A float in [0, 1) from the network's own generator.
        self.draw = derive(seed, "network").random
        #: The same for losses, from a generator of their own.
        self.draw_loss = derive(seed, "network/loss").random
        self._nodes: dict[str, Node] = {}
        self._by_address: dict[str, Node] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._serials = 0
        self._without_power: dict[str, None] = {}

    # --- nodes and links --------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Make a node reachable by its address and its name."""
        address = node.address
        if not _is_a_hosts(address):
            raise ValueError(f"address of node {node.name} must be a host's, as 10.0.0.1, not {address!r}")
        if address in self._by_address:
            raise ValueError(f"address {address} of node {node.name} is taken by node {self._by_address[address].name}")
        name = lookup_name(node.name)
        if name in self._nodes:
            raise ValueError(f"names of nodes differ in more than case: {node.name} and {self._nodes[name].name}")
        self._by_address[address] = node
        self._nodes[name] = node

    def link(self, source: str, target: str) -> Link:
        """The link from node `source` to node `target`, by name."""
        key = (source, target)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self, source, target)
            if target in self._without_power:
                link.add(_NO_POWER)
        return link

    def reset(self, a: str, b: str, status: str) -> None:
        """Reset every connection between two nodes, at both ends and at once."""
        for link in (self.link(a, b), self.link(b, a)):
            for endpoint in list(link.endpoints.values()):
                if not endpoint.state.connects:
                    endpoint.tear(status)

    def power_off(self, node: Node) -> None:
        """The machine is off: its connections vanish without a word, and nothing reaches it. RuntimeError if it was.

        What it had put on the wire still arrives. Its sockets are the node's to end, by `SimSocket.vanish`.
        """
        if node.name in self._without_power:
            raise RuntimeError(f"node {node.name} has no power")
        self._without_power[node.name] = None
        for (source, target), link in list(self._links.items()):
            if source == node.name:
                for endpoint in list(link.endpoints.values()):
                    endpoint.vanish()
            if target == node.name:
                link.add(_NO_POWER)

    def power_on(self, node: Node) -> None:
        """The machine runs again: it is reachable, and knows nothing of its former connections. RuntimeError if it did.

        A peer that still has one finds out by the reset that answers the next segment.
        """
        if node.name not in self._without_power:
            raise RuntimeError(f"node {node.name} has power")
        del self._without_power[node.name]
        for (_, target), link in list(self._links.items()):
            if target == node.name:
                link.remove(_NO_POWER)

    def open_ends(self) -> list[str]:
        """The ends of connections that nobody has closed, as "from -> to: address -> address"."""
        return [
            f"{source} -> {target}: connection {_text(end.local)} -> {_text(end.remote)}"
            for (source, target), link in self._links.items()
            for end in link.endpoints.values()
            if end.state.is_known and not (end.closed or end.state.is_broken)
        ]

    def digest_datagram(self, serial: int, data: bytes) -> None:
        """A datagram has arrived at the socket of that number, 0 for none."""
        self.kernel.digest.add(pack_datagram_arrival(serial, data))

    def next_serial(self) -> int:
        """A number for a socket or a connection end, unique in the world."""
        self._serials += 1
        return self._serials

    # --- connections ------------------------------------------------------------------------------------------------

    def node_at(self, host: str, asking: Node) -> Node | None:
        """The node that has an address, as `asking` sees it: loopback addresses are its own."""
        if host.startswith("127.") or host == "0.0.0.0":  # noqa: S104 - the meaning of the address, not a binding
            return asking
        return self._by_address.get(host)

    def check_route(self, node: Node, source_host: str, target_host: str) -> None:
        """OSError EINVAL, as Linux has it, if a loopback address of `node` were to talk to another machine."""
        if source_host.startswith("127.") and self.node_at(target_host, node) is not node:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def open_endpoint(self, node: Node, local: Address, remote: Address, options: SocketOptions) -> Endpoint:
        """A connection end on `node` that will talk to `remote`."""
        target = self.node_at(remote[0], node)
        link = self.link(node.name, remote[0] if target is None else target.name)
        return Endpoint(
            self,
            node,
            link,
            local,
            remote,
            send_bytes=options.send_buffer_bytes,
            receive_bytes=options.receive_buffer_bytes,
        )

    def accept_syn(self, client: Endpoint) -> bool:
        """A connection request has arrived. False: send it again (a full backlog, or an answer that is lost)."""
        host, port = client.remote
        target = self.node_at(host, client.node)
        if target is None:
            return True  # nobody lives there: a black hole, the attempt times out
        if target is client.node and client.remote == client.local:
            client.connect_to_itself()
            return True
        listener = target.ports.listener(host, port)
        back = self.link(target.name, client.node.name)
        if listener is None:
            if back.blocked:
                return False
            self.kernel.call_at(self.kernel.now_s + back.latency_s(), lambda: client.tear("refused"))
            return True
        if client.peer is not None:
            return True
        if listener.backlog_full:
            return False
        server = self.open_endpoint(target, client.remote, client.local, listener.options)
        server.answer(client, listener)
        return True

    # --- trio.abc.SocketFactory and HostnameResolver ----------------------------------------------------------------

    def socket(
        self,
        family: int = trio.socket.AF_INET,
        type: int = trio.socket.SOCK_STREAM,  # noqa: A002 - Trio's name
        proto: int = 0,
    ) -> SimSocket:
        """A TCP or UDP socket of the node that the current task runs on."""
        incarnation = _incarnation()
        incarnation.check()
        if family != trio.socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, f"{os.strerror(errno.EAFNOSUPPORT)}: the simulated network has IPv4 only")
        if type == trio.socket.SOCK_STREAM and proto in (0, trio.socket.IPPROTO_TCP):
            return StreamSocket(self, incarnation, proto)
        if type == trio.socket.SOCK_DGRAM and proto in (0, trio.socket.IPPROTO_UDP):
            return DatagramSocket(self, incarnation, proto)
        raise OSError(
            errno.EPROTONOSUPPORT, f"{os.strerror(errno.EPROTONOSUPPORT)}: the simulated network has TCP and UDP only"
        )

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 - Trio's name
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Look a node's name up. Trio answers numeric addresses itself."""
        await trio.lowlevel.checkpoint()
        asking = _incarnation().node
        name = ANY if host is None else asked_name(host)
        node = asking if name == "localhost" else self._nodes.get(name)
        if family not in (0, trio.socket.AF_INET) or (node is None and host is not None):
            raise trio.socket.gaierror(trio.socket.EAI_NONAME, f"no simulated node is called {name!r}")
        address = "127.0.0.1" if name == "localhost" else name if node is None else node.address
        kinds = ((trio.socket.SOCK_STREAM, trio.socket.IPPROTO_TCP), (trio.socket.SOCK_DGRAM, trio.socket.IPPROTO_UDP))
        return [
            (trio.socket.AF_INET, kind, protocol, "", (address, _port(port)))
            for kind, protocol in kinds
            if type in (0, kind) and proto in (0, protocol)
        ]

    async def getnameinfo(self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int) -> tuple[str, str]:
        """The name of the node that has an address."""
        await trio.lowlevel.checkpoint()
        node = self._by_address.get(sockaddr[0])
        return (sockaddr[0] if node is None else node.name, str(sockaddr[1]))


class Ports:
    """The ports of one node, TCP's and UDP's: which are taken, and by whom."""

    def __init__(self) -> None:
        self._taken: dict[tuple[int, int], dict[SimSocket, None]] = {}
        self._next = _FIRST_EPHEMERAL_PORT

    def bind(self, socket: SimSocket, host: str, port: int) -> int:
        """Take `port` of `host`, or any free one for 0. OSError EADDRINUSE when there is none."""
        if port:
            self.check(socket, (host, port))
            self.share(socket, port)
            return port
        for _ in range(LAST_PORT - _FIRST_EPHEMERAL_PORT + 1):
            port = self._next
            self._next = port + 1 if port < LAST_PORT else _FIRST_EPHEMERAL_PORT
            if (socket.type, port) not in self._taken:
                self.share(socket, port)
                return port
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def check(self, socket: SimSocket, address: Address) -> None:
        """OSError EADDRINUSE if another socket has the address, unless both say SO_REUSEADDR and it does not listen."""
        host, port = address
        for other in self._taken.get((socket.type, port), ()):
            if other is socket or not (host == other.host or ANY in (host, other.host)):
                continue
            if other.listens or not (socket.reuses_address and other.reuses_address):
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def share(self, socket: SimSocket, port: int) -> None:
        """Let a socket have a port that another one may have: an accepted one has its listener's."""
        self._taken.setdefault((socket.type, port), {})[socket] = None

    def release(self, socket: SimSocket, port: int) -> None:
        """Take a socket from its port."""
        key = (socket.type, port)
        sockets = self._taken.get(key)
        if sockets is not None:
            sockets.pop(socket, None)
            if not sockets:
                del self._taken[key]

    def listener(self, host: str, port: int) -> StreamSocket | None:
        """The socket that takes connections to `host`:`port`; one bound to that very address goes first."""
        found = None
        for socket in self._taken.get((trio.socket.SOCK_STREAM, port), ()):
            if isinstance(socket, StreamSocket) and socket.listens and socket.takes(host):
                if socket.host != ANY:
                    return socket
                found = socket
        return found

    def receiver(self, target: Address, source: Address) -> DatagramSocket | None:
        """The socket that takes a datagram of `source` to `target`: the most particular, of equals the last bound."""
        found = None
        best = -1
        for socket in self._taken.get((trio.socket.SOCK_DGRAM, target[1]), ()):
            if isinstance(socket, DatagramSocket) and socket.takes(target[0]) and socket.takes_from(source):
                score = (socket.host != ANY) + 2 * socket.is_connected
                if score >= best:
                    found, best = socket, score
        return found

    @property
    def taken(self) -> list[int]:
        """The numbers of the ports that a socket has."""
        return [port for _, port in self._taken]

    def clear(self) -> None:
        """The process that held the ports is gone."""
        self._taken.clear()


def _incarnation() -> Incarnation:
    incarnation = current_incarnation.get()
    if incarnation is None:
        raise RuntimeError(
            "this task runs on no simulated node: open sockets in a node's main, or through Node.start_soon"
        )
    return incarnation


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _is_a_hosts(address: str) -> bool:
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_multicast or parsed.is_reserved or parsed.is_unspecified)


def _port(port: bytes | str | int | None) -> int:
    try:
        return 0 if port is None else int(port)
    except ValueError:
        raise trio.socket.gaierror(
            trio.socket.EAI_SERVICE, f"the simulated network knows no service names: {port!r}"
        ) from None
