"""The operator of the scenario in which topics come and go: it loses masters, and lets faults wait for lives."""

from __future__ import annotations

import trio

from rmq_actors.testing.fail_over import FailOverOperator
from rmq_actors.testing.topic_clients import TopicClients

#: A fault comes when a client asks for something or is answered, when a slave takes a table over, or by the log.
TOPIC_EVENTS = (
    *("client.topic", "client.topic", "client.topic", "client.topic", "client.topic"),
    *("broker.slave_synchronize", "store.open", "log.append", "log.flush"),
)
#: Longer than lives last that no fault holds up.
_LIVES_S = 120.0
_LOOK_EVERY_S = 0.1
_RESTART_EVERY_S = 10.0


class TopicOperator(FailOverOperator):
    """Fail-overs, as in `FailOverOperator`; its work is done when all lives of topics are over."""

    async def act(self) -> None:
        """Faults that wait for an event of a life are not called off before."""
        await super().act()
        assert isinstance(self.clients, TopicClients)
        give_up_at_s = trio.current_time() + _LIVES_S
        restart_at_s = trio.current_time() + _RESTART_EVERY_S
        while not self.clients.have_lived and trio.current_time() < give_up_at_s:
            await trio.sleep(_LOOK_EVERY_S)
            if trio.current_time() >= restart_at_s:
                await self.restart_unwriteable()  # no life ends at such a master
                restart_at_s = trio.current_time() + _RESTART_EVERY_S
        self.clients.end_lives()
