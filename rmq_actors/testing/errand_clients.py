"""Clients of a run, and others beside them that run errands: `ErrandClients`. What an errand is: `errands.py`."""

from __future__ import annotations

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.clients import LOOK_EVERY_S
from rmq_actors.testing.clients_apart import has_delivered_all
from rmq_actors.testing.errand import Errand, GivenUp
from rmq_actors.testing.errands import ERRANDS
from rmq_actors.testing.remote_clients import RemoteClients
from rmq_actors.tracing.events.run import ClientErrand
from sim_net import Node

#: How many are under way at a time.
_AT_ONCE = 3


@attrs.define(eq=False, repr=False)
class ErrandClients(RemoteClients):
    """See the module. `errands_left` is how many are yet to begin."""

    errands_left: int = attrs.field(default=0, init=False)
    _under_way: int = attrs.field(default=0, init=False)
    _begun: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.errands_left = self.brokers.workload.errands

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
            if master is None or self.errands_left <= 0:
                await trio.sleep(LOOK_EVERY_S)
                continue
            self.errands_left -= 1
            self._under_way += 1
            self._begun += 1
            await self._run(Errand(self._begun, master, self.brokers, node))
            self._under_way -= 1
            await trio.sleep(node.entropy.random() * self.brokers.workload.pause_s)

    async def _run(self, errand: Errand) -> None:
        kind = list(ERRANDS)[errand.below(len(ERRANDS))]
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
