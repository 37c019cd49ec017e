"""This project's broker in a process of its own: `own_broker_process.py BROKER_CONF`, until SIGTERM or a kill.

It also takes what changes a master's metadata.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.embedding.broker import load_broker_config, open_configured_broker
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.offsets import UpdateConsumerOffsetRequestHeader
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)


async def create_topic(broker: BrokerController, request: RemotingRequest) -> None:
    """As a Java broker does; with the broker's defaults for what is not asked."""
    header = decode_header(CreateTopicRequestHeader, request.command)
    config = TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
    )
    await metadata_of(broker).topics.update_topic_config(config)
    request.respond(request.command.response(ResponseCode.SUCCESS))


async def create_group(broker: BrokerController, request: RemotingRequest) -> None:
    """As a Java broker does."""
    config = decode_body(SubscriptionGroupConfig, request.command.body)
    await metadata_of(broker).subscription_groups.update_subscription_group_config(config)
    request.respond(request.command.response(ResponseCode.SUCCESS))


async def commit_offset(broker: BrokerController, request: RemotingRequest) -> None:
    """A consumer's, as a Java broker does; under SCHEDULE_TOPIC_XXXX that of a delay level, which nobody else moves."""
    header = decode_header(UpdateConsumerOffsetRequestHeader, request.command)
    metadata, offset = metadata_of(broker), header.commit_offset
    if header.topic == SCHEDULE_TOPIC:
        metadata.delay_offsets.offset_table[header.queue_id + 1] = offset
    else:
        metadata.consumer_offsets.commit_offset("test", header.consumer_group, header.topic, header.queue_id, offset)
    request.respond(request.command.response(ResponseCode.SUCCESS))


def metadata_of(broker: BrokerController) -> BrokerMetadata:
    """The broker's."""
    assert broker.remoting is not None
    return broker.remoting.metadata


Process = Callable[[BrokerController, RemotingRequest], Awaitable[None]]
#: Each processed in a task of its own, instead of by the broker.
PROCESSORS: Mapping[int, Process] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: create_topic,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: create_group,
    RequestCode.UPDATE_CONSUMER_OFFSET: commit_offset,
}


async def serve(configuration: Path) -> None:
    """Run until told to stop."""
    loaded = load_broker_config(configuration)
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with open_configured_broker(loaded) as broker, trio.open_nursery() as tasks:
            assert broker.remoting is not None

            def start(process: Process, request: RemotingRequest) -> None:
                tasks.start_soon(process, broker, request)

            for code, process in PROCESSORS.items():
                broker.remoting.processors._by_code.pop(code, None)
                broker.remoting.processors.register([code], functools.partial(start, process))
            _log.info("the broker boot success")
            await anext(aiter(signals))
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    trio.run(serve, Path(sys.argv[1]))
