"""Clients of a run, and others beside them that run errands: `ErrandClients`. What an errand is: `errands.py`."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.clients import LOOK_EVERY_S
from rmq_actors.testing.clients_apart import has_delivered_all
from rmq_actors.testing.errand import Errand, GivenUp
from rmq_actors.testing.errands import ERRANDS, FIRST_ERRANDS, FURTHER_ERRANDS
from rmq_actors.testing.remote_clients import RemoteClients
from rmq_actors.tracing.events.run import ClientErrand
from sim_net import Node

#: How many are under way at a time.
_AT_ONCE = 3


@attrs.define(eq=False, repr=False)
class ErrandClients(RemoteClients):
    """See the module. `errands_left` is how many are yet to begin.

    Half as many further ones begin when all others are over, so that these meet what they met before there were any.
    """

    errands_left: int = attrs.field(default=0, init=False)
    _under_way: int = attrs.field(default=0, init=False)
    _begun: int = attrs.field(default=0, init=False)
    #: How many of those that are under way are none of the further ones.
    _first_under_way: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.errands_left = self._of_the_first + self._of_the_first // 2

    @property
    def _of_the_first(self) -> int:
        return self.brokers.workload.errands

    @property
    def _may_begin(self) -> bool:
        """Whether there is one that is not yet to wait. Further ones ask nobody who stands still."""
        if self._begun < self._of_the_first:
            return self.errands_left > 0
        stands_still = any(node.is_paused for node in self.brokers.nodes.values())
        return self.errands_left > 0 and not self._first_under_way and not stands_still

    @property
    def are_done(self) -> bool:
        """Whether all errands are over."""
        return self.errands_left <= 0 and not self._under_way

    def has_all_delayed(self, broker: BrokerController) -> bool:
        """See `Writers.has_all_delayed`: here of all levels, as each retry is delayed longer."""
        return has_delivered_all(broker)

    async def _consume_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._consume_all, node)
            for _ in range(_AT_ONCE):
                nursery.start_soon(self._run_all, node)

    async def _run_all(self, node: Node) -> None:
        while not self._stopping.is_set():
            master = self._master()
            if master is None or not self._may_begin:
                await trio.sleep(LOOK_EVERY_S)
                continue
            self.errands_left -= 1
            self._under_way += 1
            self._begun += 1
            is_first = self._begun <= self._of_the_first
            self._first_under_way += is_first
            await self._run(Errand(self._begun, master, self.brokers, node), self._kinds(is_first=is_first))
            self._under_way -= 1
            self._first_under_way -= is_first
            await trio.sleep(node.entropy.random() * self.brokers.workload.pause_s)

    def _kinds(self, *, is_first: bool) -> Sequence[str]:
        """The kinds from which an errand is drawn."""
        return FIRST_ERRANDS if is_first else FURTHER_ERRANDS

    async def _run(self, errand: Errand, kinds: Sequence[str]) -> None:
        kind = kinds[errand.below(len(kinds))]
        self._note(errand, kind, "begun")
        status, detail = "done", ""
        try:
            detail = await ERRANDS[kind].run(errand)
        except* GivenUp:
            status = "given_up"
        except* RemotingError as group:
            status, detail = "unanswered", f"{group.exceptions[0]}"
        self._note(errand, kind, status, detail)

    def _note(self, errand: Errand, kind: str, status: str, detail: str = "") -> None:
        told = ClientErrand(status=status, operation=kind, key=errand.topic, detail=detail)
        self.brokers.recorder.record(told, errand.master)
