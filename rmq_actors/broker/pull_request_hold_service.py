"""Holds pulls that found nothing until a message comes or their time is up (PullRequestHoldService).

RocketMQ's looks every 5 s, and its dispatcher tells it of each message, but not on a slave. This service sleeps while
no pull is held, and otherwise until records are dispatched, also on a slave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.protocols.held_pulls import HeldPulls, Queue
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.remoting_command import RemotingCommand

#: How many pulls may be held, and how long they may be together. One more is answered at once with "nothing found", and
#: its consumer asks again.
HELD_PULLS_MAX: Final = 100_000
HELD_PULLS_MAX_BYTES: Final = 256 * 1024 * 1024
#: How many are answered before somebody else has a turn: each may read 256 KiB.
ANSWERED_AT_A_TIME: Final = 8
#: About what a request takes beside the texts of its header and its body.
_REQUEST_AROUND_BYTES = 1024
_FIELD_AROUND_BYTES = 64


@attrs.define(eq=False, repr=False)
class PullRequestHoldService(ServiceThread):
    """Answers through `pull_again`, which is given each pull once: when it ends here, or with its connection."""

    name = "PullRequestHoldService"
    _held: HeldPulls[RemotingRequest] = attrs.field(
        factory=lambda: HeldPulls(HELD_PULLS_MAX, HELD_PULLS_MAX_BYTES), init=False
    )
    _pull_again: Callable[[RemotingRequest], None] | None = attrs.field(default=None, init=False)
    _store: MessageStore | None = attrs.field(default=None, init=False)
    _sooner: WakeUp = attrs.field(factory=WakeUp, init=False)
    #: Until when the service sleeps unless it is woken.
    _sleeps_to_s: float = attrs.field(default=math.inf, init=False)

    @property
    def held_count(self) -> int:
        """How many pulls are held."""
        return len(self._held)

    def answers_through(self, pull_again: Callable[[RemotingRequest], None]) -> None:
        """Set the function that gets each pull when it is not held any more."""
        self._pull_again = pull_again

    def use_store(self, store: MessageStore | None) -> None:
        """Wait for messages of this store from now on; None: there is no store for a while."""
        self._store = store
        self._sooner.wakeup()

    def hold(self, queue: Queue, offset: int, deadline_s: float, request: RemotingRequest) -> bool:
        """Hold a pull until the queue ends after `offset`, or to `deadline_s`; False if too many are held."""
        is_first = not len(self._held)
        owner, size_bytes = request.connection, request_bytes(request.command)
        if not self._held.hold(queue, offset, deadline_s, request, owner=owner, size_bytes=size_bytes):
            return False
        if is_first or deadline_s < self._sleeps_to_s:
            self._sooner.wakeup()
        return True

    def closed(self, connection: RemotingConnection) -> None:
        """A connection has ended: let go of its pulls."""
        self._held.let_go(connection)

    def release(self, topics: AbstractSet[str]) -> None:
        """Answer the pulls of these topics now: they are gone."""
        self._held.expire(lambda queue: queue[0] in topics)
        self._sooner.wakeup()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Sleep until something may have come."""
        task_status.started()
        while True:
            store = self._store
            if store is None or not len(self._held):
                await self._sleep()
                continue
            with store.dispatched.subscribe(self._dispatched), store.files.consume_queues.growth() as take_grown:
                await self._look(store, None)
                while self._store is store and len(self._held):
                    await self._sleep()
                    await self._look(store, take_grown())

    def _dispatched(self, _: int) -> bool:
        self._sooner.wakeup()
        return True

    async def _sleep(self) -> None:
        self._sleeps_to_s = self._held.next_deadline_s()
        await self._sooner.wait_for_running(self._sleeps_to_s)
        await self._answer(self._held.take_expired(trio.current_time()), self._store)

    async def _look(self, store: MessageStore, queues: Iterable[Queue] | None) -> None:
        """At the queues that have grown; None: at all."""
        await self._answer(self._held.take_arrived(store.offsets.get_max_offset_in_queue, queues), store)

    async def _answer(self, pulls: Iterator[RemotingRequest], store: MessageStore | None) -> None:
        """A few at a time. They are held until their turn comes; with another store it is looked again at all."""
        assert self._pull_again is not None
        for number, request in enumerate(pulls, 1):
            self._pull_again(request)
            if number % ANSWERED_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
                if self._store is not store:
                    return


def request_bytes(command: RemotingCommand) -> int:
    """About how much memory a request takes: a peer's header is as long as it likes."""
    size_bytes = _REQUEST_AROUND_BYTES + len(command.body) + _text_bytes(command.remark or "")
    for name, value in (command.ext_fields or {}).items():
        size_bytes += _FIELD_AROUND_BYTES + _text_bytes(name) + _text_bytes(value)
    return size_bytes + sum(map(_text_bytes, command.unknown_fields))


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)
