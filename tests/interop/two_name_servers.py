"""RocketMQ's name server and this project's, asked the same: what the one answers, the other should."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import attrs

from rmq_actors.wire.fastjson import FastJsonError, parse_fastjson
from tests.interop.java_gateway import JavaGateway
from tests.interop.name_server import NameServer
from tests.interop.servers import Servers
from tests.worlds.java_client import V4_9_7, JavaClient, Response
from tests.worlds.java_name_server import JavaNameServer


@attrs.frozen
class Answers:
    """What two name servers answer to one request."""

    java: Response
    ours: Response

    def check_equal(self) -> None:
        """Fail unless both are alike, but for the order of sets, which Java has from its hash maps."""
        for part in ("code", "remark", "fields"):
            self._check(getattr(self.ours, part) == getattr(self.java, part), part)
        self._check(without_order(self.ours.body) == without_order(self.java.body), "body")
        # The same bytes, but for the order: nothing is spaced, quoted or escaped in another way.
        self._check(sorted(self.ours.body) == sorted(self.java.body), "bytes of the body")

    def _check(self, same: bool, what: str) -> None:
        assert same, f"the {what} differs:\nours {self.ours}\nJava {self.java}"


@attrs.frozen
class TwoNameServers:
    """Both running, with the same brokers."""

    java: JavaNameServer
    ours: NameServer

    @property
    def addresses(self) -> str:
        """Both, as `namesrvAddr` has them."""
        return f"{self.java.address};{self.ours.address}"

    @contextlib.contextmanager
    def connect(self) -> Iterator[TwoConnections]:
        """A connection to each."""
        with JavaClient.connect(self.java.listen_port) as java, JavaClient.connect(self.ours.listen_port) as ours:
            yield TwoConnections(java, ours)

    def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, version: int = V4_9_7
    ) -> Answers:
        """Send one request to both, on connections of their own."""
        with self.connect() as connections:
            return connections.ask(code, fields, body, version=version)

    def mqadmin(self, gateway: JavaGateway, command: str, *options: str) -> str:
        """What an mqadmin command prints, its lines sorted; fails unless it is the same for both.

        The name server's own address is NAMESRV there.
        """
        printed = [
            "\n".join(sorted(gateway.mqadmin(address, command, *options).replace(address, "NAMESRV").splitlines()))
            for address in (self.java.address, self.ours.address)
        ]
        java, ours = printed
        assert ours == java, f"mqadmin {command} prints\nours:\n{ours}\nJava's:\n{java}"
        return ours


def start_two(servers: Servers, **our_properties: str | int) -> TwoNameServers:
    """Start one of each."""
    two = TwoNameServers(servers.java_name_server("java"), servers.name_server("ours", **our_properties))
    two.java.start()
    two.ours.start()
    return two


@attrs.frozen
class TwoConnections:
    """One connection to each of two name servers."""

    java: JavaClient
    ours: JavaClient

    def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, version: int = V4_9_7
    ) -> Answers:
        """Send one request to both."""
        return Answers(
            *(connection.call(code, fields or {}, body, version=version) for connection in (self.java, self.ours))
        )


def without_order(body: bytes) -> object:
    """A JSON body as a value whose lists are sorted; other text as its sorted lines."""
    try:
        return _sorted_lists(parse_fastjson(body))
    except FastJsonError:
        return sorted(body.splitlines())


def _sorted_lists(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted_lists(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted_lists(item) for item in value), key=repr)
    return value
