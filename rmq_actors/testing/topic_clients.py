"""Clients of a run that make topics, fill, read and delete them, and make them again: `TopicClients`.

A life of a topic:

    create ── ask for offsets ── send, some ── read, commit ── pause ── delete ── pause ── create ...

Each step is asked for until a master has said that it is done, whichever broker that is by then. A consumer of another
machine reads all the while, at masters and slaves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.clients import LOOK_EVERY_S, PUT_AGAIN_S, WRITERS
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.invariants.topic_lives import TOPICS
from rmq_actors.testing.read_queue import Found, read_queue
from rmq_actors.testing.remote_clients import RemoteClients, SentMessage
from rmq_actors.testing.thin_client import Pulled, ThinClient
from rmq_actors.tracing.events.run import (
    ClientSend,
    ClientTopic,
    ClientTopicOffset,
)
from rmq_actors.wire.headers import CommandHeader
from rmq_actors.wire.headers.clients import DeleteSubscriptionGroupRequestHeader
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader, DeleteTopicRequestHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

_READ_AND_WRITE = 6
_TIMEOUT_MS = 5_000
#: How many messages a life has at most.
_MESSAGES_MAX = 6
#: How long a topic is left alone before it is deleted, and before it is made again. Slaves ask for tables each 10 s.
_PAUSES_S = (0.0, 0.0, 0.3, 2.0, 12.0, 25.0)
#: How often the topic's group is deleted, too.
_GROUP_GOES = 0.3
_READ_EVERY_S = 0.5


def group_of(topic: str) -> str:
    """The group that reads a topic."""
    return f"Group-{topic}"


@attrs.define(eq=False, repr=False)
class TopicClients(RemoteClients):
    """See the module. `lives_left` is how many lives of topics are yet to begin."""

    lives_left: int = attrs.field(default=0, init=False)
    #: Whether nothing is waited for any more.
    _hurries: bool = attrs.field(default=False, init=False)
    _living: int = attrs.field(default=0, init=False)
    _lives: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.lives_left = self.brokers.workload.topic_lives

    @property
    def are_done(self) -> bool:
        """Whether all lives are over, and every slave has taken over what became of the topics."""
        return self.have_lived and self._agree

    @property
    def have_lived(self) -> bool:
        """Whether all lives are over."""
        return self.lives_left <= 0 and not self._living

    def end_lives(self) -> None:
        """Begin no life any more, and let those that have begun end soon."""
        self.lives_left, self._hurries = 0, True

    @property
    def _agree(self) -> bool:
        brokers = self.brokers
        master = brokers.broker(brokers.master)
        slaves = [name for name in brokers.running if name != brokers.master and name not in brokers.view.halted]
        return all(_has_all(brokers.broker(name), master) for name in slaves)

    # --- producers --------------------------------------------------------------------------------------------------

    async def _produce_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._produce_all, node)
            for topic in TOPICS:
                nursery.start_soon(self._live_all, topic, node)

    async def _live_all(self, topic: str, node: Node) -> None:
        async with self._open(f"producer-of-{topic}", node) as remoting:
            while not self._stopping.is_set():
                if self.lives_left <= 0:
                    await self._rest(remoting)
                    continue
                self.lives_left -= 1
                self._living += 1
                await self._live(remoting, topic, node)
                self._living -= 1

    async def _rest(self, remoting: RemotingClient) -> None:
        """Let go of brokers for a moment."""
        for connection in list(remoting.connections.values()):
            connection.stop()
        await trio.sleep(LOOK_EVERY_S)

    async def _live(self, remoting: RemotingClient, topic: str, node: Node) -> None:
        entropy = node.entropy
        self._lives += 1
        life = self._lives
        await self._change(remoting, topic, "create", RequestCode.UPDATE_AND_CREATE_TOPIC, _creation(topic))
        for queue_id in range(WRITERS):
            await self._query_offset(remoting, topic, queue_id)
        for number in range(1 + int(entropy.random() * _MESSAGES_MAX)):
            key, queue_id = f"{topic}/{life}/{number}", int(entropy.random() * WRITERS)
            message = self._message(key, queue_id, self._body(node))
            self._sent[key] = message
            await self._until_done(remoting, lambda master, sent=message: self._send_to(remoting, master, topic, sent))  # type: ignore[misc]
            await trio.sleep(entropy.random() * self.brokers.workload.pause_s)
        for queue_id in range(WRITERS):
            await self._consume_life(remoting, topic, queue_id)
        await self._pause(remoting, node)
        is_last = self.lives_left <= 0
        if is_last and entropy.random() < 1 / 2:
            return  # it lives on
        if entropy.random() < _GROUP_GOES:
            deletion = DeleteSubscriptionGroupRequestHeader(group_of(topic), remove_offset=True)
            await self._change(remoting, topic, "delete_group", RequestCode.DELETE_SUBSCRIPTIONGROUP, deletion)
        gone = DeleteTopicRequestHeader(topic)
        await self._change(remoting, topic, "delete", RequestCode.DELETE_TOPIC_IN_BROKER, gone)
        await self._pause(remoting, node)

    async def _pause(self, remoting: RemotingClient, node: Node) -> None:
        over_at_s = trio.current_time() + _PAUSES_S[int(node.entropy.random() * len(_PAUSES_S))]
        while trio.current_time() < over_at_s and not (self._hurries or self._stopping.is_set()):
            await self._rest(remoting)

    async def _until_done(self, remoting: RemotingClient, step: Callable[[str], Awaitable[bool]]) -> None:
        """Ask whichever broker is the master, until it is done."""
        while not self._stopping.is_set():
            master = self._master()
            if master is None or not self.may_write:
                await self._rest(remoting)
                continue
            self._waiting += 1
            try:
                is_done = await step(master)
            finally:
                self._waiting -= 1
            if is_done:
                return
            await trio.sleep(PUT_AGAIN_S)

    async def _change(
        self, remoting: RemotingClient, topic: str, operation: str, code: RequestCode, header: CommandHeader
    ) -> None:
        async def step(master: str) -> bool:
            self._note(master, operation, topic, "asked")
            try:
                status = ResponseCode((await self._of(remoting, master, topic).request(code, header)).code).name
            except RemotingError as error:
                status = type(error).__name__
            self._note(master, operation, topic, status)
            return status == ResponseCode.SUCCESS.name

        await self._until_done(remoting, step)

    async def _send_to(self, remoting: RemotingClient, master: str, topic: str, sent: SentMessage) -> bool:
        self._note(master, "send", topic, "asked")
        queue_offset = offset = -1
        code = None
        try:
            code, placed = await self._of(remoting, master, topic).send(
                topic, sent.body, sent.queue_id, {"KEYS": sent.key}
            )
        except RemotingError as error:
            status = type(error).__name__
        else:
            status = ResponseCode(code).name
            if isinstance(placed, SendMessageResponseHeader):
                queue_offset, offset = placed.queue_offset, decode_message_id(placed.msg_id)[1]
        self._note(master, "send", topic, status)
        told = ClientSend(status=status, key=sent.key, queue_id=sent.queue_id, queue_offset=queue_offset, offset=offset)
        self.brokers.recorder.record(told, master)
        return offset >= 0

    async def _query_offset(self, remoting: RemotingClient, topic: str, queue_id: int) -> None:
        async def step(master: str) -> bool:
            asked_ns = self._now_ns()
            try:
                offset = await self._of(remoting, master, topic).committed(topic, queue_id)
            except RemotingError:
                return False
            self._note_offset(master, "query", topic, queue_id, 0 if offset is None else offset, asked_ns)
            return True

        await self._until_done(remoting, step)

    async def _consume_life(self, remoting: RemotingClient, topic: str, queue_id: int) -> None:
        """Read a queue from its beginning, and commit its end."""

        async def step(master: str) -> bool:
            end = await self._read_queue(remoting, master, topic, queue_id, "TopicClients")
            if end is None:
                return False
            asked_ns = self._now_ns()
            self._note_offset(master, "commit", topic, queue_id, end, asked_ns, "asked")
            with contextlib.suppress(RemotingError):
                await self._of(remoting, master, topic).commit(topic, end, queue_id)
            return True

        await self._until_done(remoting, step)

    def _of(self, remoting: RemotingClient, broker: str, topic: str) -> ThinClient:
        address = self.brokers.addresses(broker).remoting
        return ThinClient(
            lambda request: remoting.invoke(address, request, _TIMEOUT_MS), f"client-of-{topic}", group_of(topic)
        )

    # --- the consumer -----------------------------------------------------------------------------------------------

    async def _consume_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._consume_all, node)
            nursery.start_soon(self._read_now_and_then, node)

    async def _read_now_and_then(self, node: Node) -> None:
        async with self._open("reader-of-topics", node) as remoting:
            while not self._stopping.is_set():
                broker = self._source()
                if broker is not None:
                    topic = TOPICS[int(node.entropy.random() * len(TOPICS))]
                    await self._read_queue(
                        remoting, broker, topic, int(node.entropy.random() * WRITERS), "ReaderOfTopics"
                    )
                with trio.move_on_after(node.entropy.random() * _READ_EVERY_S):
                    await self._stopping.wait()

    async def read_all(self, name: str) -> None:
        """Also the topics that come and go, at that broker and at those that follow it."""
        await super().read_all(name)
        brokers = self.brokers

        async def read(remoting: RemotingClient) -> None:
            for broker in brokers.running:
                if broker in brokers.view.halted:
                    continue
                for topic in TOPICS:
                    for queue_id in range(WRITERS):
                        while await self._read_queue(remoting, broker, topic, queue_id, LAST_READER) is None:  # noqa: ASYNC110 - asks
                            await trio.sleep(LOOK_EVERY_S)

        await self._at(self._consumers, "last-reader-of-topics", read)

    async def _read_queue(
        self, remoting: RemotingClient, broker: str, topic: str, queue_id: int, reader: str
    ) -> int | None:
        """Read from the queue's beginning to its end: where that is; None if there is no answer."""

        def found(pulled: Pulled) -> Iterator[Found]:
            for message in pulled.messages:
                sent = self._sent.get(message.properties.get("KEYS", ""))
                is_as_sent = message.topic == topic and sent is not None and message.body == sent.body
                yield Found(message.physical_offset, message.queue_offset, is_as_sent)

        client = self._of(remoting, broker, topic)
        return await read_queue(self.brokers, client, broker, topic, queue_id, reader, found)

    # --- what is told -----------------------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return self.brokers.world.now_ns

    def _note(self, master: str, operation: str, topic: str, status: str) -> None:
        self.brokers.recorder.record(ClientTopic(status=status, operation=operation, topic=topic), master)

    def _note_offset(
        self,
        master: str,
        operation: str,
        topic: str,
        queue_id: int,
        offset: int,
        asked_ns: int,
        status: str = ResponseCode.SUCCESS.name,
    ) -> None:
        told = ClientTopicOffset(
            status=status,
            operation=operation,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            asked_ns=asked_ns,
        )
        self.brokers.recorder.record(told, master)


def _creation(topic: str) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(topic, "TBW102", WRITERS, WRITERS, _READ_AND_WRITE, "SINGLE_TAG")


def _metadata(broker: BrokerController) -> BrokerMetadata:
    assert broker.remoting is not None
    return broker.remoting.metadata


def _points(broker: BrokerController) -> Mapping[str, int | None]:
    return {topic: queues.get(None) for topic, queues in broker.store.topic_deletion.points.items() if None in queues}


def _has_all(slave: BrokerController, master: BrokerController) -> bool:
    """Whether it has the topics, groups and offsets of its master, and no others."""
    own, masters = _metadata(slave), _metadata(master)
    return (
        own.topics.wrapper().topic_config_table == masters.topics.wrapper().topic_config_table
        and own.subscription_groups.wrapper().subscription_group_table
        == masters.subscription_groups.wrapper().subscription_group_table
        and _points(slave) == _points(master)
    )
