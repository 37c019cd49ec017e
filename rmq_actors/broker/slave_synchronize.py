"""Takes over a master's topics, offsets and groups (SlaveSynchronize). Drives `protocols.metadata_rounds`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import NamedTuple

import attrs
import trio

from rmq_actors.actors.services.channels import LatestChannel, LatestReceiver
from rmq_actors.actors.services.service import WakeUp
from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.broker_outer_api import MQBrokerError
from rmq_actors.broker.followed_deletions import ToldDeletions, ask_deletions, take_deletions
from rmq_actors.broker.offset_persist_service import synced_to
from rmq_actors.broker.peer_states import PeerStates
from rmq_actors.broker.processors.metadata_requests import RESTS_ON
from rmq_actors.ports.entropy import Entropy
from rmq_actors.protocols.evidence import Doubt, Own, Peer, doubt_in_tables
from rmq_actors.protocols.metadata_rounds import Metadata, SlaveSynchronization
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.store.dispatch.consume_queue import parse_queue_offset
from rmq_actors.store.files.term_file import TermFile
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import TopicConfigSerializeWrapper
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: How long RocketMQ waits for each answer.
TIMEOUT_MS = 3_000

MASTERS = LatestChannel[str].declare(
    "broker.masters",
    carries="where the master answers requests: the slave takes over its metadata from now on",
    sender="BrokerRegistrationService",
    receiver="SlaveSynchronize",
)

CODES = {
    Metadata.TOPICS: RequestCode.GET_ALL_TOPIC_CONFIG,
    Metadata.CONSUMER_OFFSETS: RequestCode.GET_ALL_CONSUMER_OFFSET,
    Metadata.DELAY_OFFSETS: RequestCode.GET_ALL_DELAY_OFFSET,
    Metadata.SUBSCRIPTION_GROUPS: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}


class MasterTable(NamedTuple):
    """A master's table as it was sent, and up to where a log must reach for which it is right.

    `deleted`: with the topics, which were deleted before.
    """

    body: bytes
    rests_on: int | None = None
    deleted: ToldDeletions | None = None


class LogBehind(ConnectionError):
    """This log does not have yet what the master's delay offsets count as delivered."""


class MasterNotFollowed(ConnectionError):
    """The master's log is not followed any more: the address may be another broker's now."""


class TablesNotTaken(ConnectionError):
    """The peer's tables may be older than this broker's."""

    def __init__(self, doubt: Doubt) -> None:
        super().__init__(f"{doubt.reason}: {doubt.detail}")


@attrs.define(eq=False, repr=False)
class SlaveSynchronize:
    """A Service of slaves. What fails is logged, traced and tried again, and the tables stay as they were.

    Ask only a master whose log is followed: a master with another log may have lost its tables with its log. Ask what
    it is before and after each answer, and take a table only if it was the same master both times.
    """

    name = "SlaveSynchronize"
    _metadata: BrokerMetadata
    #: None while there is no store.
    _open_store: Callable[[], MessageStore | None]
    _client: RemotingClient
    #: Where the master answers, "host:port"; None while that is not known.
    _master_addr: str | None
    #: Announces a new master; None: the configuration fixes it.
    _told: LatestReceiver[str] | None
    _is_followed: Callable[[], bool]
    _terms: TermFile
    _broker_name: str
    _entropy: Entropy
    _tracer: Tracer
    _machine: SlaveSynchronization = attrs.field(init=False)
    _wake: WakeUp = attrs.field(factory=WakeUp, init=False)
    _asking: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _is_stopping: bool = attrs.field(default=False, init=False)
    #: What the master said about itself last in this round.
    _said: tuple[str, Peer | None] | None = attrs.field(default=None, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Synchronise until asked to stop."""
        machine = self._machine = SlaveSynchronization(trio.current_time(), self._master_addr)
        async with trio.open_nursery() as nursery:
            if self._told is not None:
                nursery.start_soon(self._watch_masters, self._told)
            task_status.started()
            while not self._is_stopping:
                self._said = None
                for part in machine.due(trio.current_time()):
                    await self._synchronize(part)
                await self._wake.wait_for_running(machine.wake_at)
            nursery.cancel_scope.cancel()

    def request_stop(self) -> None:
        """Stop waiting for answers; store what has been answered, and end."""
        self._is_stopping = True
        self._asking.cancel()
        self._wake.wakeup("stop")

    async def _watch_masters(self, told: LatestReceiver[str]) -> None:
        async for master in told:
            self._machine.master_changed(master, trio.current_time())
            self._asking.cancel()
            self._wake.wakeup("master")

    async def _synchronize(self, part: Metadata) -> None:
        """Take over one table."""
        machine, master, detail = self._machine, self._machine.master, ""
        if master is None or self._is_stopping:
            return
        if not self._is_followed():
            machine.failed(part, master, trio.current_time(), self._entropy.random())
            return
        try:
            answer = await self._ask(master, part)
            if answer is None:
                return
            if not self._is_followed():
                raise MasterNotFollowed("its log is not followed any more")
            await self._keep_term()
            has_changed = await take_over(self._metadata, self._open_store(), part, answer)
            status = "changed" if has_changed else "unchanged"
        except (RemotingError, MQBrokerError, ValueError, OSError) as error:
            status, detail = type(error).__name__, str(error)
            _log.warning("%s: %s of %s: %s", self.name, part.value, master, error)
            machine.failed(part, master, trio.current_time(), self._entropy.random())
        else:
            machine.succeeded(part, master, trio.current_time())
            if status == "changed":
                if part is Metadata.TOPICS:  # offsets in topics that were deleted are gone
                    machine.dropped(Metadata.CONSUMER_OFFSETS, trio.current_time())
                _log.info("%s: %s taken over from %s", self.name, part.value, master)
        self._tracer.emit(
            BrokerSlaveSynchronize(status=status, part=part.value, peer_address=master, detail=detail[:200]), self.name
        )

    async def _ask(self, master: str, part: Metadata) -> MasterTable | None:
        """A table that may be taken over; None if a stop or another master came meanwhile."""
        answer = None
        with trio.CancelScope() as self._asking:
            answer = await self._ask_master(master, part)
        return None if self._asking.cancel_called else answer

    async def _ask_master(self, master: str, part: Metadata) -> MasterTable:
        peers = PeerStates(self._client)
        before = self._said[1] if self._said is not None and self._said[0] == master else await peers.ask(master)
        self._check(before, before)
        answer = await ask_table(self._client, self._open_store(), master, part, TIMEOUT_MS)
        after = await peers.ask(master)
        self._said = master, after
        self._check(before, after)
        return answer

    def _check(self, before: Peer | None, after: Peer | None) -> None:
        if doubt := doubt_in_tables(Own(self._terms.term, self._broker_name), before, after):
            raise TablesNotTaken(doubt)

    async def _keep_term(self) -> None:
        """Keep the term of a master promoted again while it was followed, or of a slave with another master."""
        peer = self._said[1] if self._said is not None else None
        if peer is not None and peer.term is not None:
            await self._terms.see(peer.term)


async def ask_table(
    client: RemotingClient, store: MessageStore | None, master: str, part: Metadata, timeout_ms: int
) -> MasterTable:
    """A master's table. Raises `RemotingError`, `MQBrokerError`, `ValueError`."""
    deleted = await ask_deletions(client, master, timeout_ms, store) if part is Metadata.TOPICS else None
    request = RemotingCommand(CODES[part])
    response = await client.invoke(master, request, timeout_ms)
    if response.code != ResponseCode.SUCCESS:
        raise MQBrokerError(master, request, response)
    rests_on = parse_queue_offset((response.ext_fields or {}).get(RESTS_ON, ""))
    return MasterTable(response.body, rests_on, deleted)


async def take_over(metadata: BrokerMetadata, store: MessageStore | None, part: Metadata, answer: MasterTable) -> bool:
    """Store a master's table, durably; whether that changed anything.

    Raises `ValueError` and `OSError`, of these `LogBehind`: with delay offsets that are ahead of its log, this broker
    would lose as the master what lies between.
    """
    if part is Metadata.TOPICS:
        topics = decode_body(TopicConfigSerializeWrapper, answer.body)
        if not topics.topic_config_table:
            raise ValueError("the master sent no topics, but every broker has the system topics")
        has_deleted = False
        if store is not None and answer.deleted is not None:
            has_deleted = await take_deletions(answer.deleted, store, metadata, topics)
        return await metadata.topics.follow(topics) or has_deleted
    if part is Metadata.CONSUMER_OFFSETS:
        has_changed = metadata.consumer_offsets.follow(answer.body)
        await metadata.consumer_offsets.persist()
        return has_changed
    if part is Metadata.DELAY_OFFSETS:
        end = 0 if store is None else store.commit_log.max_offset
        if store is None or end < (answer.rests_on or 0):
            raise LogBehind(f"they count as delivered what the log has up to {answer.rests_on}, here it ends at {end}")
        has_changed = metadata.delay_offsets.replace(answer.body, answer.rests_on)
        await metadata.delay_offsets.persist(functools.partial(synced_to, store))
        return has_changed
    return await metadata.subscription_groups.follow(decode_body(SubscriptionGroupWrapper, answer.body))
