"""What an operator does in a run: `Operator` is the least of it, what every cluster needs to get well again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.protocols.ha_master import OffsetGone
from rmq_actors.settings.field_types import shown
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.clients import Writers
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.tracing.events.ha import HaConnectionClose, HaConnectionOpen
from sim_net import Node

_LOOK_EVERY_S = 0.1
#: After a minute a store cleans its log by itself. The operator must not do it at the same time, so it stops before.
_CLEANED_UNTIL_S = 50.0


@attrs.define(eq=False, repr=False)
class Operator:
    """Restarts brokers that cannot write any more, and sets slaves up again whose master has deleted what comes next.

    If `clean_every_s` is set, it lets each broker clean its log. A scenario's operator derives from this one, or from
    `RoleOperator`.
    """

    #: Whether it changes roles: such brokers have a port on which slaves ask.
    changes_roles: ClassVar[bool] = False
    #: Whether it does what a schedule's `Operation`s say. Its brokers keep what requests change in a file.
    takes_orders: ClassVar[bool] = False

    brokers: BrokersUnderTest
    clients: Writers
    #: The slaves at the other end of the masters' connections.
    _slaves: dict[tuple[str, int], str] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        if self._cleans:
            self.brokers.recorder.subscribe(self._on_open, [HaConnectionOpen])
            self.brokers.recorder.subscribe(self._on_close, [HaConnectionClose])

    @property
    def _cleans(self) -> bool:
        return self.brokers.workload.clean_every_s > 0

    def beside(self, name: str) -> Iterable[Beside]:
        """What is done at the broker of that name while it runs."""
        if self._cleans:
            yield self._clean

    async def act(self) -> None:
        """Do what the scenario is about, while faults are at work. Returns when it is done."""

    async def settle(self) -> None:
        """When every fault is over: see that there is a master, and that the others are to follow it."""

    def start(self, nursery: trio.Nursery) -> None:
        """Start what goes on for the whole run."""
        if self._cleans:
            nursery.start_soon(self._restart_lost)

    async def restart_unwriteable(self) -> None:
        """Restart brokers whose stores have met a failed sync: they refuse puts until then."""
        brokers = self.brokers
        for name in brokers.running:
            if brokers.broker(name).store.failure:
                await brokers.kill(name)
                brokers.restart_node(name)

    async def _clean(self, broker: BrokerController, _: Node) -> None:
        until_s = trio.current_time() + _CLEANED_UNTIL_S
        while trio.current_time() < until_s:
            await trio.sleep(self.brokers.workload.clean_every_s)
            await broker.store.clean_commit_log_service.clean()

    def _on_open(self, event: HaConnectionOpen) -> None:
        self._slaves[event.node, event.conn_id] = self.brokers.view.peer(event)

    def _on_close(self, event: HaConnectionClose) -> None:
        slave, view = self._slaves[event.node, event.conn_id], self.brokers.view
        if slave and event.status == OffsetGone.reason and view.needs_what_is_gone(view.nodes[slave]):
            self.brokers.empty(slave)

    async def _restart_lost(self) -> None:
        brokers = self.brokers
        while True:
            await trio.sleep(_LOOK_EVERY_S)
            for name in brokers.running:
                if brokers.is_to_be_emptied(name):
                    await brokers.kill(name)
                    brokers.restart_node(name)


async def done_by(method: Callable[[], Awaitable[None]]) -> None:
    """Await what an operator does. Raises `TypeError` naming a method of one's own that is not `async`."""
    doing: object = method()
    if not isinstance(doing, Awaitable):
        raise TypeError(f"{method.__qualname__} must be an async function: it returns {shown(doing)}")
    await doing
