"""This project's broker in a process of its own: `own_broker_process.py STORE BROKER_CONF`, until SIGTERM or a kill.

It takes SEND_MESSAGE_V2, too, so that one client puts into it and into a Java broker. A put that is not PUT_OK is
answered SYSTEM_ERROR; its status is the remark.
"""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path

import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.embedding.cluster import real_recorder
from rmq_actors.embedding.properties_file import load_config_file
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.messages import SendMessageRequestHeaderV2
from rmq_actors.wire.record import Message
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)


async def put(broker: BrokerController, request: RemotingRequest) -> None:
    """Put a message, and answer."""
    header = decode_header(SendMessageRequestHeaderV2, request.command)
    result = await broker.put_message(Message(header.topic, request.command.body, header.queue_id))
    code = ResponseCode.SUCCESS if result.status is PutStatus.PUT_OK else ResponseCode.SYSTEM_ERROR
    request.respond(request.command.response(code, result.status.value))


async def serve(store: Path, configuration: Path) -> None:
    """Run until told to stop."""
    loaded = load_config_file(configuration, BrokerConfig(remoting=RemotingServerConfig()), BROKER_KEYS)
    tracer = real_recorder(RunInfo("interop", loaded.config.broker_name, 0, source="broker")).tracer("broker")
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with open_broker(loaded.config, real_environment(store), tracer) as broker, trio.open_nursery() as puts:
            assert broker.remoting is not None
            broker.remoting.processors.register(
                [RequestCode.SEND_MESSAGE_V2], lambda request: puts.start_soon(put, broker, request)
            )
            _log.info("the broker boot success")
            await anext(aiter(signals))
            puts.cancel_scope.cancel()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    trio.run(serve, Path(sys.argv[1]), Path(sys.argv[2]))
