"""The send lane: plain messages of some receives, from rows to records to answers, without a step for each.

It refuses nothing. Whatever is special, refusals above all, goes through the general door (`SendMessageProcessor`),
in its place among the rows: so both doors say the same. Answers that one sync or one report of a slave releases go out
together, one send for each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import attrs
import trio

from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.processors.send_message import PROPERTY_CLUSTER, SendMessageProcessor
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.row_group import ReceivedRows
from rmq_actors.store.log.commit_log import AppendMessageResult
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.headers.messages import SendMessageRequestHeader
from rmq_actors.wire.message_rows import MessageRow
from rmq_actors.wire.properties import PROPERTY_SEPARATOR, IllegalProperty, encode_properties
from rmq_actors.wire.record import encode_host
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.send_rows import SendAnswers, SendRow

#: Where a message goes, by what its producer says of that.
_Destinations = dict[tuple[str, int, int], tuple[str, int, int]]


@attrs.frozen(eq=False)
class _Settings:
    """What the lane makes of the configuration; made again after a change of role."""

    config: BrokerConfig
    store_host: str
    #: The property that the broker adds; None where the lane can be of no use.
    cluster: bytes | None
    answers: SendAnswers | None

    @classmethod
    def of(cls, config: BrokerConfig, store_host: str) -> _Settings:
        try:
            cluster = None if config.is_slave else encode_properties({PROPERTY_CLUSTER: config.broker_cluster_name})
        except IllegalProperty:
            cluster = None
        trace_switch = "true" if config.trace_on else "false"
        answers = SendAnswers.of(config.region_id, trace_switch, encode_host(store_host))
        return cls(config, store_host, cluster, answers)


@attrs.define(eq=False, repr=False)
class SendLane:
    """Takes rows for a `ProcessorTable`."""

    _clients: ClientRequests
    _general: SendMessageProcessor
    _settings: _Settings | None = attrs.field(default=None, init=False)
    _owed: dict[RemotingConnection, list[bytes]] = attrs.field(factory=dict, init=False)

    def register(self, processors: ProcessorTable) -> None:
        """Take the rows of every connection."""
        processors.register_rows(self.process)

    def process(self, received: Sequence[ReceivedRows[RemotingConnection]]) -> Sequence[int]:
        """Store and answer the first rows of each connection; how many they were. The next is for the general door."""
        nothing = [0] * len(received)
        store, settings = self._clients.open_store(), self._current_settings()
        if store is None or settings.cluster is None or settings.answers is None:
            return nothing
        messages: list[MessageRow] = []
        counts: list[int] = []
        destinations: _Destinations = {}
        most = settings.config.send_thread_pool_queue_capacity
        for connection, rows in received:
            room = self._general.waiting.room(connection, most)
            before = len(messages)
            self._add_messages(
                messages, rows if len(rows) <= room else rows[:room], connection, settings.cluster, destinations
            )
            counts.append(len(messages) - before)
        stored = store.puts.put_rows(messages, settings.store_host) if messages else None
        if stored is None:
            return nothing
        begin, spans, placed = 0, list[_Span](), stored.encoded.requests
        for number, (connection, rows) in enumerate(received):
            end = min(begin + counts[number], len(placed))
            if begin < end:
                spans.append(_Span(begin, end, connection, _owed(rows, placed[begin:end])))
            counts[number], begin = end - begin, end
        if stored.answers.may_wait:
            for span in spans:
                self._general.waiting.begin(span.connection, span.end - span.begin)
            waiting = _WaitingAnswers(self, self._general, settings, spans)
            stored.answers.tell(waiting.tell)
        else:
            for span in spans:
                if answers := settings.answers.frames(_answered(span.owed)):
                    span.connection.send_answers(answers)
        return counts

    def owe(self, connection: RemotingConnection, answers: bytes) -> None:
        """Have answers sent at the end of this step, with all others of the connection: see `send_owed`."""
        self._owed.setdefault(connection, []).append(answers)

    def send_owed(self) -> None:
        """Send what connections are owed."""
        owed, self._owed = self._owed, {}
        for connection, answers in owed.items():
            connection.send_answers(b"".join(answers))

    def _current_settings(self) -> _Settings:
        config, store_host = self._clients.config(), self._clients.store_host()
        settings = self._settings
        if settings is None or settings.config is not config or settings.store_host != store_host:
            settings = self._settings = _Settings.of(config, store_host)
        return settings

    def _add_messages(
        self,
        messages: list[MessageRow],
        rows: Sequence[SendRow],
        connection: RemotingConnection,
        cluster: bytes,
        destinations: _Destinations,
    ) -> None:
        """Add the rows that the rules let through, up to the first that they do not; rules run once for each queue."""
        born_host = encode_host(connection.remote_address)
        before_cluster = PROPERTY_SEPARATOR.encode() + cluster
        for row in rows:
            key = (row.topic, row.queue_id, row.sys_flag)
            found = destinations.get(key)
            if found is None:
                to = self._general.plain_destination(_header(row), row.version, connection.remote_address)
                if to is None:
                    break
                found = destinations[key] = to.topic, to.queue_id, to.sys_flag
            topic, queue_id, sys_flag = found
            properties = row.properties
            messages.append(
                MessageRow(
                    topic,
                    queue_id,
                    row.flag,
                    sys_flag,
                    row.born_timestamp_ms,
                    row.reconsume_times,
                    row.body,
                    properties + before_cluster if properties else cluster,
                    row.names,
                    born_host,
                )
            )


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


def _owed(rows: Sequence[SendRow], placed: Sequence[DispatchRequest]) -> Sequence[tuple[int, int, int, int] | None]:
    return [
        None if row.is_oneway else (where.commit_log_offset, where.queue_id, where.consume_queue_offset, row.opaque)
        for row, where in zip(rows, placed, strict=False)
    ]


def _answered(
    owed: Sequence[tuple[int, int, int, int] | None],
) -> Sequence[tuple[int, int, int, int]]:
    return [each for each in owed if each is not None]


class _Span(NamedTuple):
    """The rows of one connection among those that were stored together, and what their answers tell, None for none."""

    begin: int
    end: int
    connection: RemotingConnection
    owed: Sequence[tuple[int, int, int, int] | None]


@attrs.frozen(eq=False)
class _WaitingAnswers:
    """Answers rows that waited. Their requests are gone by then, so it keeps what their answers need."""

    _lane: SendLane
    _general: SendMessageProcessor
    _settings: _Settings
    _spans: Sequence[_Span]

    def tell(self, begin: int, end: int, status: PutStatus) -> Callable[[], None] | None:
        """A `TellRows`."""
        for span in self._spans:
            first, last = max(begin, span.begin), min(end, span.end)
            if first < last:
                self._general.waiting.end(span.connection, last - first)
                self._answer(span, span.owed[first - span.begin : last - span.begin], status)
        return self._lane.send_owed

    def _answer(self, span: _Span, owed: Sequence[tuple[int, int, int, int] | None], status: PutStatus) -> None:
        answers = self._settings.answers
        assert answers is not None
        answered = _answered(owed)
        if status is PutStatus.PUT_OK:
            if answered:
                self._lane.owe(span.connection, answers.frames(answered))
            return
        self._lane.send_owed()  # what comes before it
        for offset, queue_id, queue_offset, opaque in answered:
            request = RemotingRequest(
                span.connection, RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=opaque), trio.current_time()
            )
            appended = AppendMessageResult(offset, 0, queue_offset, 0, self._settings.store_host)
            self._general.answer(request, queue_id, PutResult(status, appended))
