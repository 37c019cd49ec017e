"""Requests by this project's remoting client, with typed headers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs

from rmq_actors.actors.system import open_actor_system
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.headers import CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.messages import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rmq_actors.wire.headers.offsets import PullMessageRequestHeader
from rmq_actors.wire.properties import encode_properties
from rmq_actors.wire.remoting_command import RemotingCommand, SerializeType
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

TIMEOUT_MS = 60_000
#: PullSysFlag: the broker may hold the request; the subscription is in the request.
SUSPEND, SUBSCRIPTION = 2, 4


@asynccontextmanager
async def open_client(
    tracer: Tracer,
    processors: ProcessorTable | None = None,
    *,
    hooks: Sequence[RpcHook] = (),
    tls: TlsClient | None = None,
) -> AsyncIterator[RemotingClient]:
    """A client for the length of a block."""
    async with open_actor_system("interop", tracer) as system:
        processors = processors or ProcessorTable(tracer)
        client = RemotingClient(RemotingClientConfig(), SystemEntropy(), tracer, processors, hooks, tls=tls)
        await system.start(client)
        yield client


@attrs.frozen
class Asking:
    """A client, whom it asks, and in which encoding."""

    client: RemotingClient
    address: str
    serialize_type: SerializeType = SerializeType.JSON

    def request(self, code: int, header: CommandHeader | None, body: bytes = b"") -> RemotingCommand:
        """A request, not sent yet."""
        ext_fields = encode_header(header) if header is not None else None
        return RemotingCommand(code, ext_fields, body=body, serialize_type=self.serialize_type)

    async def ask(self, code: int, header: CommandHeader | None, body: bytes = b"") -> RemotingCommand:
        """The answer to a request, whatever its code."""
        response = await self.client.invoke(self.address, self.request(code, header, body), TIMEOUT_MS)
        assert response.is_response
        assert response.serialize_type is self.serialize_type
        return response

    async def get(self, code: int, header: CommandHeader | None, body: bytes = b"") -> RemotingCommand:
        """The answer to a request that succeeds."""
        response = await self.ask(code, header, body)
        assert response.code == ResponseCode.SUCCESS, response
        return response

    async def send(self, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> SendMessageResponseHeader:
        """Send one message; where the broker put it."""
        response = await self.get(
            RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id, encode_properties(properties).decode()), body
        )
        return decode_header(SendMessageResponseHeader, response)

    async def pull(self, topic: str, offset: int, sys_flag: int = SUBSCRIPTION, queue_id: int = 0) -> RemotingCommand:
        """The answer to a pull."""
        header = PullMessageRequestHeader(
            consumer_group="CG_raw",
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=sys_flag,
            commit_offset=0,
            suspend_timeout_millis=TIMEOUT_MS // 2,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
        )
        return await self.ask(RequestCode.PULL_MESSAGE, header)


def send_header(topic: str, queue_id: int, properties: str, *, batch: bool = False) -> SendMessageRequestHeaderV2:
    """The header of one message, or of a batch; its topic is made if it is not there."""
    return SendMessageRequestHeaderV2(
        producer_group="PG_raw",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=properties,
        reconsume_times=0,
        batch=batch,
        broker_name="broker-a",
    )
