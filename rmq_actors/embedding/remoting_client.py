"""A client that sends requests to name servers and brokers: see `examples/remoting_client.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rmq_actors.actors.block_errors import opener
from rmq_actors.actors.system import open_actor_system
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.settings.argument_checks import checked
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder


@checked
@opener
async def open_remoting_client(
    config: RemotingClientConfig | None = None,
    *,
    hooks: Sequence[RpcHook] = (),
    tls: TlsClient | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[RemotingClient]:
    """A running client for the length of a block. It opens one connection per peer, at the first request.

    `hooks` look at each request: `remoting.acl.AclClientRPCHook` signs them. It answers brokers' requests with
    REQUEST_CODE_NOT_SUPPORTED. What the block raises leaves it bare, unless a task of the client fails, too.
    """
    recorder = recorder or real_recorder(RunInfo("embedding", "client", 0, source="broker"))
    tracer, entropy = recorder.tracer("client"), SystemEntropy()
    async with open_actor_system("client", tracer, entropy=entropy) as system:
        client = RemotingClient(
            config or RemotingClientConfig(), entropy, tracer, ProcessorTable(tracer), hooks, tls=tls
        )
        await system.start(client)
        yield client
