"""The simulated network: addresses, names, links and their faults; Trio's socket factory and name resolver.

There is a link for each ordered pair of nodes, made when first used. What passes on it is decided there (latency, cuts,
stalls); what a connection does about it is in `connection`.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from attrs import validators

from sim_net.connection import Address, Endpoint
from sim_net.entropy import derive
from sim_net.identity import current_incarnation
from sim_net.socket import SimSocket

if TYPE_CHECKING:
    from sim_net.journal import Journal
    from sim_net.kernel import Kernel
    from sim_net.node import Incarnation, Node

_FIRST_EPHEMERAL_PORT: Final = 49152
_LAST_PORT: Final = 65535
_LOOPBACK_S: Final = 20e-6


@attrs.frozen
class LinkConfig:
    """How every link behaves without faults. Latency is one way, drawn anew for each segment; order is kept."""

    latency_min_s: float = attrs.field(default=0.000_1, validator=validators.ge(0.0))
    latency_max_s: float = attrs.field(default=0.001, validator=validators.ge(0.0))
    segment_bytes: int = attrs.field(default=16_384, validator=validators.ge(1))
    #: After a cut, a sender tries again within this time.
    retransmit_max_s: float = attrs.field(default=0.2, validator=validators.ge(0.0))

    def __attrs_post_init__(self) -> None:
        if self.latency_max_s < self.latency_min_s:
            raise ValueError(f"latency_max_s ({self.latency_max_s}) is below latency_min_s ({self.latency_min_s})")


class Link:
    """The way from one node to another. Faults may overlap, so each kind is counted or summed."""

    __slots__ = ("_delays_s", "_least_s", "_network", "_span_s", "cuts", "endpoints", "stalls", "target_name")

    def __init__(self, network: Network, source: str, target: str) -> None:
        config = network.link_config
        self._network = network
        self._least_s = _LOOPBACK_S if source == target else config.latency_min_s
        self._span_s = 0.0 if source == target else config.latency_max_s - config.latency_min_s
        self.target_name = target
        self.cuts = 0
        self.stalls = 0
        self._delays_s: list[float] = []
        #: The connection ends that send on this link, by serial number, oldest first.
        self.endpoints: dict[int, Endpoint] = {}

    def delay_s(self) -> float:
        """The time that one segment takes, in seconds."""
        latency_s = self._least_s + self._span_s * self._network.draw()
        return latency_s + sum(self._delays_s) if self._delays_s else latency_s

    def slow_down(self, extra_s: float) -> None:
        """Let every segment take `extra_s` seconds longer."""
        self._delays_s.append(extra_s)

    def speed_up(self, extra_s: float) -> None:
        """Undo one `slow_down` of `extra_s`."""
        self._delays_s.remove(extra_s)

    def cut(self) -> None:
        """Let nothing through."""
        self.cuts += 1

    def heal(self) -> None:
        """Undo one `cut`; when it was the last, what was held goes on its way."""
        self.cuts -= 1
        if not self.cuts:
            for endpoint in list(self.endpoints.values()):
                endpoint.healed()

    def stall(self) -> None:
        """Shut the receivers' windows: no data leaves."""
        self.stalls += 1

    def unstall(self) -> None:
        """Undo one `stall`; when it was the last, data flows."""
        self.stalls -= 1
        if not self.stalls:
            for endpoint in list(self.endpoints.values()):
                endpoint.pump()


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
        self._nodes: dict[str, Node] = {}
        self._by_address: dict[str, Node] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._serials = 0

    # --- nodes and links --------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Make a node reachable by its address and its name."""
        address = str(ipaddress.IPv4Address(node.address))
        if address in self._by_address:
            raise ValueError(f"address {address} of node {node.name} is taken by node {self._by_address[address].name}")
        name = node.name.lower()
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
        return link

    def reset(self, a: str, b: str, status: str) -> None:
        """Reset every connection between two nodes, at both ends and at once."""
        for link in (self.link(a, b), self.link(b, a)):
            for endpoint in list(link.endpoints.values()):
                if endpoint.established:
                    endpoint.tear(status)

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

    def open_endpoint(
        self, node: Node, local: Address, remote: Address, *, send_bytes: int, receive_bytes: int
    ) -> Endpoint:
        """A connection end on `node` that will talk to `remote`."""
        target = self.node_at(remote[0], node)
        link = self.link(node.name, remote[0] if target is None else target.name)
        return Endpoint(self, node, link, local, remote, send_bytes=send_bytes, receive_bytes=receive_bytes)

    def accept_syn(self, client: Endpoint) -> bool:
        """A connection request has arrived. False: send it again (a full backlog, or an answer that is lost)."""
        host, port = client.remote
        target = self.node_at(host, client.node)
        if target is None:
            return True  # nobody lives there: a black hole, the attempt times out
        listener = target.listener_at(host, port)
        back = self.link(target.name, client.node.name)
        if listener is None:
            if back.cuts:
                return False
            self.kernel.call_at(self.kernel.now_s + back.delay_s(), lambda: client.tear("refused"))
            return True
        if client.peer is not None:
            return True
        if listener.backlog_full:
            return False
        send_bytes, receive_bytes = listener.buffer_sizes()
        server = Endpoint(
            self, target, back, client.remote, client.local, send_bytes=send_bytes, receive_bytes=receive_bytes
        )
        server.listener = listener
        server.peer, client.peer = client, server
        server.answer_syn()
        return True

    # --- trio.abc.SocketFactory and HostnameResolver ----------------------------------------------------------------

    def socket(
        self,
        family: int = trio.socket.AF_INET,
        type: int = trio.socket.SOCK_STREAM,  # noqa: A002 - Trio's name
        proto: int = 0,
    ) -> SimSocket:
        """A TCP socket of the node that the current task runs on."""
        incarnation = _incarnation()
        incarnation.check()
        if family != trio.socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, f"{os.strerror(errno.EAFNOSUPPORT)}: the simulated network has IPv4 only")
        if type != trio.socket.SOCK_STREAM or proto not in (0, trio.socket.IPPROTO_TCP):
            raise OSError(
                errno.EPROTONOSUPPORT, f"{os.strerror(errno.EPROTONOSUPPORT)}: the simulated network has TCP only"
            )
        return SimSocket(self, incarnation)

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
        name = "0.0.0.0" if host is None else host.decode("ascii").lower()  # noqa: S104 - the meaning of the address, not a binding
        node = asking if name == "localhost" else self._nodes.get(name)
        if family not in (0, trio.socket.AF_INET) or (node is None and host is not None):
            raise trio.socket.gaierror(trio.socket.EAI_NONAME, f"no simulated node is called {name!r}")
        address = "127.0.0.1" if name == "localhost" else name if node is None else node.address
        return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, trio.socket.IPPROTO_TCP, "", (address, _port(port)))]

    async def getnameinfo(self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int) -> tuple[str, str]:
        """The name of the node that has an address."""
        await trio.lowlevel.checkpoint()
        node = self._by_address.get(sockaddr[0])
        return (sockaddr[0] if node is None else node.name, str(sockaddr[1]))


class Ports:
    """The TCP ports of one node: which are bound, and by whom."""

    def __init__(self) -> None:
        self._bound: dict[int, SimSocket] = {}
        self._next = _FIRST_EPHEMERAL_PORT

    def bind(self, socket: SimSocket, port: int) -> int:
        """Take `port`, or any free one for 0. OSError EADDRINUSE when there is none."""
        if port:
            if port in self._bound:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            self._bound[port] = socket
            return port
        for _ in range(_LAST_PORT - _FIRST_EPHEMERAL_PORT + 1):
            port = self._next
            self._next = port + 1 if port < _LAST_PORT else _FIRST_EPHEMERAL_PORT
            if port not in self._bound:
                self._bound[port] = socket
                return port
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))

    def release(self, port: int) -> None:
        """Give a port back."""
        self._bound.pop(port, None)

    def listener(self, host: str, port: int) -> SimSocket | None:
        """The socket that listens for connections to `host`:`port`."""
        socket = self._bound.get(port)
        return socket if socket is not None and socket.listens_to(host) else None

    def clear(self) -> None:
        """The process that held the ports is gone."""
        self._bound.clear()


def _incarnation() -> Incarnation:
    incarnation = current_incarnation.get()
    if incarnation is None:
        raise RuntimeError(
            "this task runs on no simulated node: open sockets in a node's main, or through Node.start_soon"
        )
    return incarnation


def _port(port: bytes | str | int | None) -> int:
    try:
        return 0 if port is None else int(port)
    except ValueError:
        raise trio.socket.gaierror(
            trio.socket.EAI_SERVICE, f"the simulated network knows no service names: {port!r}"
        ) from None
