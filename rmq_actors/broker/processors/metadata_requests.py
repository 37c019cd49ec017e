"""Answers what a slave asks its master every 10 s (a part of AdminBrokerProcessor): all topics, offsets and groups."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.files.deleted_topics import point_key
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.bodies.deleted_topics import DeletedTopicsInfo
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import TopicConfigSerializeWrapper
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: The field of an answer with delay offsets that says where the last delivered message ends in the master's log.
#: RocketMQ's brokers do not send it, and ignore it.
RESTS_ON = "logOffset"


@attrs.frozen(eq=False)
class MetadataProcessor:
    """The tables as they are; a Java slave asks for the topics on the fast port, for the others on listenPort.

    A table that no frame can carry is answered SYSTEM_ERROR, which says so.
    """

    _metadata: BrokerMetadata
    #: None: there is no store now.
    _open_store: Callable[[], MessageStore | None]

    def register(self, processors: ProcessorTable) -> None:
        """Take the four request codes."""
        metadata = self._metadata
        bodies: dict[int, Callable[[], bytes]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: _EncodedTable(metadata.topics.wrapper),
            RequestCode.GET_ALL_CONSUMER_OFFSET: metadata.consumer_offsets.encode,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _EncodedTable(metadata.subscription_groups.wrapper),
        }
        for code, body in bodies.items():
            processors.register([code], _answering(body))
        processors.register([RequestCode.GET_ALL_DELAY_OFFSET], self._get_all_delay_offset)
        processors.register([OwnRequestCode.GET_DELETED_TOPICS], self._get_deleted_topics)

    def _get_deleted_topics(self, request: RemotingRequest) -> RemotingCommand:
        store = self._open_store()
        if store is None:
            raise RpcRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker changes its role, try again")
        points = {
            topic: {point_key(queue): at for queue, at in queues.items()}
            for topic, queues in store.topic_deletion.points.items()
        }
        body = encode_body(DeletedTopicsInfo(min_offset=store.commit_log.min_offset, points=points))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _get_all_delay_offset(self, request: RemotingRequest) -> RemotingCommand:
        offsets = self._metadata.delay_offsets
        rests_on = {} if offsets.rests_on is None else {RESTS_ON: str(offsets.rests_on)}
        return request.command.response(ResponseCode.SUCCESS, ext_fields=rests_on, body=offsets.encode())


@attrs.define(eq=False, repr=False)
class _EncodedTable:
    """The JSON of a table, written once for all requests: a table is replaced, never changed in place."""

    _wrapper: Callable[[], TopicConfigSerializeWrapper | SubscriptionGroupWrapper]
    _of: TopicConfigSerializeWrapper | SubscriptionGroupWrapper | None = attrs.field(default=None, init=False)
    _body: bytes = attrs.field(default=b"", init=False)

    def __call__(self) -> bytes:
        wrapper = self._wrapper()
        if self._of is None or self._of.data_version is not wrapper.data_version:
            self._of, self._body = wrapper, encode_body(wrapper)
        return self._body


def _answering(body: Callable[[], bytes]) -> Callable[[RemotingRequest], RemotingCommand]:
    def process(request: RemotingRequest) -> RemotingCommand:
        return request.command.response(ResponseCode.SUCCESS, body=body())

    return process
