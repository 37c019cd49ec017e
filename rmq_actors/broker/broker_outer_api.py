"""The requests that a broker makes of name servers (BrokerOuterAPI): register, unregister, compare versions."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody, body_crc32
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfigSerializeWrapper
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.namesrv import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES, RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: How long RocketMQ waits for the answer of UNREGISTER_BROKER.
UNREGISTER_TIMEOUT_MS = 3_000
#: How much of a frame is left for the header: a body is at least so much shorter.
_HEADER_MAX_BYTES = 64 * 1024


class MQBrokerError(Exception):
    """A name server refuses a request (MQBrokerException): `code` is its ResponseCode."""

    def __init__(self, address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        super().__init__(f"{address}: request {request.code} is answered {response.code}: {response.remark}")
        self.code = response.code


class TopicTableTooLong(ValueError):
    """The topics do not fit into one request."""


@attrs.frozen
class BrokerIdentity:
    """The broker that registers, and where it is: addresses are "host:port"."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str


@attrs.frozen
class RegisterBrokerResult:
    """A name server's answer. `order_topics`: its namespace ORDER_TOPIC_CONFIG; None where it has none."""

    master_addr: str | None
    ha_server_addr: str | None
    order_topics: Mapping[str, str] | None


def register_broker_body(wrapper: TopicConfigSerializeWrapper, *, compressed: bool) -> bytes:
    """The body of REGISTER_BROKER. Raises `TopicTableTooLong`."""
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(compressed=compressed)
    if len(body) + _HEADER_MAX_BYTES > FRAME_MAX_LENGTH_BYTES:
        hint = "" if compressed else "; compressedRegister=true makes it shorter"
        raise TopicTableTooLong(
            f"{len(wrapper.topic_config_table)} topics are {len(body)} bytes, a request takes "
            f"{FRAME_MAX_LENGTH_BYTES - _HEADER_MAX_BYTES}{hint}"
        )
    return body


def register_broker_request(identity: BrokerIdentity, body: bytes, *, compressed: bool) -> RemotingCommand:
    """REGISTER_BROKER, with the checksum of its body."""
    header = RegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.broker_addr,
        cluster_name=identity.cluster_name,
        ha_server_addr=identity.ha_server_addr,
        broker_id=identity.broker_id,
        compressed=compressed,
        body_crc32=body_crc32(body),
    )
    return RemotingCommand(RequestCode.REGISTER_BROKER, encode_header(header), body=body)


@attrs.frozen(eq=False)
class BrokerOuterAPI:
    """The requests of one broker.

    Each raises `RemotingError` when the name server could not be asked or did not answer, `MQBrokerError` when it
    refused, and `RemotingCommandError` when its answer makes no sense.
    """

    identity: BrokerIdentity
    _client: RemotingClient

    async def register_broker(
        self, namesrv_addr: str, body: bytes, timeout_ms: int, *, compressed: bool
    ) -> RegisterBrokerResult:
        """Register with one name server, and wait for its answer."""
        request = register_broker_request(self.identity, body, compressed=compressed)
        response = await self._invoke(namesrv_addr, request, timeout_ms)
        header = decode_header(RegisterBrokerResponseHeader, response)
        order_topics = decode_body(KVTable, response.body).table if response.body else None
        return RegisterBrokerResult(header.master_addr or None, header.ha_server_addr or None, order_topics)

    async def register_broker_oneway(
        self, namesrv_addr: str, body: bytes, timeout_ms: int, *, compressed: bool
    ) -> None:
        """Register with one name server without waiting for its answer: it may not arrive."""
        request = register_broker_request(self.identity, body, compressed=compressed)
        await self._client.invoke_oneway(namesrv_addr, request, timeout_ms)

    async def need_register(self, namesrv_addr: str, data_version: DataVersion, timeout_ms: int) -> bool:
        """Whether the name server has other topics of this broker than those of this version (QUERY_DATA_VERSION).

        The broker counts as alive there. The version that the name server sends back is compared as well.
        """
        identity = self.identity
        header = QueryDataVersionRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        request = RemotingCommand(RequestCode.QUERY_DATA_VERSION, encode_header(header), body=encode_body(data_version))
        response = await self._invoke(namesrv_addr, request, timeout_ms)
        if decode_header(QueryDataVersionResponseHeader, response).changed:
            return True
        return bool(response.body) and decode_body(DataVersion, response.body) != data_version

    async def unregister_broker(self, namesrv_addr: str) -> None:
        """Have one name server forget this broker."""
        identity = self.identity
        header = UnRegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        request = RemotingCommand(RequestCode.UNREGISTER_BROKER, encode_header(header))
        await self._invoke(namesrv_addr, request, UNREGISTER_TIMEOUT_MS)

    async def _invoke(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        response = await self._client.invoke(address, request, timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise MQBrokerError(address, request, response)
        return response
