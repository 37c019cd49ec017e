"""Name servers from an address server (TopAddressing): a list that one web server keeps for all.

    GET http://<rocketmq.namesrv.domain>:8080/rocketmq/<rocketmq.namesrv.domain.subgroup>

answers `host:port;host:port` as its body. A program with a unit name asks for `<subgroup>-<unit>?nofix=1`.
"""

from __future__ import annotations

import attrs
import h11
import trio

from rmq_actors.wire.address import IllegalAddress, parse_address

_DEFAULT_PORT = 8080
_RECEIVE_BYTES = 4096
#: Bounds of an answer: lists of name servers are short, and so are headers.
BODY_MAX_BYTES = 16 * 1024
ANSWER_MAX_BYTES = 64 * 1024
NAME_SERVERS_MAX = 256


class AddressServerError(ConnectionError):
    """There is no list of name servers; the message says from which URL, and why."""


@attrs.frozen
class AddressServer:
    """One address server. `domain` is a host, or "host:port" (rocketmq.namesrv.domain).

    Raises `ValueError` for a domain, subgroup or unit that cannot be part of a URL.
    """

    domain: str
    subgroup: str = "nsaddr"
    unit_name: str = ""
    timeout_ms: int = attrs.field(default=3_000, validator=attrs.validators.ge(1))

    def __attrs_post_init__(self) -> None:
        parse_address(self._address)
        for name in ("domain", "subgroup", "unit_name"):
            text = getattr(self, name)
            if not text.isascii() or not text.isprintable() or set(text) & set(" /?#%\\"):
                raise ValueError(f"{name} {text!r} cannot be a part of a URL")

    @property
    def url(self) -> str:
        """The URL that is asked for."""
        return f"http://{self._address}{self._target}"

    @property
    def _address(self) -> str:
        return self.domain if ":" in self.domain else f"{self.domain}:{_DEFAULT_PORT}"

    @property
    def _target(self) -> str:
        unit = f"-{self.unit_name}?nofix=1" if self.unit_name else ""
        return f"/rocketmq/{self.subgroup}{unit}"

    async def fetch_name_servers(self) -> tuple[str, ...]:
        """The name servers ("host:port") that the address server knows now, each once. Raises `AddressServerError`."""
        try:
            with trio.fail_after(self.timeout_ms / 1000):
                body = await self._get()
        except AddressServerError:
            raise
        except trio.TooSlowError:
            raise AddressServerError(f"{self.url}: no answer within {self.timeout_ms} ms") from None
        except OSError as error:
            raise AddressServerError(f"{self.url}: {type(error).__name__}: {error}") from error
        except trio.BrokenResourceError as error:
            raise AddressServerError(f"{self.url}: the connection broke: {error.__cause__ or error}") from error
        except h11.RemoteProtocolError as error:
            raise AddressServerError(f"{self.url}: the answer is not HTTP: {error}") from error
        return self._parse(body)

    async def _get(self) -> bytes:
        async with await trio.open_tcp_stream(*parse_address(self._address)) as stream:
            connection = h11.Connection(h11.CLIENT)
            headers = [("Host", self._address), ("Connection", "close")]
            request = connection.send(h11.Request(method="GET", target=self._target, headers=headers))
            await stream.send_all((request or b"") + (connection.send(h11.EndOfMessage()) or b""))
            return await self._read_body(stream, connection)

    async def _read_body(self, stream: trio.SocketStream, connection: h11.Connection) -> bytes:
        body = bytearray()
        received = 0
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                data = await stream.receive_some(_RECEIVE_BYTES)
                received += len(data)
                if received > ANSWER_MAX_BYTES:
                    raise AddressServerError(f"{self.url}: the answer has more than {ANSWER_MAX_BYTES} bytes")
                connection.receive_data(data)
            elif isinstance(event, h11.Response):
                if event.status_code != 200:
                    raise AddressServerError(f"{self.url}: the answer is {event.status_code}, not 200")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_MAX_BYTES:
                    raise AddressServerError(f"{self.url}: the list has more than {BODY_MAX_BYTES} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(body)
            elif not isinstance(event, h11.InformationalResponse):
                raise AddressServerError(f"{self.url}: the connection ended before the answer")

    def _parse(self, body: bytes) -> tuple[str, ...]:
        """The addresses in the first line: the others do not count, as in RocketMQ."""
        try:
            lines = body.decode().strip().splitlines()
        except UnicodeDecodeError as error:
            raise AddressServerError(f"{self.url}: the list is not text: {error}") from error
        addresses = [text.strip() for text in lines[0].split(";") if text.strip()] if lines else []
        if not addresses:
            raise AddressServerError(f"{self.url}: the list is empty")
        if len(addresses) > NAME_SERVERS_MAX:
            raise AddressServerError(f"{self.url}: {len(addresses)} name servers, at most {NAME_SERVERS_MAX} are taken")
        for address in addresses:
            try:
                parse_address(address)
            except IllegalAddress as error:
                raise AddressServerError(f"{self.url}: {error}") from error
        return tuple(dict.fromkeys(addresses))
