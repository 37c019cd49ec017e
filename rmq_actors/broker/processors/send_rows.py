"""The send lane: plain messages of one receive, from rows to records to answers, without a step for each.

It refuses nothing. Whatever is special, refusals above all, goes through the general door (`SendMessageProcessor`),
in its place among the rows: so both doors say the same. Where answers wait for a disk or a slave, each row has a put.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.processors.send_message import PROPERTY_CLUSTER, SendMessageProcessor
from rmq_actors.protocols.send_rules import Destination
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.headers.messages import SendMessageRequestHeader
from rmq_actors.wire.message_rows import EncodedRows, MessageRow
from rmq_actors.wire.properties import PROPERTY_SEPARATOR, IllegalProperty, encode_properties
from rmq_actors.wire.record import encode_host
from rmq_actors.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.send_rows import SendAnswers, SendRow


@attrs.frozen(eq=False)
class _Settings:
    """What the lane makes of the configuration; made again after a change of role."""

    config: BrokerConfig
    #: The property that the broker adds; None where the lane can be of no use.
    cluster: bytes | None
    answers: SendAnswers | None

    @classmethod
    def of(cls, config: BrokerConfig) -> _Settings:
        try:
            cluster = encode_properties({PROPERTY_CLUSTER: config.broker_cluster_name})
        except IllegalProperty:
            cluster = None
        return cls(config, cluster, SendAnswers.of(config.region_id, "true" if config.trace_on else "false"))


@attrs.define(eq=False)
class SendLane:
    """Takes rows for a `ProcessorTable`."""

    _clients: ClientRequests
    _general: SendMessageProcessor
    _settings: _Settings | None = attrs.field(default=None, init=False)

    def register(self, processors: ProcessorTable) -> None:
        """Take the rows of every connection."""
        processors.process_rows = self.process

    def process(self, connection: RemotingConnection, rows: Sequence[SendRow]) -> int:
        """Store and answer the first rows; how many they were. The next one is for the general door."""
        store, settings, store_host = self._clients.open_store(), self._current_settings(), self._clients.store_host()
        if store is None or settings.config.is_slave or settings.cluster is None or settings.answers is None:
            return 0
        room = self._general.waiting.room(connection, settings.config.send_thread_pool_queue_capacity)
        messages = self._messages(connection, rows[:room], settings.cluster)
        if not messages:
            return 0
        stored = store.puts.put_rows(messages, connection.remote_address, store_host)
        if stored is None:
            return 0
        if stored.pending:
            for row, message, put in zip(rows, messages, stored.pending, strict=False):
                self._general.tell(put, _request(connection, row), message.queue_id)
        elif answers := _answers(rows, messages, stored.encoded, store_host, settings.answers):
            connection.send_answers(answers)
        return len(stored.encoded)

    def _current_settings(self) -> _Settings:
        config = self._clients.config()
        if self._settings is None or self._settings.config is not config:
            self._settings = _Settings.of(config)
        return self._settings

    def _messages(self, connection: RemotingConnection, rows: Sequence[SendRow], cluster: bytes) -> list[MessageRow]:
        """The rows that the rules let through, up to the first one that they do not; rules run once for each queue."""
        found: dict[tuple[str, int, int], Destination] = {}
        messages: list[MessageRow] = []
        before_cluster = PROPERTY_SEPARATOR.encode() + cluster
        for row in rows:
            key = (row.topic, row.queue_id, row.sys_flag)
            to = found.get(key)
            if to is None:
                to = self._general.plain_destination(_header(row), row.version, connection.remote_address)
                if to is None:
                    break
                found[key] = to
            properties = row.properties
            messages.append(
                MessageRow(
                    to.topic,
                    to.queue_id,
                    row.flag,
                    to.sys_flag,
                    row.born_timestamp_ms,
                    row.reconsume_times,
                    row.body,
                    properties + before_cluster if properties else cluster,
                    row.names,
                )
            )
        return messages


def _request(connection: RemotingConnection, row: SendRow) -> RemotingRequest:
    """What an answer needs of the request, which is gone when the answer comes."""
    flag = ONEWAY_FLAG if row.is_oneway else 0
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, flag=flag, opaque=row.opaque)
    return RemotingRequest(connection, command, trio.current_time())


def _header(row: SendRow) -> SendMessageRequestHeader:
    """What the rules look at, of a topic that is there and is none of retries."""
    return SendMessageRequestHeader(
        producer_group="",
        topic=row.topic,
        default_topic="",
        default_topic_queue_nums=0,
        queue_id=row.queue_id,
        sys_flag=row.sys_flag,
        born_timestamp=row.born_timestamp_ms,
        flag=row.flag,
    )


def _answers(
    rows: Sequence[SendRow], messages: Sequence[MessageRow], stored: EncodedRows, store_host: str, answers: SendAnswers
) -> bytes:
    id_prefix = encode_host(store_host).hex().upper().encode()
    frames: list[bytes] = []
    for row, message, placed in zip(rows, messages, stored.requests, strict=False):
        if not row.is_oneway:
            msg_id = id_prefix + b"%016X" % placed.commit_log_offset
            frames.append(answers.frame(row.opaque, msg_id, message.queue_id, placed.consume_queue_offset))
    return b"".join(frames)
